package client_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"raftboard/client"
	wirepb "raftboard/transport/pb"
)

func TestT17AWorkerThatIsToldToStopFinishesTheItemAtHandAndClaimsNoMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, "n1:1")
		var mu sync.Mutex
		var order []string
		var renewedLast time.Time
		s.nodes["n1:1"].play(func(c *call) *wirepb.SessionResponse {
			mu.Lock()
			defer mu.Unlock()
			switch {
			case c.cmd.GetClaimNext() != nil:
				order = append(order, "claim")
				res := granted("claims/x", 1, 5000)
				res.Value = []byte(`"item"`)
				return c.applied(res)
			case c.cmd.GetComplete() != nil:
				order = append(order, "complete")
			case c.cmd.GetLoopClose() != nil:
				order = append(order, "close")
			case c.cmd.GetLoopKeepalive() != nil:
				renewedLast = time.Now()
			}
			return c.routine()
		})
		c := s.client(client.Config{}, "n1:1")
		ctx, stop := context.WithCancel(context.Background())
		start := time.Now()
		time.AfterFunc(time.Second, stop)
		err := c.Board("default").Work(ctx, client.WorkOptions{Pattern: "claims/*", Duration: 5 * time.Second},
			func(ctx context.Context, item *client.Lease) (client.Done, error) {
				select {
				case <-time.After(13 * time.Second): // 12 s after the signal
				case <-ctx.Done():
					t.Errorf("the work was cut off: %v", context.Cause(ctx))
				}
				return client.Done{Result: item.Value()}, nil
			})
		if err != nil {
			t.Errorf("Work: %v", err)
		}
		mu.Lock()
		defer mu.Unlock()
		if want := "claim complete close"; want != join(order) {
			t.Errorf("the server saw %q, want %q", join(order), want)
		}
		if last := renewedLast.Sub(start); last < 11*time.Second {
			t.Errorf("last renewed %v after the claim: the lease did not live for all the work", last)
		}
	})
}

func join(words []string) string {
	out := ""
	for i, w := range words {
		if i > 0 {
			out += " "
		}
		out += w
	}
	return out
}

func TestAnItemThatFailsAgainAndAgainIsPutOffLongerEachTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, "n1:1")
		var mu sync.Mutex
		var put []int64
		s.nodes["n1:1"].play(func(c *call) *wirepb.SessionResponse {
			mu.Lock()
			defer mu.Unlock()
			if c.cmd.GetClaimNext() != nil {
				res := granted("claims/x", uint64(len(put)+1), 5000)
				res.Attempts = uint32(len(put) + 1)
				return c.applied(res)
			}
			if f := c.cmd.GetFail(); f != nil {
				put = append(put, f.RetryAfterMs)
			}
			return c.routine()
		})
		ctx, stop := context.WithCancel(context.Background())
		err := s.client(client.Config{}, "n1:1").Board("default").Work(ctx, client.WorkOptions{Pattern: "claims/*"},
			func(context.Context, *client.Lease) (client.Done, error) {
				mu.Lock()
				defer mu.Unlock()
				if len(put) == 11 {
					stop()
				}
				return client.Done{}, errors.New("no such file")
			})
		if err != nil {
			t.Errorf("Work: %v", err)
		}
		want := []int64{1000, 2000, 4000, 8000, 16000, 32000, 64000, 128000, 256000, 300000, 300000, 300000}
		if !slices.Equal(put, want) {
			t.Errorf("put off for %v ms, want %v", put, want)
		}
	})
}
