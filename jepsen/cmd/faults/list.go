package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"raftboard/jepsen/check"
	"raftboard/jepsen/nemesis"
	"raftboard/jepsen/planted/table"
	"raftboard/jepsen/suite"
	"raftboard/jepsen/workload"
)

func listCommand() *cobra.Command {
	var output string
	c := &cobra.Command{Use: "list [checkers|bugs|points]", Short: "Workloads, nemeses and the cells of the matrix; what checkers demand; what can be planted",
		Args: cobra.MatchAll(cobra.MaximumNArgs(1), cobra.OnlyValidArgs), ValidArgs: []string{"checkers", "bugs", "points"},
		Long: "Without an argument: nemeses, workloads, and the cells of the grid. checkers: what each code (R1, G7 …)\n" +
			"demands. bugs: what --mutant plants. points: where --fault strikes. With -o json always all of it.",
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkOutput(output); err != nil {
				return err
			}
			if output == "json" {
				return json.NewEncoder(cmd.OutOrStdout()).Encode(map[string]any{
					"workloads": workload.Names(), "nemeses": nemesisNames(), "cells": suite.Grid(),
					"checkers": check.Rules(), "bugs": table.Mutants(), "points": table.Points()})
			}
			w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 4, 2, ' ', 0)
			switch strings.Join(args, "") {
			case "checkers":
				fmt.Fprintln(w, "CHECKER\tDEMANDS THAT")
				for _, r := range check.Rules() {
					fmt.Fprintf(w, "%s\t%s\n", r.Code, r.Wants)
				}
			case "bugs":
				fmt.Fprintln(w, "BUG\tSEEN ON\tCAUGHT BY\tWHAT IS WRONG")
				for _, m := range table.Mutants() {
					on := m.Driver
					if m.Open != "" {
						on = "open"
					}
					fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", m.Name, on, strings.Join(m.Fires, ","), m.What)
				}
			case "points":
				fmt.Fprintln(w, "POINT\tWHERE\tWITH eio, short OR hit")
				for _, p := range table.Points() {
					fmt.Fprintf(w, "%s\t%s\t%s\n", p.Name, p.What, p.Asks)
				}
			default:
				listGrid(w)
			}
			return w.Flush()
		}}
	c.Flags().StringVarP(&output, "output", "o", "text", "text or json")
	return c
}

func listGrid(w io.Writer) {
	fmt.Fprintln(w, "NEMESIS\tID\tWHAT GOES WRONG")
	for _, n := range nemesis.All() {
		fmt.Fprintf(w, "%s\t%s\t%s\n", n.Name, n.ID, n.What)
	}
	fmt.Fprintln(w, "\nWORKLOAD\tIN EACH FULL RUN UNDER\tNIGHTLY UNDER")
	for _, name := range workload.Names() {
		var each, nightly []string
		for _, cell := range suite.Grid() {
			if cell.Workload == name && cell.Full {
				each = append(each, strings.Join(cell.Nemeses, ","))
			} else if cell.Workload == name {
				nightly = append(nightly, strings.Join(cell.Nemeses, ","))
			}
		}
		fmt.Fprintf(w, "%s\t%s\t%s\n", name, strings.Join(each, " "), strings.Join(nightly, " "))
	}
}

func nemesisNames() (names []string) {
	for _, n := range nemesis.All() {
		names = append(names, n.Name)
	}
	return names
}
