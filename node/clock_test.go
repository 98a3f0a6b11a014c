package node

import (
	"testing"
	"time"
)

// handClock is a source that only moves when it is told to.
type handClock struct {
	mono time.Duration
	wall time.Time
}

func runningClock() (*boardClock, *handClock) {
	h := &handClock{wall: time.UnixMilli(1_000_000)}
	c := newBoardClock(Clock{Wall: func() time.Time { return h.wall }, Mono: func() time.Duration { return h.mono }})
	c.start(3, 5000, 0)
	return c, h
}

func (h *handClock) pass(c *boardClock, each time.Duration, times int) {
	for range times {
		h.mono += each
		h.wall = h.wall.Add(each)
		c.sample()
	}
}

func boardTime(t *testing.T, c *boardClock) int64 {
	t.Helper()
	at, _, state := c.stamp(3)
	if state != stamped {
		t.Fatalf("no stamp: %v", state)
	}
	return at
}

func TestBoardTimeIsTheTimeAppliedPlusWhatPassedSince(t *testing.T) {
	c, h := runningClock()
	h.pass(c, 100*time.Millisecond, 70)
	if got := boardTime(t, c); got != 12000 {
		t.Errorf("board time %d, expected 12000", got)
	}
}

func TestAStepBetweenSamplesCountsAtMostHalfASecond(t *testing.T) {
	c, h := runningClock()
	h.pass(c, 1200*time.Millisecond, 1)
	if got := boardTime(t, c); got != 5500 {
		t.Errorf("board time %d after a step of 1.2 s, expected 5500", got)
	}
}

func TestALongPauseIsStampedOnlyAfterAResumedLead(t *testing.T) {
	c, h := runningClock()
	h.mono += 10 * time.Second
	if _, _, state := c.stamp(3); state != stalled {
		t.Fatalf("a stamp after a pause of 10 s: %v, expected none", state)
	}
	c.start(3, 5100, 0)
	if got := boardTime(t, c); got != 5100 {
		t.Errorf("board time %d after the Lead, expected the time applied", got)
	}
}

func TestBoardTimeStandsStillWhileAProposalIsOld(t *testing.T) {
	c, h := runningClock()
	id := c.begin()
	h.pass(c, 100*time.Millisecond, 12)
	if got := boardTime(t, c); got != 5500 {
		t.Errorf("board time %d with a proposal of 1.2 s, expected 5500", got)
	}
	c.finish(id)
	h.pass(c, 100*time.Millisecond, 1)
	if got := boardTime(t, c); got != 5600 {
		t.Errorf("board time %d after the stall, expected 5600", got)
	}
}

func TestAProposalThatFinishesIsSampledWhileItStillCounts(t *testing.T) {
	c, h := runningClock()
	id := c.begin()
	h.mono += 900 * time.Millisecond // no sample in between
	c.finish(id)
	if got := boardTime(t, c); got != 5500 {
		t.Errorf("board time %d, expected 5500: the stall was not cut", got)
	}
}

func TestShortStallsDoNotAddUpToALongOne(t *testing.T) {
	c, h := runningClock()
	for range 20 {
		h.pass(c, 900*time.Millisecond, 1)
		h.pass(c, 100*time.Millisecond, 1)
	}
	if got := boardTime(t, c); got != 5000+20*600 {
		t.Errorf("board time %d, expected %d", got, 5000+20*600)
	}
}

func TestAStallOfManySamplesIsOneStall(t *testing.T) {
	c, h := runningClock()
	id := c.begin()
	h.pass(c, 100*time.Millisecond, 30)
	c.finish(id)
	if _, _, state := c.stamp(3); state != stalled {
		t.Errorf("after a stall of 3 s: %v, expected that a Lead is asked for", state)
	}
}

func TestT27AWallClockThatStepsMovesNoBoardTimeAndIsNeverShownGoingBack(t *testing.T) {
	c, h := runningClock()
	_, before, _ := c.stamp(3)
	h.wall = h.wall.Add(-time.Hour)
	h.mono += 100 * time.Millisecond
	at, after, _ := c.stamp(3)
	if at != 5100 || after < before {
		t.Errorf("board time %d, wall time %d after %d", at, after, before)
	}
	h.wall = h.wall.Add(3 * time.Hour)
	if at, _, _ := c.stamp(3); at != 5100 {
		t.Errorf("board time %d after the wall clock jumped ahead, expected 5100", at)
	}
}

func TestNoStampInATermWhoseLeadIsNotApplied(t *testing.T) {
	c, _ := runningClock()
	if _, _, state := c.stamp(4); state != notRunning {
		t.Errorf("a stamp in another term: %v", state)
	}
	c.stop()
	if _, _, state := c.stamp(3); state != notRunning {
		t.Errorf("a stamp after the leadership ended: %v", state)
	}
}
