package table

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Point is a place where FAULT may strike.
type Point struct {
	Name string `json:"name"`
	What string `json:"what"`
	// Asks is what the place does with an error (eio, short, hit); "" can only die or sleep.
	Asks string `json:"asks,omitempty"`
}

// Points lists all of them, in the order of a write's way.
func Points() []Point {
	return []Point{
		{Name: "propose-before", What: "an entry is about to be handed to raft, after this node saw that it leads"},
		{Name: "log-before", What: "entries are about to be stored in the log"},
		{Name: "log-write", What: "entries are stored in the log", Asks: "the write fails; with short, half of the entries are stored"},
		{Name: "log-after", What: "entries are stored, and nobody was told"},
		{Name: "vote-before", What: "a vote is about to be stored"},
		{Name: "vote-between", What: "with M24: the term of a vote is stored, and its candidate is not"},
		{Name: "vote-after", What: "a vote is stored, and not given"},
		{Name: "stable-write", What: "a term or a vote is stored", Asks: "the write fails"},
		{Name: "apply-before", What: "an entry is about to be applied"},
		{Name: "apply-after", What: "an entry is applied, and not yet to be seen"},
		{Name: "dedupe-insert", What: "an answer is about to be remembered for its repetition"},
		{Name: "state-alter", What: "the state of this node, about to apply an entry", Asks: "the state is altered behind the digest's back"},
		{Name: "snapshot-write", What: "a snapshot is about to be written"},
		{Name: "snapshot-data", What: "a piece of a snapshot is written", Asks: "the write fails; with short, half of it is written"},
		{Name: "snapshot-rename-before", What: "a snapshot is written, and not yet under its name"},
		{Name: "snapshot-rename-after", What: "a snapshot has its name, and the log is not cut"},
		{Name: "feed-subscribe", What: "a watcher has read the history, and not subscribed"},
		{Name: "feed-send", What: "a message of a feed is about to be sent"},
		{Name: "answer-send", What: "the answer to a call is about to be sent"},
		{Name: "forward-answer", What: "the answer to a command that another node passed on is about to be sent"},
	}
}

// CheckFault says what is wrong with a list as FAULT holds it, before anything is built for it:
// a point that does not exist would never be hit.
func CheckFault(list string) error {
	if list == "" {
		return nil
	}
	for part := range strings.SplitSeq(list, ",") {
		m := regexp.MustCompile(`^([a-z-]+):(%[1-9][0-9]*|[1-9][0-9]*\+?):(panic|eio|short|hit|sleep=(.+))$`).FindStringSubmatch(strings.TrimSpace(part))
		if m == nil {
			return fmt.Errorf("the fault %q is not NAME:WHEN:DO, with WHEN 3, 3+ or %%3, and DO panic, sleep=200ms, eio, short or hit", part)
		}
		i := slices.IndexFunc(Points(), func(p Point) bool { return p.Name == m[1] })
		if i < 0 {
			return fmt.Errorf("no point %q: see list points", m[1])
		}
		if does := m[3]; Points()[i].Asks == "" && (does == "eio" || does == "short" || does == "hit") {
			return fmt.Errorf("the point %s can only panic or sleep, and not %s", m[1], does)
		}
		if d, err := time.ParseDuration(m[4]); m[4] != "" && (err != nil || d <= 0) {
			return fmt.Errorf("the fault %q: %q is no time to sleep", part, m[4])
		}
	}
	return nil
}
