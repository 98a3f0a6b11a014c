package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"raftboard/cmd/raftboard/exitcode"
	"raftboard/cmd/raftboard/render"
	boardpb "raftboard/fsm/pb"
)

// maxDiffLines bounds a comparison, which costs the product of both sides.
const maxDiffLines = 2000

// printDiff shows what the newest version changed against the one before.
func (a *app) printDiff(versions []*boardpb.Entry) error {
	if len(versions) < 2 {
		return exitcode.Usagef("raftboard history KEY", "there is no earlier version to compare with")
	}
	after, before := versions[0], versions[1]
	x, y := diffLines(before.GetValue()), diffLines(after.GetValue())
	if len(x) > maxDiffLines || len(y) > maxDiffLines {
		return exitcode.Usagef("raftboard history KEY -o json", "more than %d lines: too many to compare here", maxDiffLines)
	}
	var b strings.Builder
	for _, v := range []struct {
		mark string
		e    *boardpb.Entry
	}{{"---", before}, {"+++", after}} {
		fmt.Fprintf(&b, "%s %s@%d  %s  %s\n", v.mark, v.e.GetKey(), v.e.GetVersion(), v.e.GetAuthor(),
			render.Time(v.e.GetWallMs()))
	}
	changes := lineDiff(x, y)
	for _, line := range changes {
		b.WriteString(line + "\n")
	}
	o := render.Obj("key", after.GetKey(), "from_version", before.GetVersion(), "to_version", after.GetVersion(),
		"author", after.GetAuthor(), "diff", changes)
	return a.out.Print(render.View{Object: o, Names: []string{after.GetKey()}, Text: b.String()})
}

// diffLines cuts a value into lines: the text of a JSON string, else the indented document.
func diffLines(value []byte) []string {
	if len(value) == 0 {
		return nil
	}
	var text string
	if json.Unmarshal(value, &text) == nil {
		return strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	}
	var indented bytes.Buffer
	if json.Indent(&indented, value, "", "  ") != nil {
		return []string{string(value)}
	}
	return strings.Split(indented.String(), "\n")
}

// lineDiff gives the lines of both sides with " ", "-" or "+" before each: the longest common
// subsequence stays.
func lineDiff(x, y []string) []string {
	common := make([][]int, len(x)+1)
	for i := range common {
		common[i] = make([]int, len(y)+1)
	}
	for i := len(x) - 1; i >= 0; i-- {
		for j := len(y) - 1; j >= 0; j-- {
			if x[i] == y[j] {
				common[i][j] = common[i+1][j+1] + 1
			} else {
				common[i][j] = max(common[i+1][j], common[i][j+1])
			}
		}
	}
	out := []string{}
	i, j := 0, 0
	for i < len(x) || j < len(y) {
		switch {
		case i < len(x) && j < len(y) && x[i] == y[j]:
			out = append(out, " "+x[i])
			i, j = i+1, j+1
		case j == len(y) || i < len(x) && common[i+1][j] >= common[i][j+1]:
			out = append(out, "-"+x[i])
			i++
		default:
			out = append(out, "+"+y[j])
			j++
		}
	}
	return out
}
