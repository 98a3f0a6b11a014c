package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	boardpb "raftboard/fsm/pb"
)

// When the faults come. They overlap, so that a small set is enough for all of them.
const (
	faultsBegin  = 1500 * time.Millisecond
	restartAfter = 3 * time.Second
	electWithin  = 20 * time.Second
	faultWithin  = 45 * time.Second // for any single step of a fault
)

// workerProc is a worker process and its log.
type workerProc struct {
	*process
	acks string
	read int64 // how far next has read the log
}

func (d *demo) startWorkers() error {
	for range d.o.Workers {
		if _, err := d.startWorker(); err != nil {
			return err
		}
	}
	return nil
}

// startWorker starts one more worker, which is connected to the node whose turn it is.
func (d *demo) startWorker() (*workerProc, error) {
	i := len(d.workers)
	name := fmt.Sprintf("worker-%d", i+1)
	var endpoints []string
	for j := range d.nodes {
		endpoints = append(endpoints, d.nodes[(i+j)%len(d.nodes)].grpc)
	}
	w := &workerProc{acks: filepath.Join(d.home, name+".acks")}
	args := []string{"demo-worker", "--endpoints", strings.Join(endpoints, ","), "--as", name, "--dir", d.input,
		"--acks", w.acks,
		"--pace", d.pace.String(), "--at-once", strconv.Itoa(d.atOnce)}
	if d.o.Inject == "loss" && i == 0 {
		args = append(args, "--lie")
	}
	p, err := spawn(d.o.Binary, d.home, name, args...)
	if err != nil {
		return nil, err
	}
	w.process = p
	d.workers = append(d.workers, w)
	return w, nil
}

// tail gives the lines the worker has logged since the last call.
func (w *workerProc) tail() ([]Ack, error) {
	f, err := os.Open(w.acks)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if _, err := f.Seek(w.read, io.SeekStart); err != nil {
		return nil, err
	}
	acks, whole, err := parseAcks(f)
	w.read += whole
	return acks, err
}

// awaitLine waits for a line of the worker's log.
func (d *demo) awaitLine(ctx context.Context, w *workerProc, kind, key string) (Ack, error) {
	var found *Ack
	var failed error
	err := d.await(ctx, faultWithin, w.name+" logged no line "+kind, func() bool {
		acks, err := w.tail()
		for _, a := range acks {
			if a.Kind == kind && (key == "" || a.Key == key) && found == nil {
				found = &a
			}
		}
		failed = err
		return found != nil || err != nil
	})
	if err = errors.Join(err, failed); err != nil {
		return Ack{}, fmt.Errorf("%w: %s", err, w.lastWords())
	}
	return *found, nil
}

// faults kills the leader and brings it back, kills a worker, and pauses another past its lease.
func (d *demo) faults(ctx context.Context) error {
	if err := rest(ctx, faultsBegin); err != nil {
		return err
	}
	victim, err := d.killLeader(ctx)
	if err != nil {
		return err
	}
	back := time.Now().Add(restartAfter)
	killed, paused := d.workers[len(d.workers)-1], d.workers[len(d.workers)-2]
	lost, err := d.hold(ctx, killed)
	if err != nil {
		return err
	}
	killed.kill()
	d.o.Say(killed.name, fmt.Sprintf("killed while it held %s, generation %d", lost.Key, lost.Generation))
	late, err := d.hold(ctx, paused)
	if err != nil {
		return err
	}
	if err := paused.signal(syscall.SIGSTOP); err != nil {
		return err
	}
	d.o.Say(paused.name, fmt.Sprintf("paused while it held %s, generation %d", late.Key, late.Generation))
	if err := rest(ctx, time.Until(back)); err != nil {
		return err
	}
	if err := d.restart(victim); err != nil {
		return err
	}
	for _, a := range []Ack{lost, late} {
		if err := d.awaitExpiry(ctx, a); err != nil {
			return err
		}
	}
	if err := d.resume(ctx, paused, late); err != nil {
		return err
	}
	return d.awaitBack(ctx, victim)
}

// killLeader kills whoever leads and waits for the next one.
func (d *demo) killLeader(ctx context.Context) (*node, error) {
	var victim *node
	var term uint64
	err := d.await(ctx, electWithin, "no leader was found to kill", func() bool {
		victim, term = d.leader(ctx)
		return victim != nil
	})
	if err != nil {
		return nil, err
	}
	d.down = victim.name
	victim.kill()
	began := time.Now()
	d.o.Say(victim.name, fmt.Sprintf("killed; it led term %d", term))
	var next *node
	var nextTerm uint64
	err = d.await(ctx, electWithin, "no new leader came up", func() bool {
		next, nextTerm = d.leader(ctx)
		return next != nil && next != victim && nextTerm > term
	})
	if err != nil {
		return nil, err
	}
	d.o.Say(next.name, fmt.Sprintf("leads term %d, %.1f s later", nextTerm, time.Since(began).Seconds()))
	return victim, nil
}

func (d *demo) restart(victim *node) error {
	if err := d.startNode(victim); err != nil {
		return err
	}
	d.down = ""
	d.o.Say(victim.name, "started again")
	return nil
}

// awaitBack waits until the restarted node takes part again.
func (d *demo) awaitBack(ctx context.Context, victim *node) error {
	return d.await(ctx, faultWithin, victim.name+" did not come back", func() bool {
		for _, n := range d.status(ctx).GetNodes() {
			if n.GetName() == victim.name && n.GetReady() {
				return true
			}
		}
		return false
	})
}

// hold makes a worker stay on its next item, and waits until it does.
func (d *demo) hold(ctx context.Context, w *workerProc) (Ack, error) {
	if _, err := w.tail(); err != nil {
		return Ack{}, err
	}
	if _, err := io.WriteString(w.stdin, "hold\n"); err != nil {
		return Ack{}, fmt.Errorf("%s: %w: %s", w.name, err, w.lastWords())
	}
	if err := d.poster.one(ctx); err != nil {
		return Ack{}, err
	}
	return d.awaitLine(ctx, w, Holding, "")
}

// awaitExpiry waits until the grant a worker logged is not live any more.
func (d *demo) awaitExpiry(ctx context.Context, a Ack) error {
	return d.await(ctx, faultWithin, "the lease of "+a.Key+" did not end", func() bool {
		l, err := d.leaseOf(ctx, a.Key)
		return err == nil && (l.GetState() != boardpb.LeaseState_LEASE_STATE_HELD || l.GetGeneration() != a.Generation)
	})
}

// resume lets the paused worker go on and waits until its late write was refused.
func (d *demo) resume(ctx context.Context, w *workerProc, late Ack) error {
	if err := w.signal(syscall.SIGCONT); err != nil {
		return err
	}
	d.o.Say(w.name, "goes on, after its lease ended")
	refused, err := d.awaitLine(ctx, w, Refused, late.Key)
	if err != nil {
		return err
	}
	d.o.Say(w.name, fmt.Sprintf("late write of %s under generation %d refused: %s", late.Key, late.Generation, refused.Code))
	return nil
}
