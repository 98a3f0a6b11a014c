package workload

import (
	"context"
	"math/rand/v2"
	"time"
)

// Four conflicts in a row hardly happen to callers that keep out of each other's way. So now
// and then all of them change one key at the same instant, several times back to back: one
// of them wins each round, and the last of five has conflicted four times.
const (
	firstRush  = 800 * time.Millisecond // before the first fault of the shortest run
	rushEvery  = 2500 * time.Millisecond
	rushSpread = 1500 * time.Millisecond
	rushTimes  = 4
)

// rushes are these instants. They follow from the seed, so that clients meet without a word
// to each other, and none waits for one that is still waiting for an answer.
type rushes struct {
	began time.Duration // by the clock of the log
	seed  uint64
	keys  int
}

// nth says when a rush is, and on which of the keys in use.
func (r rushes) nth(n int) (at time.Duration, key int) {
	dice := rand.New(rand.NewPCG(r.seed, uint64(n)<<32|1))
	at = r.began + firstRush + time.Duration(n)*rushEvery
	if n > 0 {
		at += time.Duration(dice.Int64N(int64(rushSpread)))
	}
	return at, dice.IntN(r.keys)
}

// nextRush is how long a client has to wait for the next rush. One whose time has passed while the
// client was busy is left out.
func (u *user) nextRush() (wait time.Duration, key int) {
	for ; ; u.rushed++ {
		at, key := u.rushes.nth(u.rushed)
		if wait = at - u.env.Log.Now(); wait >= 0 {
			return wait, key
		}
	}
}

// idle waits for a while; if a rush begins meanwhile, it takes part in that.
func (u *user) idle(ctx context.Context, pause time.Duration) bool {
	wait, key := u.nextRush()
	if wait > pause {
		return rest(ctx, pause)
	}
	if !rest(ctx, wait) {
		return false
	}
	u.rushed++
	for range rushTimes {
		if ctx.Err() != nil {
			return false
		}
		u.patiently(ctx, func(ctx context.Context) { u.mutate(ctx, register(u.keys, key)) })
	}
	return true
}
