package demo

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"raftboard/client"
	"raftboard/cmd/raftboard/exitcode"
)

// Options of a demo. The zero value of Dir is the embedded collection.
type Options struct {
	Dir     string
	Workers int
	Nodes   int
	Keep    bool   // leave nodes' data and logs behind
	Inject  string // "", "double" or "loss": break a promise on purpose
	Binary  string // this program

	Say      func(who, what string)             // an event worth a line
	Progress func(done, items int, note string) // how far the work is
	Keys     <-chan byte                        // interactive: what the user presses; nil: on our own
}

// Validate says what cannot be run.
func (o *Options) Validate() error {
	switch {
	case o.Nodes != 3 && o.Nodes != 5:
		return fmt.Errorf("--nodes %d: the leader is killed, so it takes 3 or 5", o.Nodes)
	case o.Workers < 2 || o.Workers > 64:
		return fmt.Errorf("--workers %d: one is killed and another paused, so it takes 2 to 64", o.Workers)
	case o.Inject != "" && o.Inject != "double" && o.Inject != "loss":
		return fmt.Errorf("--inject %q is neither double nor loss", o.Inject)
	}
	return nil
}

// demo is one run.
type demo struct {
	o      Options
	home   string // everything of this run
	input  string // the files
	names  []string
	alone  Totals
	syncs  float64
	atOnce int
	pace   time.Duration

	nodes   []*node
	workers []*workerProc
	client  *client.Client
	board   *client.Board
	acks    *ackLog
	poster  *poster
	down    string // the node that was killed on purpose and is not back yet
}

// Times and bounds of a run.
const (
	startWithin     = 30 * time.Second
	stalledAfter    = 90 * time.Second // without a completed item
	workTarget      = 14 * time.Second // what the pace of a small set aims at: the faults take about ten
	fewestPerWorker = 3                // else somebody who is to be killed or paused has nothing to hold
	smallSet        = 100              // up to here a worker does one item at a time
	pollEvery       = 50 * time.Millisecond
)

// Run runs the demo and judges it. Whatever it started has ended when it returns.
func Run(ctx context.Context, o Options) (r *Report, err error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	home, err := os.MkdirTemp("", "raftboard-demo-")
	if err != nil {
		return nil, err
	}
	d := &demo{o: o, home: home}
	defer func() {
		d.close()
		if o.Keep {
			o.Say("demo", "data and logs are kept in "+home)
			return
		}
		err = errors.Join(err, os.RemoveAll(home))
	}()
	if err := d.prepare(ctx); err != nil {
		return nil, err
	}
	if err := d.startNodes(ctx); err != nil {
		return nil, err
	}
	if err := d.connect(ctx); err != nil {
		return nil, err
	}
	if err := d.startWorkers(); err != nil {
		return nil, err
	}
	if o.Keys != nil {
		err = d.interactive(ctx)
	} else {
		err = d.work(ctx)
	}
	if err != nil {
		return nil, err
	}
	return d.judge(ctx)
}

// prepare lays out the files, counts them alone, and measures the disk.
func (d *demo) prepare(ctx context.Context) error {
	var err error
	if d.o.Dir == "" {
		d.input = filepath.Join(d.home, "texts")
		err = unpack(d.input)
	} else {
		d.input, err = filepath.Abs(d.o.Dir)
	}
	if err != nil {
		return err
	}
	if d.names, err = files(d.input); err != nil {
		return exitcode.Usagef("raftboard demo --dir DIR", "--dir: %v", err)
	}
	if least := fewestPerWorker * d.o.Workers; len(d.names) < least {
		return exitcode.Usagef("raftboard demo", "--dir: %s holds %d files; with %d workers the faults need %d", d.input, len(d.names),
			d.o.Workers, least)
	}
	if d.alone, err = countAlone(ctx, d.input, d.names); err != nil {
		return err
	}
	if d.syncs, err = syncRate(d.home); err != nil {
		return err
	}
	d.atOnce = 8
	if len(d.names) <= smallSet {
		d.atOnce = 1
	}
	if d.o.Keys != nil {
		d.atOnce, d.pace = 1, interactivePace
		return nil
	}
	d.pace = workTarget * time.Duration(d.o.Workers*d.atOnce) / time.Duration(len(d.names))
	d.o.Say("demo", fmt.Sprintf("%d nodes, %d workers, %d files; data is deleted on exit (--keep keeps it); not for production",
		d.o.Nodes, d.o.Workers, len(d.names)))
	return nil
}

// syncTime is how long the disk is measured.
const syncTime = 300 * time.Millisecond

// syncRate measures how often a second the disk takes a small write and a sync, one after the other.
func syncRate(dir string) (float64, error) {
	f, err := os.Create(filepath.Join(dir, "sync-probe"))
	if err != nil {
		return 0, err
	}
	defer os.Remove(f.Name())
	defer f.Close()
	block, n, began := make([]byte, 4096), 0, time.Now()
	for time.Since(began) < syncTime {
		if _, err := f.WriteAt(block, 0); err != nil {
			return 0, err
		}
		if err := f.Sync(); err != nil {
			return 0, err
		}
		n++
	}
	return float64(n) / time.Since(began).Seconds(), nil
}

// connect opens the parent's own client and sets the grace.
func (d *demo) connect(ctx context.Context) error {
	cfg := client.DefaultConfig()
	cfg.As, cfg.Name, cfg.Endpoints = "demo", "raftboard-demo", nil
	for _, n := range d.nodes {
		cfg.Endpoints = append(cfg.Endpoints, n.grpc)
	}
	var err error
	if d.client, err = client.Dial(cfg); err != nil {
		return err
	}
	d.board = d.client.Board("default")
	if err := d.awaitCluster(ctx); err != nil {
		return err
	}
	grace := graceTime
	if _, err := d.client.Cluster().Settings(ctx, &grace); err != nil {
		return fmt.Errorf("setting the grace: %w", err)
	}
	if d.acks, err = openAckLog(filepath.Join(d.home, "parent.acks")); err != nil {
		return err
	}
	d.poster, err = newPoster(ctx, d)
	return err
}

// close ends every child and connection. It is safe at any stage.
func (d *demo) close() {
	for _, w := range d.workers {
		w.kill()
	}
	if d.client != nil {
		d.client.Close()
	}
	for _, n := range d.nodes {
		if n.process != nil {
			n.kill()
		}
	}
	if d.acks != nil {
		d.acks.close()
	}
}
