package client

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	boardpb "raftboard/fsm/pb"
)

// keeper renews every loop that this client opened, and through them every lease. One
// goroutine decides when; a round per board does the sending, at most one at a time, so
// that one slow board holds up no other. A round that fails is followed by another until
// it succeeds: there is no last renewal.
type keeper struct {
	c    *Client
	wake chan struct{}

	mu     sync.Mutex
	boards map[*Board]*upkeep
}

// upkeep is what the keeper knows of one board; guarded by keeper.mu.
type upkeep struct {
	loops    map[*Loop]bool
	due      time.Time
	busy     bool
	failures int
}

// Bounds of the pace: never faster, and a round never shorter, whatever the durations.
const (
	shortestInterval = 50 * time.Millisecond
	shortestRound    = 200 * time.Millisecond
	// loopsPerCommand is what one keepalive may renew, and maxLeases what it may let go:
	// the nodes refuse more.
	loopsPerCommand = 256
)

func newKeeper(c *Client) *keeper {
	return &keeper{c: c, wake: make(chan struct{}, 1), boards: map[*Board]*upkeep{}}
}

// run launches rounds when they are due until the client closes.
func (k *keeper) run() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		timer.Reset(k.launch())
		select {
		case <-timer.C:
		case <-k.wake:
		case <-k.c.ctx.Done():
			return
		}
	}
}

// launch starts the rounds that are due and says when to look again.
func (k *keeper) launch() time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	now, next := time.Now(), time.Hour
	for b, u := range k.boards {
		switch {
		case u.busy:
		case now.Before(u.due):
			next = min(next, u.due.Sub(now))
		default:
			u.busy = true
			if !k.c.start(func() { k.round(b, u) }) {
				u.busy = false
			}
		}
	}
	return next
}

func (k *keeper) nudge() {
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

// add takes a loop into care; it was heard of at heard.
func (k *keeper) add(l *Loop, heard time.Time) {
	k.mu.Lock()
	u := k.boards[l.b]
	if u == nil {
		u = &upkeep{loops: map[*Loop]bool{}, due: heard.Add(l.ttl / 3)}
		k.boards[l.b] = u
	}
	u.loops[l] = true
	k.mu.Unlock()
	k.grew(l, heard.Add(l.ttl/3))
}

// remove takes a loop out of care; the last one takes its board along.
func (k *keeper) remove(l *Loop) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if u := k.boards[l.b]; u != nil {
		delete(u.loops, l)
		if len(u.loops) == 0 {
			delete(k.boards, l.b)
		}
	}
}

// grew says that a loop needs its next renewal by due.
func (k *keeper) grew(l *Loop, due time.Time) {
	k.mu.Lock()
	if u := k.boards[l.b]; u != nil && due.Before(u.due) {
		u.due = due
	}
	k.mu.Unlock()
	k.nudge()
}

// hurry asks for a round at once: there is a floor or a let-go that the server should
// hear of before anything is renewed again.
func (k *keeper) hurry(l *Loop) { k.grew(l, time.Now()) }

// round renews all loops of one board once.
func (k *keeper) round(b *Board, u *upkeep) {
	start := time.Now()
	k.mu.Lock()
	loops := make([]*Loop, 0, len(u.loops))
	for l := range u.loops {
		loops = append(loops, l)
	}
	u.due = start.Add(time.Hour) // what hurry sets during this round counts
	k.mu.Unlock()

	interval, left := pace(loops, start)
	ok := true
	for rest := loops; len(rest) > 0; {
		part := fitting(rest)
		rest = rest[len(part):]
		// A round ends while time is left for another: each try is shorter than what
		// the lease next to its deadline has left.
		ctx, cancel := context.WithTimeout(k.c.ctx, max(min(interval, left/2, k.c.cfg.Timeout), shortestRound))
		ans, err := b.keepalive(ctx, part)
		ok = ok && err == nil && ans.result.Code == boardpb.Code_CODE_UNSPECIFIED
		b.heartbeats(ctx, loopsOf(part))
		cancel()
	}

	k.mu.Lock()
	u.busy = false
	next := start.Add(interval)
	if ok {
		u.failures = 0
	} else {
		next = time.Now().Add(backoff(u.failures, shortestInterval, min(interval, time.Second)))
		u.failures++
	}
	if next.Before(u.due) {
		u.due = next
	}
	k.mu.Unlock()
	k.nudge()
}

// pace gives a third of the shortest ttl or duration, and the time left of the lease
// that has least.
func pace(loops []*Loop, now time.Time) (interval, left time.Duration) {
	interval, left = time.Hour, time.Hour
	for _, l := range loops {
		interval = min(interval, l.ttl/3)
		for _, lease := range l.Leases() {
			interval = min(interval, lease.duration/3)
			left = min(left, lease.Deadline().Sub(now))
		}
	}
	return max(interval, shortestInterval), left
}

// renewal is what one keepalive says of one loop: renew it and its leases granted below
// the floor, but not those it let go.
type renewal struct {
	loop  *Loop
	floor uint64
	letGo []*boardpb.LeaseRef
}

func (l *Loop) renewal() renewal {
	r := renewal{loop: l}
	if !l.attached {
		r.floor = l.win.lowest()
	}
	l.mu.Lock()
	r.letGo = append(r.letGo, l.letGo...)
	l.mu.Unlock()
	return r
}

// fitting gives as many renewals as one command may hold, of the first of loops and of at
// least one. A loop goes with everything it let go or not at all: what is left out would be
// renewed along with it.
func fitting(loops []*Loop) (part []renewal) {
	letGo := 0
	for _, l := range loops {
		r := l.renewal()
		letGo += len(r.letGo)
		if len(part) > 0 && (len(part) == loopsPerCommand || letGo > maxLeases) {
			break
		}
		part = append(part, r)
	}
	return part
}

func loopsOf(part []renewal) []*Loop {
	loops := make([]*Loop, len(part))
	for i, r := range part {
		loops[i] = r.loop
	}
	return loops
}

// keepalive sends one renewal for loops of this board, with the leases they let go, and
// moves the deadlines of the leases it covers: those granted below the floor it carried.
func (b *Board) keepalive(ctx context.Context, part []renewal) (answer, error) {
	op := &boardpb.LoopKeepalive{}
	for _, r := range part {
		op.Loops = append(op.Loops, &boardpb.LoopRenewal{Loop: r.loop.id, Floor: r.floor})
		op.LetGo = append(op.LetGo, r.letGo...)
	}
	ans, err := b.submit(ctx, &boardpb.Command{Op: &boardpb.Command_LoopKeepalive{LoopKeepalive: op}})
	if err != nil {
		return ans, err
	}
	if code := ans.result.Code; code == boardpb.Code_CODE_RESET || code == boardpb.Code_CODE_STOPPING {
		for _, r := range part {
			r.loop.end(ans.result)
		}
		return ans, nil
	}
	if ans.result.Code != boardpb.Code_CODE_UNSPECIFIED {
		return ans, nil
	}
	status := map[string]*boardpb.LoopStatus{}
	for _, s := range ans.result.Loops {
		status[s.Loop] = s
	}
	for _, r := range part {
		if s := status[r.loop.id]; s != nil && over(s) {
			r.loop.end(ans.result)
			continue
		}
		r.acknowledged(ans.sentAt)
	}
	return ans, nil
}

// over says that a loop will not come back.
func over(s *boardpb.LoopStatus) bool {
	switch s.Code {
	case boardpb.Code_CODE_LOOP_ENDED, boardpb.Code_CODE_NOT_FOUND, boardpb.Code_CODE_FORBIDDEN:
		return true
	}
	return s.State == boardpb.LoopState_LOOP_STATE_ENDED
}

// acknowledged notes that a keepalive sent at sentAt was done. What the loop let go
// meanwhile is behind what was told.
func (r renewal) acknowledged(sentAt time.Time) {
	l := r.loop
	l.mu.Lock()
	if told := len(r.letGo); told > 0 {
		l.letGo = l.letGo[slices.Index(l.letGo, r.letGo[told-1])+1:]
	}
	held := l.held()
	l.mu.Unlock()
	for _, lease := range held {
		if lease.coveredBy(r.floor) {
			lease.renewed(sentAt)
		}
	}
}

// coveredBy says whether a keepalive with this floor renews the lease.
func (l *Lease) coveredBy(floor uint64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.explicit && (l.grantSeq == 0 || l.grantSeq < floor)
}

// heartbeats renews, one by one, the leases that keepalives do not cover: granted above
// the floor because an earlier call still waits, or claimed again after being let go.
func (b *Board) heartbeats(ctx context.Context, loops []*Loop) {
	for _, l := range loops {
		floor := l.win.lowest()
		for _, lease := range l.Leases() {
			if lease.coveredBy(floor) || time.Until(lease.Deadline()) > lease.duration*2/3 {
				continue
			}
			op := &boardpb.Heartbeat{Key: lease.id.key, Generation: lease.id.generation}
			cmd := &boardpb.Command{Op: &boardpb.Command_Heartbeat{Heartbeat: op}}
			if _, err := lease.write(ctx, cmd); errors.Is(err, ErrUnavailable) {
				return // the next round tries again
			}
		}
	}
}
