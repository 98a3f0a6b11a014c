package demo

import (
	"strings"
	"testing"

	boardpb "raftboard/fsm/pb"
)

// story is a small run in which everything held: two items, one of them reclaimed after a late write.
type story struct {
	acks   map[string][]Ack
	events []*boardpb.Event
	alone  Totals
}

func goodStory() *story {
	a, b := Count{1, 2, 3, "aa"}, Count{4, 5, 6, "bb"}
	return &story{
		alone: total(map[string]Count{"claims/f-1": a, "claims/f-2": b}),
		acks: map[string][]Ack{
			"parent": {{At: 0, Kind: Posted, Key: "claims/f-1"}, {At: 1e6, Kind: Posted, Key: "claims/f-2"}},
			"worker-1": {
				{At: 2e6, Kind: Claimed, Key: "claims/f-1", Generation: 1},
				{At: 3e6, Kind: Completing, Key: "claims/f-1", Generation: 1, Count: &a},
				{At: 9e6, Kind: Refused, Key: "claims/f-1", Generation: 1, Code: "stale_lease"},
				{At: 10e6, Kind: Completing, Key: "claims/f-2", Generation: 1, Count: &b},
				{At: 11e6, Kind: Completed, Key: "claims/f-2", Generation: 1},
			},
			"worker-2": {
				{At: 5e6, Kind: Completing, Key: "claims/f-1", Generation: 2, Count: &a},
				{At: 6e6, Kind: Completed, Key: "claims/f-1", Generation: 2},
			},
		},
		events: []*boardpb.Event{
			{Rev: 1, Kind: boardpb.Kind_KIND_POST, Key: "claims/f-1"},
			{Rev: 2, Kind: boardpb.Kind_KIND_POST, Key: "claims/f-2"},
			{Rev: 3, Kind: boardpb.Kind_KIND_LEASE_EXPIRED, Key: "claims/f-1"},
			{Rev: 4, Kind: boardpb.Kind_KIND_RECLAIM, Key: "claims/f-1", Generation: 2},
			{Rev: 5, Kind: boardpb.Kind_KIND_COMPLETE, Key: "claims/f-1", Generation: 2, Author: "worker-2"},
			{Rev: 5, Sub: 1, Kind: boardpb.Kind_KIND_SET, Key: "results/worker-2/f-1"},
			{Rev: 6, Kind: boardpb.Kind_KIND_FENCE_REJECTED, Key: "claims/f-1"},
			{Rev: 7, Kind: boardpb.Kind_KIND_COMPLETE, Key: "claims/f-2", Generation: 1, Author: "worker-1"},
		},
	}
}

func (s *story) judged() *Report {
	feed := newFeedTally()
	for _, e := range s.events {
		feed.add(e)
	}
	r := judge(2, s.alone, s.acks, feed, 1)
	r.expectFaults(s.acks)
	return r
}

func TestAGoodRunPasses(t *testing.T) {
	r := goodStory().judged()
	if !r.Passed() || r.Completed != 2 || r.FencedWrites != 1 || r.Reclaims != 1 || r.LongestPauseMS != 5 || !r.TotalsMatch {
		t.Errorf("%+v", r)
	}
}

func TestEveryBrokenPromiseIsNamed(t *testing.T) {
	cases := map[string]struct {
		spoil func(*story)
		says  string
	}{
		"completed twice": {func(s *story) {
			s.events = append(s.events, &boardpb.Event{Rev: 8, Kind: boardpb.Kind_KIND_COMPLETE, Key: "claims/f-2",
				Generation: 2, Author: "worker-2"})
		}, "completed 2 times"},
		"an acknowledged completion is not in the feed": {func(s *story) {
			s.acks["worker-1"] = append(s.acks["worker-1"], Ack{Kind: Completed, Key: "claims/f-1", Generation: 7})
		}, "acknowledged as completed"},
		"an acknowledged post is not in the feed": {func(s *story) {
			s.events[1].Kind = boardpb.Kind_KIND_SET
		}, "acknowledged as posted"},
		"an item was never completed": {func(s *story) {
			s.events = s.events[:7]
			s.acks["worker-1"] = s.acks["worker-1"][:4]
		}, "1 of 2 items"},
		"a refused write took effect": {func(s *story) {
			s.acks["worker-2"] = append(s.acks["worker-2"], Ack{Kind: Refused, Key: "claims/f-1", Generation: 2})
		}, "refused and took effect"},
		"nothing was refused": {func(s *story) {
			s.events[6].Kind = boardpb.Kind_KIND_LOOP_OPEN
		}, "no late write"},
		"nothing was reclaimed": {func(s *story) {
			s.events[3].Kind = boardpb.Kind_KIND_CLAIM
		}, "claimed again"},
		"a worker counted wrongly": {func(s *story) {
			s.acks["worker-2"][0].Count = &Count{1, 2, 3, "ab"}
		}, "totals differ"},
		"the feed has a gap": {func(s *story) {
			s.events = append(s.events[:2], s.events[3:]...)
		}, "4.0 after 2.0"},
	}
	for name, c := range cases {
		s := goodStory()
		c.spoil(s)
		r := s.judged()
		if r.Passed() || !strings.Contains(strings.Join(r.Problems, "\n"), c.says) {
			t.Errorf("%s: the judge says %q, want something with %q", name, r.Problems, c.says)
		}
	}
}

func TestTheEmbeddedCollectionIsUnpackedAndCounted(t *testing.T) {
	dir := t.TempDir()
	if err := unpack(dir); err != nil {
		t.Fatal(err)
	}
	names, err := files(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(names) < 40 {
		t.Errorf("%d files", len(names))
	}
	totals, err := countAlone(t.Context(), dir, names)
	if err != nil {
		t.Fatal(err)
	}
	if totals.Files != len(names) || totals.Words < 1000 {
		t.Errorf("%+v", totals)
	}
}

func TestCountingIsThatOfWc(t *testing.T) {
	c, err := countAll(strings.NewReader("one two\n three\t\n\nfour"))
	if err != nil {
		t.Fatal(err)
	}
	want := Count{Lines: 3, Words: 4, Bytes: 21, SHA256: c.SHA256}
	if c != want || len(c.SHA256) != 64 {
		t.Errorf("got %+v, want %+v", c, want)
	}
}

func TestACutOffLineOfAKilledWorkerIsNoAcknowledgement(t *testing.T) {
	dir := t.TempDir()
	l, err := openAckLog(dir + "/w.acks")
	if err != nil {
		t.Fatal(err)
	}
	if err := l.append(Ack{Kind: Claimed, Key: "claims/f-1", Generation: 1}); err != nil {
		t.Fatal(err)
	}
	if _, err := l.f.WriteString(`{"kind":"completed","key":"cla`); err != nil {
		t.Fatal(err)
	}
	l.close()
	logs, err := readAckLogs(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(logs["w"]) != 1 || logs["w"][0].Kind != Claimed {
		t.Errorf("%+v", logs)
	}
}
