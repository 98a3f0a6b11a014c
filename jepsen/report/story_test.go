package report_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	boardpb "raftboard/fsm/pb"
	"raftboard/jepsen/check"
	"raftboard/jepsen/history"
	"raftboard/jepsen/report"
)

// tells asserts that a story has its parts in order, and is short.
func tells(t *testing.T, story string, parts ...string) {
	t.Helper()
	rest := story
	for _, part := range parts {
		_, after, found := strings.Cut(rest, part)
		if !found {
			t.Errorf("the story does not say %q (there):\n%s", part, story)
			return
		}
		rest = after
	}
	if n := len(regexp.MustCompile(`(?m)^[* ] +\d+\.\d{3}  `).FindAllString(story, -1)); n > 22 {
		t.Errorf("the story lists %d moments", n)
	}
}

func TestAStaleReadIsToldWithWhatWasWrittenBeforeIt(t *testing.T) {
	h := registers(40, true)
	tells(t, report.Story(h, check.Whole(h)), "FAILED by R1: key reg/a is not linearizable",
		"client-1: set reg/a := \"v.40\" if version 39 → ok after 5 ms: ok, version 40, rev 40 (operation 79)", "entry 40, term 2",
		"*", "client-3: get reg/a, asked of n2 → ok after 5 ms: ok, version 39", "(operation 81)")
}

func TestALateHandInIsToldWithWhoHeldTheItem(t *testing.T) {
	b := newHand("work")
	b.claim("w1", "claims/a", 1, 100)
	b.now += 200 * time.Millisecond
	b.kill("n1", "n3 leads in term 3")
	b.claim("w2", "claims/a", 2, 10_000)
	b.complete("w1", "claims/a", 1, false)
	h := b.done()
	h.Roles = append(h.Roles, history.Role{Node: "n3", Life: 1, At: h.Faults[0].Start + 30*time.Millisecond, Term: 3, Role: "leader"})
	j := check.Whole(h)
	at := slices.IndexFunc(j.Findings, func(f check.Finding) bool { return f.Checker == "Q2" })
	if at < 0 {
		t.Fatalf("Q2 did not fire: %v", j.Findings)
	}
	j.Findings = j.Findings[at:]
	tells(t, report.Story(h, j), "Q2", "w1/1: claim_next claims/*", "FAULT kill of n1 begins; n3 leads in term 3", "LEADER in term 3 is n3",
		"w2/1: claim_next", "*", "w1/1: complete claims/a under generation 1", "Who held it", "generation 1, held by w1", "expired", "generation 2, held by w2")
}

func TestAnEntryThatDiffersIsToldAsEachNodeRecordedIt(t *testing.T) {
	h := registers(10, false)
	odd := slices.IndexFunc(h.Applied, func(a history.Applied) bool { return a.Node == "n2" && a.Index == 4 })
	h.Applied[odd].Digest = "feedfeedfeedfeedfeed"
	h.Applied[slices.IndexFunc(h.Applied, func(a history.Applied) bool { return a.Node == "n3" && a.Index == 6 })].Term = 9
	tells(t, report.Story(h, check.Whole(h)), "FAILED by G1", "The first entry that is not the same everywhere is 4",
		"n1 (life 1), n3 (life 1):", "4.0, term 2", "set reg/a := \"v.4\"", "n2 (life 1):", "state behind it feedfeedfeed…")

	h = registers(10, false)
	h.Applied = slices.DeleteFunc(h.Applied, func(a history.Applied) bool { return a.Node == "n2" && a.Index == 5 })
	tells(t, report.Story(h, check.Whole(h)), "G1", "The first entry that is not the same everywhere is 5", "n2 (life 1):\n    nothing, though it applied entries before and after it")
}

func TestACycleIsToldAndDrawn(t *testing.T) {
	b := newHand("txn")
	for _, client := range []string{"client-1", "client-2"} {
		b.op(history.Op{Client: client, Kind: history.Txn, Args: history.Args{Parts: []history.Part{{Do: history.Append, Key: "list/a", Value: client}}}, Outcome: history.OK,
			Result: history.Result{Answer: "ok", Seen: []history.Seen{{Key: "list/a", Items: []string{"a", "b", "c", "d", "e", "f"}}}}})
	}
	h := b.done()
	j := check.Judgement{Verdict: check.FAILED, Findings: []check.Finding{{Checker: "T2", Class: check.Violation, Ops: []uint64{1, 2},
		What: "G1c, circular information flow\n  1 is before 2: that read list/a\n  2 is before 1: that read list/b\n  so no order of them explains what they saw"}}}
	tells(t, report.Story(h, j), "FAILED by T2: G1c, circular information flow", "2 is before 1: that read list/b",
		"* ", "client-1: txn [append list/a client-1] → ok", "* ", "client-2: txn [append list/a client-2] → ok after 5 ms: ok, saw list/a = (… 2 before, c, d, e, f)")
	text := section(t, page(t, h, j), "story")
	if strings.Count(text, `class="ringnode"`) != 2 || !strings.Contains(text, "<title>2 is before 1: that read list/b</title>") {
		t.Errorf("the cycle is not drawn with why: %s", text)
	}
	j.Findings[0].What = "G1a, an aborted read: client-1 read x"
	if text := page(t, h, j); strings.Contains(text, `class="ringnode"`) || strings.Contains(report.Story(h, j), "2 is before 1") {
		t.Error("what is no cycle is drawn as one")
	}
}

func TestAGapInTheFeedIsToldAndMarked(t *testing.T) {
	for name, c := range map[string]struct {
		revs    []uint64
		checker string
		story   string
		marks   int
	}{
		"a gap":         {[]uint64{1, 2, 4, 5}, "F3", "told of rev 4.0: set reg/a", 1},
		"a repeat":      {[]uint64{1, 2, 2, 3}, "F2", "told of rev 2.0: set reg/a", 1},
		"a step back":   {[]uint64{1, 3, 2, 4}, "F1", "told of rev 3.0: set reg/a", 2},
		"nothing wrong": {[]uint64{5, 6, 7}, "F10", "told of rev 7.0: set reg/a", 0},
	} {
		b := newHand("feed")
		b.set("client-1", "reg/a", "1", 1)
		for _, rev := range c.revs {
			b.event("watcher-1", rev)
			b.event("watcher-10", 20+uint64(len(b.h.Feed)))
		}
		h := b.done()
		h.Feed = slices.DeleteFunc(h.Feed, func(w history.Told) bool { return w.Watcher == "watcher-10" && w.Event.Rev != 21 })
		j := check.Judgement{Verdict: check.FAILED, Findings: []check.Finding{{Checker: c.checker, Class: check.Violation, What: "watcher watcher-1 was told wrong"}}}
		tells(t, report.Story(h, j), c.checker, "What watcher-1 was told", "*", c.story)
		if n := strings.Count(section(t, page(t, h, j), "feed"), `class="refused"`); n != c.marks {
			t.Errorf("%s: %d marks, want %d", name, n, c.marks)
		}
	}
}

func TestAWatcherOfSomeKeysAndOneThatAsksAnewHaveNoGaps(t *testing.T) {
	b := newHand("feed")
	told := func(x history.Told) {
		x.Watcher, x.Board, x.At = "w", aBoard, b.now
		b.h.Feed = append(b.h.Feed, x)
	}
	told(history.Told{Asked: &history.Asked{Mode: "from", From: 1, Patterns: []string{"reg/*"}}})
	b.event("w", 2)
	b.event("w", 9)
	told(history.Told{Asked: &history.Asked{Mode: "from", From: 4, Patterns: []string{"**"}}})
	b.event("w", 4)
	told(history.Told{Cut: "compacted", Code: "compacted"})
	b.event("w", 30)
	text := section(t, page(t, b.done(), check.Judgement{}), "feed")
	if strings.Contains(text, `class="refused"`) || strings.Count(text, `class="said"`) != 1 {
		t.Errorf("want one gap that the feed told of, and no other: %s", text)
	}
}

func TestRefusedWritesAreCrossesInTheLaneOfWhoWroteThem(t *testing.T) {
	b := newHand("work")
	b.claim("w1", "claims/a", 1, 100)
	b.now += 200 * time.Millisecond
	b.claim("w2", "claims/a", 2, 10_000)
	b.complete("w1", "claims/a", 1, true)
	b.h.Outside = []history.Outside{{Client: "w1/1", Key: "claims/a", Generation: 1, Greatest: 2, At: b.now}, {Client: "w2/1", Key: "claims/a", Generation: 2, Accepted: true, At: b.now}}
	h := b.done()
	j := check.Whole(h)
	text := section(t, page(t, h, j), "leases")
	for want, n := range map[string]int{`class="refused"`: 4, `class="window expired"`: 2, `class="window open"`: 2, "turned away outside the cluster": 2} {
		if got := strings.Count(text, want); got != n {
			t.Errorf("%s: %d times, want %d, in the lanes of holders and of keys together", want, got, n)
		}
	}
	if counts := section(t, page(t, h, j), "counts"); !strings.Contains(counts, "1 write of a holder that was one no more, and 1 turned away") {
		t.Errorf("the fence refusals are not counted: %s", counts)
	}
}

func TestEachElementIsDrawnByItsFate(t *testing.T) {
	b := newHand("append")
	for i, value := range []string{"a", "b", "c", "d"} {
		outcome := history.OK
		if i == 3 {
			outcome = history.Info
		}
		b.op(history.Op{Client: "client-1", Kind: history.Append, Key: "list/1", Args: history.Args{Value: value}, Outcome: outcome})
	}
	for i, value := range []string{"a", "c"} {
		b.h.Finals = append(b.h.Finals, history.Final{Reader: "reader-of-n1", Board: aBoard, Entry: &boardpb.Entry{Key: "list/1", Version: uint64(i + 1), Value: []byte(value)}})
	}
	h := b.done()
	j := check.Whole(h)
	if j.Verdict != check.FAILED {
		t.Errorf("an element was lost, and the run is %s", j.Verdict)
	}
	text := section(t, page(t, h, j), "append")
	for _, want := range []string{`class="element ok"`, `class="element lost"`, "operation 2 at 0.020 s: lost middle", `class="element absent"`,
		`<tr><td>lost middle</td><td class="n bad">1</td></tr>`, `<tr><td>lost prefix</td><td class="n">0</td></tr>`} {
		if !strings.Contains(text, want) {
			t.Errorf("the plot lacks %s: %s", want, text)
		}
	}
}
