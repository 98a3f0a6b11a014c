package suite

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"raftboard/client"
	"raftboard/jepsen/check"
	"raftboard/jepsen/history"
	"raftboard/jepsen/nemesis"
	"raftboard/jepsen/workload"
)

// Cluster is what a driver starts.
type Cluster interface {
	workload.Cluster
	nemesis.Target
}

// ElectionTimeout is that of the clusters under test: the default of a node.
const ElectionTimeout = time.Second

const (
	readyWithin  = 60 * time.Second // of a cluster at its start and after everything was mended
	doneWithin   = 3 * time.Minute  // of what a workload had begun, counted from the heal
	finalsWithin = time.Minute
	quiet        = 2 * time.Second // work goes on so long after the heal: progress must be seen
)

// Run runs a plan on a cluster that was started for it, and returns when all that can be
// recorded is in the log. An error means that the run could not be made or ended, and proves
// nothing; what went wrong under test is in the history.
func Run(ctx context.Context, c Cluster, log *history.Log, p Plan) error {
	interrupted := ctx.Err // by whoever asked for the run, not by its bound
	kinds, err := nemesis.ByName(p.Nemeses...)
	if err != nil {
		return err
	}
	work, err := workload.New(p.Workload)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, p.Time+readyWithin+2*doneWithin+finalsWithin+5*time.Minute)
	defer cancel()
	admin, err := c.Dial("admin", 0)
	if err != nil {
		return err
	}
	defer admin.Close()
	hand := &nemesis.Hand{Target: c, Log: log, Dice: nemesis.NewDice(p.Seed), Timeout: ElectionTimeout,
		Admin: admin.Cluster(), Ask: c.Ask, Tail: log.Tail}
	defer hand.Supervise(ctx)()
	if err := hand.Mend(ctx); err != nil {
		return fmt.Errorf("the cluster is not ready: %w", err)
	}
	if err := createBoard(ctx, admin, work); err != nil {
		return err
	}
	stop := make(chan struct{})
	env := workload.Env{Cluster: c, Log: log, Board: Board, Seed: p.Seed, Rate: p.Rate, Stop: stop}
	watchers, err := watch(ctx, env, work)
	defer func() {
		for _, w := range watchers {
			w.Close()
		}
	}()
	if err != nil {
		return err
	}
	loadCtx, endLoad := context.WithTimeout(ctx, p.Time+doneWithin+readyWithin)
	defer endLoad()
	var failed error
	var group sync.WaitGroup
	group.Go(func() { failed = work.Run(loadCtx, env) })
	err = hurt(ctx, hand, log, kinds, p)
	close(stop)
	group.Wait()
	if stop := interrupted(); stop != nil { // whoever ended it did not wait for what is owed after the heal
		return stop
	}
	finish(ctx, hand, env, work, watchers, p)
	return errors.Join(err, failed, interrupted())
}

// hurt lets the workload work alone for a while, plays the faults, mends everything, and lets
// it work on for a while, so that progress can be seen. A fault that could not be done is in
// the log and makes the run INVALID; only what cannot be mended is an error.
func hurt(ctx context.Context, hand *nemesis.Hand, log *history.Log, kinds []nemesis.Nemesis, p Plan) error {
	baseline := check.Baseline(p.Time)
	time.Sleep(baseline)
	nemesis.Play(ctx, hand, kinds, p.Time-baseline)
	err := hand.Mend(ctx)
	log.Healed(doneWithin)
	if err != nil {
		log.Note(history.Note{Kind: history.NoteStuck, Text: err.Error()})
		return nil
	}
	time.Sleep(quiet)
	return nil
}

func createBoard(ctx context.Context, admin *client.Client, work workload.Workload) error {
	ctx, cancel := context.WithTimeout(ctx, readyWithin)
	defer cancel()
	if _, err := admin.CreateBoard(ctx, Board, work.Settings()); err != nil {
		return fmt.Errorf("create the board %s: %w", Board, err)
	}
	return nil
}

func watch(ctx context.Context, env workload.Env, work workload.Workload) (watchers []*workload.Watcher, err error) {
	if !work.Watched() {
		return nil, nil
	}
	for i := range env.Cluster.Nodes() {
		w, err := workload.Watch(ctx, env, fmt.Sprintf("watcher-%d", i+1), i)
		if err != nil {
			return watchers, err
		}
		watchers = append(watchers, w)
	}
	return watchers, nil
}

// finish lets every node go once more through what its disk holds, and then reads everything
// through every node. What cannot be read by then is nobody's bad luck: every fault is over,
// so it is noted, and condemns the run.
func finish(ctx context.Context, hand *nemesis.Hand, env workload.Env, work workload.Workload, watchers []*workload.Watcher, p Plan) {
	stuck := func(what string, err error) {
		if err != nil {
			env.Log.Note(history.Note{Kind: history.NoteStuck, Text: what + ": " + err.Error()})
		}
	}
	stuck("after all nodes began another life", hand.Replay(ctx, p.hurts("power")))
	ctx, cancel := context.WithTimeout(ctx, finalsWithin)
	defer cancel()
	stuck("after that", hand.Level(ctx))
	if work.Watched() {
		last, err := workload.Pages(ctx, env, "pages")
		stuck("at the end", err)
		for _, w := range watchers {
			w.Reach(ctx, last)
		}
	}
	stuck("at the end", workload.Finals(ctx, env))
}

// Recording is what is left of a run before it is judged.
type Recording struct {
	History *history.History
	Err     error // the run could not be made
}
