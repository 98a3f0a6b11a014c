package sim_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"raftboard/jepsen/check"
	"raftboard/jepsen/history"
	"raftboard/jepsen/nemesis"
	"raftboard/jepsen/sim"
)

// under runs do on a cluster of three, in a bubble.
func under(t *testing.T, o sim.Options, do func(t *testing.T, r *sim.Run, h *nemesis.Hand)) {
	synctest.Test(t, func(t *testing.T) {
		o.Dir = t.TempDir()
		log := history.NewLog(history.Run{Driver: "sim"})
		r, err := sim.Open(log, o)
		if r != nil {
			t.Cleanup(r.Close)
		}
		if err != nil {
			t.Fatal(err)
		}
		admin, err := r.Dial("admin", 0)
		if err != nil {
			t.Fatal(err)
		}
		defer admin.Close()
		if _, err := admin.CreateBoard(t.Context(), "faults", nil); err != nil {
			t.Fatal(err)
		}
		do(t, r, &nemesis.Hand{Target: r, Log: log, Dice: nemesis.NewDice(1), Timeout: time.Second, Admin: admin.Cluster(), Ask: r.Ask, Tail: log.Tail})
	})
}

func must(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// write puts one more entry into the log, through a client of its own that asks anybody.
func write(t *testing.T, r *sim.Run, patience time.Duration) error {
	t.Helper()
	c, err := r.Dial("writer", 0)
	must(t, err)
	defer c.Close()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	_, err = c.CreateBoard(ctx, fmt.Sprintf("b%d", time.Now().UnixNano()), nil)
	return err
}

func status(r *sim.Run, i int) (nemesis.Status, error) { return r.Status(context.Background(), i) }

func leading(t *testing.T, r *sim.Run, but ...int) int {
	t.Helper()
	for range 600 {
		for i := range r.Nodes() {
			if s, err := status(r, i); err == nil && s.Leader && !slices.Contains(but, i) {
				return i
			}
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Fatal("nobody leads")
	return 0
}

func TestAKilledNodeIsSilentAndBeginsAnotherLifeOnWhatItHad(t *testing.T) {
	under(t, sim.Options{}, func(t *testing.T, r *sim.Run, h *nemesis.Hand) {
		n := leading(t, r)
		before, err := status(r, n)
		must(t, err, r.Kill(n), r.Kill(n))
		if _, err := status(r, n); err == nil {
			t.Error("a dead node says something")
		}
		if next := leading(t, r, n); next == n {
			t.Error("the dead node leads")
		}
		must(t, write(t, r, 10*time.Second), r.Start(n), r.Start(n), h.Mend(t.Context()), h.Level(t.Context()))
		after, err := status(r, n)
		if err != nil || after.NodeID != before.NodeID || after.Applied <= before.Applied {
			t.Errorf("it was %+v and is %+v, %v", before, after, err)
		}
		must(t, r.Stop(n), r.Stop(n))
		if _, err := status(r, n); err == nil {
			t.Error("a node that was stopped says something")
		}
	})
}

func TestAPausedLeaderIsSilentAndGoesOnAsOneThatHeardNothing(t *testing.T) {
	under(t, sim.Options{}, func(t *testing.T, r *sim.Run, h *nemesis.Hand) {
		n := leading(t, r)
		before, err := status(r, n)
		must(t, err)
		applied := func() (count int) {
			for _, a := range r.Log.History().Applied {
				if a.Node == r.Nodes()[n] {
					count++
				}
			}
			return count
		}
		had := applied()
		written := make(chan error, 1)
		go func() { written <- write(t, r, 20*time.Second) }()
		must(t, r.Pause(n), r.Pause(n))
		if _, err := status(r, n); err == nil {
			t.Error("a paused node says something")
		}
		if err := r.Stop(n); err == nil {
			t.Error("a paused node was stopped gracefully")
		}
		next := leading(t, r, n)
		must(t, write(t, r, 10*time.Second))
		if has := applied(); has > had+1 {
			t.Errorf("it had applied %d commands, and while it was paused came to %d", had, has)
		}
		must(t, r.Resume(n), r.Resume(n))
		if _, err := status(r, n); err != nil {
			t.Errorf("it went on and says nothing: %v", err)
		}
		must(t, <-written, h.Mend(t.Context()), h.Level(t.Context()))
		if s, err := status(r, next); err != nil || s.Term <= before.Term {
			t.Errorf("%+v, %v", s, err)
		}
		must(t, r.Pause(n), r.Kill(n), h.Mend(t.Context())) // a paused process can be killed
	})
}

func TestAPowerLossOfAllKeepsWhatWasAcknowledged(t *testing.T) {
	under(t, sim.Options{}, func(t *testing.T, r *sim.Run, h *nemesis.Hand) {
		must(t, write(t, r, 10*time.Second), r.PowerOff(2, 0, 1))
		for i := range 3 {
			if _, err := status(r, i); err == nil {
				t.Errorf("node %d has no power and says something", i)
			}
		}
		must(t, h.Mend(t.Context()), h.Level(t.Context()))
		c, err := r.Dial("reader", 1)
		must(t, err)
		defer c.Close()
		boards, err := c.Cluster().Nodes(t.Context())
		must(t, err)
		if len(boards.Nodes) != 3 {
			t.Errorf("the cluster has %d nodes", len(boards.Nodes))
		}
	})
}

func TestALinkThatIsCutCountsWhatItHoldsAndMovesLeadership(t *testing.T) {
	under(t, sim.Options{}, func(t *testing.T, r *sim.Run, h *nemesis.Hand) {
		n := leading(t, r)
		before, _ := status(r, n)
		for i := range 3 {
			if i != n {
				must(t, r.Link(n, i, nemesis.Shape{Cut: true}), r.Link(i, n, nemesis.Shape{Hold: true}))
			}
		}
		next := leading(t, r, n)
		if s, _ := status(r, next); s.Term <= before.Term {
			t.Errorf("the leader of term %d was cut off, and term %d is led", before.Term, s.Term)
		}
		if lost, err := r.Lost(n); lost == 0 || err != nil {
			t.Errorf("%d chunks were held, %v", lost, err)
		}
		must(t, r.Break(nemesis.Clients, n), h.Mend(t.Context()), h.Level(t.Context()))
		if err := r.Link(n, n, nemesis.Shape{}); err == nil {
			t.Error("a node was linked to itself")
		}
		if err := r.Link(n, 7, nemesis.Shape{}); err == nil {
			t.Error("a node that is not there was linked")
		}
	})
}

func TestAClientThatIsFrozenReachesNobodyAndIsReachedByNobody(t *testing.T) {
	under(t, sim.Options{}, func(t *testing.T, r *sim.Run, _ *nemesis.Hand) {
		thaw := r.Freeze("writer")
		if err := write(t, r, 5*time.Second); err == nil {
			t.Error("a frozen client wrote")
		}
		thaw()
		must(t, write(t, r, 10*time.Second))
	})
}

func TestANodeThatEndsItselfIsToldOnceOrNoted(t *testing.T) {
	for name, f := range map[string]nemesis.DiskFault{"full": {Full: true}, "failing": {Error: true}, "cut short": {Short: true}} {
		t.Run(name, func(t *testing.T) {
			under(t, sim.Options{}, func(t *testing.T, r *sim.Run, h *nemesis.Hand) {
				for _, asked := range []bool{true, false} {
					n := leading(t, r)
					must(t, r.Disk(n, f))
					_ = write(t, r, time.Second) // its outcome is nobody's business
					leading(t, r, n)
					time.Sleep(time.Minute)
					if _, err := status(r, n); err == nil {
						t.Error("it goes on")
					}
					if asked && r.Died(n) == nil {
						t.Error("nobody was told")
					}
					if asked && r.Died(n) != nil {
						t.Error("it was told twice")
					}
					must(t, r.Disk(n, nemesis.DiskFault{}), h.Mend(t.Context()))
				}
				r.NoteDeaths()
				notes := r.Log.History().Notes
				if len(notes) != 1 || notes[0].Kind != history.NoteDied {
					t.Errorf("notes are %+v", notes)
				}
			})
		})
	}
}

// What systemd would do is done: a node that a bad disk ended runs again, also when its end
// comes seconds after the fault, and the end stands in the history as the doing of the fault.
func TestANodeThatABadDiskEndedIsStartedAgainAndNobodyIsBlamed(t *testing.T) {
	under(t, sim.Options{}, func(t *testing.T, r *sim.Run, h *nemesis.Hand) {
		kinds, err := nemesis.ByName("disk")
		must(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		var group sync.WaitGroup
		group.Go(func() {
			for ctx.Err() == nil {
				_ = write(t, r, time.Second) // its outcome is nobody's business
				time.Sleep(50 * time.Millisecond)
			}
		})
		end := h.Supervise(ctx)
		nemesis.Play(ctx, h, kinds, 2*time.Minute)
		end()
		cancel()
		group.Wait()
		r.NoteDeaths()
		ended := 0
		for _, f := range r.Log.History().Faults {
			switch {
			case f.Witness == "":
				t.Errorf("a fault shows nothing: %+v", f)
			case f.Name == "ended" && f.Nemesis == "N10" && f.End >= f.Start+2*time.Second:
				ended++
			}
		}
		if notes := r.Log.History().Notes; ended == 0 || len(notes) > 0 {
			t.Errorf("%d nodes ended over their disk and were started again; notes: %+v", ended, notes)
		}
		must(t, h.Mend(t.Context()))
	})
}

// A node may come back on a damaged log and find the damage later, also while the nemesis asks
// it how it is. That is told by the fault, and whoever cannot be started is replaced.
func TestWhatIsDamagedIsFoundSoonOrLateAndTheNodeIsReplaced(t *testing.T) {
	under(t, sim.Options{Compact: true}, func(t *testing.T, r *sim.Run, h *nemesis.Hand) {
		kinds, err := nemesis.ByName("corrupt")
		must(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		var group sync.WaitGroup
		group.Go(func() {
			for ctx.Err() == nil {
				_ = write(t, r, time.Second) // its outcome is nobody's business
				time.Sleep(20 * time.Millisecond)
			}
		})
		end := h.Supervise(ctx)
		nemesis.Play(ctx, h, kinds, 2*time.Minute)
		must(t, h.Mend(t.Context()))
		end()
		cancel()
		group.Wait()
		r.NoteDeaths()
		for _, f := range r.Log.History().Faults {
			if f.Witness == "" {
				t.Errorf("a fault shows nothing: %+v", f)
			}
		}
		if notes := r.Log.History().Notes; len(notes) > 0 {
			t.Errorf("notes: %+v", notes)
		}
	})
}

// lowest are dice that always draw the first. Zero they may not say: drawing evenly would ask for ever.
type lowest struct{}

func (lowest) Uint64() uint64 { return 1 << 40 }

// To say how it is a node reads the oldest entry of its log. If that is damaged it ends, and
// with a process all goroutines end; whoever asked is none of them.
func TestANodeThatEndsOverAQuestionDoesNotTakeTheAskerWithIt(t *testing.T) {
	under(t, sim.Options{Compact: true}, func(t *testing.T, r *sim.Run, h *nemesis.Hand) {
		n := (leading(t, r) + 1) % 3
		for first := uint64(0); first < 2; time.Sleep(100 * time.Millisecond) { // its oldest entry is behind a snapshot
			must(t, write(t, r, 5*time.Second))
			s, err := status(r, n)
			must(t, err)
			first = s.First
		}
		must(t, r.Kill(n))
		_, err := r.Corrupt(n, nemesis.FlipLog, rand.New(lowest{}))
		must(t, err, r.Start(n))
		asked := make(chan error)
		go func() {
			defer close(asked)
			_, err := status(r, n)
			asked <- err
		}()
		if err, answered := <-asked; !answered || err == nil {
			t.Errorf("asked: %v, answered: %v", err, answered)
		}
		time.Sleep(10 * time.Second)
		if died := r.Died(n); died == nil || !strings.Contains(died.Error(), "damaged") {
			t.Errorf("it died of %v", died)
		}
	})
}

// A death that no fault explains condemns the run, though the node is started again.
func TestANodeThatEndsWithoutAFaultIsNotedAndStartedAgain(t *testing.T) {
	under(t, sim.Options{}, func(t *testing.T, r *sim.Run, h *nemesis.Hand) {
		end := h.Supervise(t.Context())
		n := leading(t, r)
		must(t, r.Disk(n, nemesis.DiskFault{Error: true})) // and no nemesis says that it did that
		_ = write(t, r, time.Second)
		leading(t, r, n)
		time.Sleep(6 * time.Second) // its end
		must(t, r.Disk(n, nemesis.DiskFault{}))
		time.Sleep(10 * time.Second)
		if s, err := status(r, n); err != nil || !s.Ready {
			t.Errorf("it was not started again: %+v, %v", s, err)
		}
		end()
		h1 := r.Log.History()
		if len(h1.Notes) == 0 || h1.Notes[0].Kind != history.NoteDied || len(h1.Faults) > 0 {
			t.Errorf("notes are %+v, faults %+v", h1.Notes, h1.Faults)
		}
		if found := check.Globals(h1, &check.Order{}); len(found) == 0 || found[0].Checker != "G5" {
			t.Errorf("found %v", found)
		}
	})
}

func TestASlowOrHungDiskHoldsTheLeaderUp(t *testing.T) {
	under(t, sim.Options{}, func(t *testing.T, r *sim.Run, h *nemesis.Hand) {
		n := leading(t, r)
		must(t, r.Disk(n, nemesis.DiskFault{Slow: 300 * time.Millisecond}))
		began := time.Now()
		must(t, write(t, r, 10*time.Second))
		if took := time.Since(began); took < 300*time.Millisecond {
			t.Errorf("a write to a slow disk took %v", took)
		}
		must(t, r.Disk(n, nemesis.DiskFault{Hung: true}))
		if err := write(t, r, 2*time.Second); err == nil {
			t.Error("a write went through a hung disk")
		}
		must(t, r.Disk(n, nemesis.DiskFault{}), h.Mend(t.Context()), write(t, r, 10*time.Second))
	})
}

func TestEveryCorruptionIsDoneToADeadNodeOnly(t *testing.T) {
	under(t, sim.Options{Compact: true}, func(t *testing.T, r *sim.Run, _ *nemesis.Hand) {
		for range 100 {
			must(t, write(t, r, 10*time.Second))
			time.Sleep(50 * time.Millisecond)
		}
		n, dice := leading(t, r), rand.New(rand.NewPCG(1, 1))
		if _, err := r.Corrupt(n, nemesis.CutTail, dice); err == nil {
			t.Error("the files of a node that is up were damaged")
		}
		must(t, r.Kill(n))
		for _, how := range []nemesis.Corruption{nemesis.CutTail, nemesis.FlipLog, nemesis.FlipSnap, nemesis.FlipMeta,
			nemesis.SwappedSnap, nemesis.EmptySnap, nemesis.OlderCopy, nemesis.WipeAll} {
			if what, err := r.Corrupt(n, how, dice); err != nil || what == "" {
				t.Errorf("%s: %q, %v", how, what, err)
			}
		}
		if _, err := r.Corrupt(n, "something else", dice); !errors.Is(err, nemesis.ErrUnsupported) {
			t.Errorf("something else: %v", err)
		}
	})
}

func TestANodeJoinsAnotherLeavesAndAThirdRunsAnotherVersion(t *testing.T) {
	under(t, sim.Options{}, func(t *testing.T, r *sim.Run, h *nemesis.Hand) {
		added, err := r.Add("n4")
		must(t, err, h.Mend(t.Context()))
		if s, err := status(r, added); err != nil || !s.Ready {
			t.Errorf("it joined and is %+v, %v", s, err)
		}
		gone := leading(t, r)
		id, _ := status(r, gone)
		other := (gone + 1) % 3
		must(t, r.Switch(other), r.Stop(other), r.Start(other), h.Mend(t.Context()))
		_, err = h.Admin.Remove(t.Context(), id.NodeID)
		must(t, err, r.Retire(gone), h.Mend(t.Context()))
		if r.Nodes()[gone] != "" || r.Start(gone) == nil {
			t.Error("a retired node can be started")
		}
		resp, err := h.Admin.Nodes(t.Context())
		must(t, err)
		versions := map[string]int{}
		for _, n := range resp.Nodes {
			versions[n.Version]++
		}
		if versions["faults"] != 2 || versions["faults-other"] != 1 {
			t.Errorf("versions are %v", versions)
		}
	})
}

func TestWhatVirtualTimeCannotDoIsRefused(t *testing.T) {
	under(t, sim.Options{}, func(t *testing.T, r *sim.Run, _ *nemesis.Hand) {
		must(t, r.Starve(0, 0), r.Failpoint(0, ""))
		for name, err := range map[string]error{"starve": r.Starve(0, 0.1), "failpoint": r.Failpoint(0, "store-before:1:panic")} {
			if !errors.Is(err, nemesis.ErrUnsupported) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if _, err := status(r, 9); err == nil || !strings.Contains(r.Kill(9).Error(), "no such node") {
			t.Error("there is a tenth node")
		}
	})
}
