package check

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"raftboard/jepsen/history"
)

// written is one item that a view may have to show.
type written struct {
	rev    uint64
	author string
}

// views checks what readers were shown of foreign text. V1: only between the tags of the
// fence, each line with its author. V2: no text holds a tag or steers whoever looks at it.
// V3: the whole is within its budget. V4: what is not shown is counted.
func views(h *history.History, a *Order) (found []Finding) {
	items := map[string]written{}
	for i := range a.Records {
		r := &a.Records[i]
		key := r.Command.GetSet().GetKey() + r.Command.GetAppend().GetKey()
		if r.Command.Board == h.Run.Board && r.OK() && (strings.HasPrefix(key, "doc/") || strings.HasPrefix(key, "note/")) {
			ref := fmt.Sprintf("%s@%d", key, r.Result.Version)
			if _, twice := items[ref]; !twice { // a repeated command gets its first answer
				items[ref] = written{r.Result.Rev, r.Command.Actor.GetPrincipal()}
			}
		}
	}
	for i := range h.Ops {
		if op := &h.Ops[i]; op.Kind == history.View && op.Outcome == history.OK {
			found = append(found, viewed(op, items)...)
		}
	}
	return found
}

// viewed judges one view.
func viewed(op *history.Op, items map[string]written) (found []Finding) {
	bad := func(rule, format string, args ...any) {
		found = append(found, violation(rule, "a view of %s "+format, append([]any{op.Client}, args...)...).of(op.ID))
	}
	expected := 0
	for _, it := range items {
		if it.rev <= op.Result.Rev && it.author != op.Args.As {
			expected++
		}
	}
	text := op.Result.Value
	if text == "" {
		if expected > 0 {
			bad("V4", "shows nothing and says nothing of %d items", expected)
		}
		return found
	}
	if chars := utf8.RuneCountInString(text); uint64(chars/4+1) > op.Args.Limit {
		bad("V3", "has %d characters, its limit is %d tokens", chars, op.Args.Limit)
	}
	if tags := regexp.MustCompile(`(?i)<[\s/]*(board_view|peer_)`).FindAllString(text, -1); len(tags) != 2 {
		bad("V2", "holds %d tags of fences: %q", len(tags), tags)
	}
	for _, r := range text {
		if r != '\n' && (r < 0x20 || r >= 0x7f && r < 0xa0 || r >= 0x200b && r <= 0x200f || r >= 0x2028 && r <= 0x202e || r >= 0x2066 && r <= 0x2069) {
			bad("V2", "sends the character %+q as it is", r)
			break
		}
	}
	lines := strings.Split(text, "\n")
	if n := len(lines); n < 3 || lines[0] != "<board_view "+op.Args.Identity+">" || lines[n-1] != "</board_view "+op.Args.Identity+">" {
		bad("V1", "is not between the tags of its fence: %q", text)
		return found
	}
	counted, missing := 0, 0
	entry := regexp.MustCompile(`^- \S+ (\S+@\d+) by (\S+?)( \[cut: [^\]]*\])?: `)
	footer := regexp.MustCompile(`^\((\d+) not shown`)
	for _, line := range lines[2 : len(lines)-1] {
		if m := footer.FindStringSubmatch(line); m != nil {
			missing, _ = strconv.Atoi(m[1])
			continue
		}
		m := entry.FindStringSubmatch(line)
		if m == nil {
			bad("V1", "has a line that is of nobody: %q", line)
			continue
		}
		if it, known := items[m[1]]; !known || it.author != m[2] {
			bad("V1", "says that %s is by %s; it is by %q", m[1], m[2], it.author)
		}
		counted++
	}
	if counted+missing != expected {
		bad("V4", "shows %d items and counts %d as missing; there are %d at rev %d", counted, missing, expected, op.Result.Rev)
	}
	return found
}
