package demo

import (
	"context"
	"fmt"
	"time"
)

// In the interactive form somebody else breaks things, and there is work as long as they like.
const (
	interactivePace = time.Second
	readyAhead      = 8 // items offered and not done yet, at least
	maxInteractive  = maxFiles
)

// interactive works until q is pressed. Items go round the files again and again.
func (d *demo) interactive(ctx context.Context) error {
	for _, n := range d.nodes {
		d.o.Say(n.name, "gRPC "+n.grpc+"  health http://"+n.admin+"/readyz")
	}
	d.o.Say("demo", "try: raftboard --endpoints "+d.nodes[0].grpc+" claims -w")
	d.o.Say("keys", "k = kill the leader   r = restart it   w = add a worker   q = quit")
	tick := time.NewTicker(5 * pollEvery)
	defer tick.Stop()
	var victim *node
	for {
		var err error
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
			err = d.keepBusy(ctx)
		case key, open := <-d.o.Keys:
			switch {
			case !open || key == 'q' || key == 3: // 3 is Ctrl-C on a raw terminal
				return d.quiet(ctx)
			case key == 'k' && victim != nil:
				d.o.Say("demo", victim.name+" is down already; r restarts it")
			case key == 'k':
				victim, err = d.killLeader(ctx)
			case key == 'r' && victim != nil:
				err, victim = d.restart(victim), nil
			case key == 'w' && len(d.workers) < 64:
				var w *workerProc
				if w, err = d.startWorker(); err == nil {
					d.o.Say(w.name, "started")
				}
			}
		}
		if err != nil {
			return err
		}
	}
}

// keepBusy posts more when little is left.
func (d *demo) keepBusy(ctx context.Context) error {
	done, err := d.countDone(ctx)
	if err != nil {
		return nil // nobody leads just now
	}
	d.o.Progress(done, d.poster.posted(), "q quits")
	want := min(done+readyAhead+len(d.workers), maxInteractive)
	return d.poster.upTo(ctx, want)
}

// quiet ends the posting and lets what was offered be finished.
func (d *demo) quiet(ctx context.Context) error {
	items := d.poster.posted()
	d.o.Say("demo", fmt.Sprintf("finishing %d items", items))
	if err := d.awaitDone(ctx, items); err != nil {
		return err
	}
	d.stopWorkers()
	return nil
}
