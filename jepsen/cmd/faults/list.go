package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"raftboard/jepsen/nemesis"
	"raftboard/jepsen/suite"
	"raftboard/jepsen/workload"
)

func listCommand() *cobra.Command {
	var output string
	c := &cobra.Command{Use: "list", Short: "Workloads, nemeses and the cells of the matrix", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if output == "json" {
				return json.NewEncoder(cmd.OutOrStdout()).Encode(map[string]any{
					"workloads": workload.Names(), "nemeses": nemesisNames(), "cells": suite.Grid()})
			}
			w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 4, 2, ' ', 0)
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
			return w.Flush()
		}}
	c.Flags().StringVarP(&output, "output", "o", "text", "text or json")
	return c
}

func nemesisNames() (names []string) {
	for _, n := range nemesis.All() {
		names = append(names, n.Name)
	}
	return names
}
