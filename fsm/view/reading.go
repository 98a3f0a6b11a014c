package view

import (
	"fmt"
	"strings"

	boardpb "raftboard/fsm/pb"
	"raftboard/fsm/state"
)

// marksNamed is how many records that are wrong the text of a content names.
const marksNamed = 8

// Part is what is shown of what a key says: the bytes From up to To of all Bytes.
type Part struct {
	Key      string // as it was asked for
	Text     string
	Entries  []*boardpb.Entry // what it is made of, oldest first; none: the key has no value
	From, To uint64
	Bytes    uint64
	Lines    uint64
	Cut      bool // more was asked for
}

// Listed is a key in a list, by its newest version, and how many items it has.
type Listed struct {
	Entry *boardpb.Entry
	Count uint64
}

// Content is what a key says, for an agent: between fence tags, after a line that says whose it
// is, how much of it this is, and what is known to be wrong with it (SPEC BB-2, F-16, F-18).
// Lines of the content are kept; what could end the fence or steer a terminal is not. It answers
// bad_request for a nonce that is none.
func Content(b *state.Board, c Part, nonce string) (string, *boardpb.Result) {
	if r := checkNonce(nonce); r != nil {
		return "", r
	}
	var out strings.Builder
	out.WriteString(tag("", nonce) + "\n" + heading(b) + "\n")
	if len(c.Entries) == 0 {
		fmt.Fprintf(&out, "- %s has no value: version 0\n", c.Key)
		return out.String() + tag("/", nonce), nil
	}
	newest := c.Entries[len(c.Entries)-1]
	out.WriteString(leadOf(newest))
	if n := len(c.Entries); n > 1 {
		fmt.Fprintf(&out, ", %d items", n)
	}
	fmt.Fprintf(&out, ", bytes %d to %d of %d, %d lines", c.From, c.To, c.Bytes, c.Lines)
	if c.Cut {
		fmt.Fprintf(&out, " [cut here; for the rest read %s from_byte %d]", c.Key, c.To)
	}
	out.WriteString(wrong(b, c.Entries) + "\n")
	if newest.Summary != "" {
		out.WriteString("summary: " + harmlessText(newest.Summary).text + "\n")
	}
	out.WriteString("content:\n" + harmlessLines(c.Text).text + "\n")
	return out.String() + tag("/", nonce), nil
}

// Listing is a list of keys for an agent: what there is, how much, by whom, what its writer says
// of it in a line, between fence tags (SPEC BB-1, BB-5). Nothing listed is a line that says so.
func Listing(b *state.Board, items []Listed, next, nonce string) (string, *boardpb.Result) {
	if r := checkNonce(nonce); r != nil {
		return "", r
	}
	var out strings.Builder
	out.WriteString(tag("", nonce) + "\n" + heading(b) + "\n")
	for _, it := range items {
		fmt.Fprintf(&out, "%s, %d bytes", leadOf(it.Entry), len(it.Entry.Value))
		if it.Count > 1 {
			fmt.Fprintf(&out, " the newest of %d items", it.Count)
		}
		out.WriteString(wrong(b, []*boardpb.Entry{it.Entry}))
		if it.Entry.Summary != "" {
			out.WriteString(": " + harmlessText(it.Entry.Summary).text)
		}
		out.WriteString("\n")
	}
	switch {
	case next != "":
		fmt.Fprintf(&out, "(there may be more: list again with after %q)\n", next)
	case len(items) == 0:
		out.WriteString("(no keys)\n")
	}
	return out.String() + tag("/", nonce), nil
}

// wrong names the entries that were invalidated, or rest on such ones.
func wrong(b *state.Board, entries []*boardpb.Entry) string {
	if b.Invalidations() == 0 {
		return ""
	}
	var named []string
	more := 0
	for _, e := range entries {
		m := b.Mark(e)
		text := ""
		switch {
		case m == nil:
			continue
		case m.Invalidation != nil:
			text = fmt.Sprintf(" [%s@%d was invalidated by %s]", e.Key, e.Version, m.Invalidation.Author)
		default:
			text = strings.Replace(rests(m), "[rests", fmt.Sprintf("[%s@%d rests", e.Key, e.Version), 1)
		}
		if len(named) == marksNamed {
			more++
			continue
		}
		named = append(named, text)
	}
	if more > 0 {
		named = append(named, fmt.Sprintf(" [and %d more]", more))
	}
	return strings.Join(named, "")
}

func checkNonce(nonce string) *boardpb.Result {
	if nonce == "" || validNonce(nonce) {
		return nil
	}
	return bad("nonce", fmt.Sprintf("a nonce is %d to %d of A-Z a-z 0-9 _ -", minNonce, maxNonce),
		"make a new one of random digits for every view")
}
