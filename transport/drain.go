package transport

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"raftboard/node"
)

// The times of a graceful stop (ECOSYSTEM §6.1).
const (
	handOverWait = 5 * time.Second  // for the leadership to be taken over
	finishCalls  = 10 * time.Second // for calls that run when nothing new is let in any more
	closeWait    = 10 * time.Second // for Raft and the stores
	hardClose    = 5 * time.Second  // for a node that stopped by itself: its disk may hang
	// removedFinish is for the calls that run at a node that was removed from the cluster.
	removedFinish = 2 * time.Second
)

// Stop ends the server. First it is not ready, so that nobody sends it new work; after the
// drain delay it hands its leadership over; then it lets nothing in, tells sessions and
// watches to go elsewhere, finishes the calls that run; last it stops Raft and closes the
// stores. When ctx ends, what is left of the waiting is skipped: a Stop with an ended ctx
// is a hard stop. Stopping twice waits for the first.
func (s *Server) Stop(ctx context.Context) error {
	if s.stopping.CompareAndSwap(false, true) {
		s.drain(ctx)
		s.endErr = s.closeAll(ctx)
		close(s.stopped)
	}
	<-s.stopped // not a sync.Once, whose lock would hold virtual time while it waits
	return s.endErr
}

// Wait returns when the server has stopped: nil after Stop, and the reason when the node
// below stopped by itself. It then stops the rest at once: what cannot vouch for its data
// answers nobody.
func (s *Server) Wait() error {
	select {
	case <-s.stopped:
		return s.endErr
	case err := <-s.failure:
		finish := time.Duration(0)
		if n := s.service.node.Load(); n != nil && n.Removed(s.service.self.Id) {
			finish = removedFinish // its data is sound, and one of the calls may be the removal itself
		}
		ctx, cancel := context.WithTimeout(context.Background(), finish)
		defer cancel()
		return errors.Join(err, s.Stop(ctx))
	}
}

// fail is told why the node below cannot go on; the first reason counts. The goroutine that
// tells does nothing more, as if the process had ended: what it was about to do or to answer
// must not happen. Wait does the rest.
func (s *Server) fail(err error) {
	select {
	case s.failure <- err:
	default:
	}
	runtime.Goexit()
}

func (s *Server) drain(ctx context.Context) {
	close(s.service.leaving)
	n := s.service.node.Load()
	if s.cfg.DrainDelay > 0 {
		pause(ctx, s.cfg.DrainDelay)
	}
	if n != nil && n.IsLeader() && len(n.Status().Voters) > 1 && ctx.Err() == nil { // alone, there is nobody to take over
		handOver, cancel := context.WithTimeout(ctx, handOverWait)
		if err := n.StepDown(handOver, ""); err != nil {
			s.cfg.Logger.Warn("the leadership was not handed over", "error", err)
		}
		cancel()
	}
	close(s.service.draining)
	graceful := make(chan struct{})
	go func() {
		defer close(graceful)
		s.grpcServer.GracefulStop()
	}()
	timer := time.NewTimer(finishCalls)
	defer timer.Stop()
	select {
	case <-graceful:
		close(s.service.finished)
		last, cancel := context.WithTimeout(ctx, lastReceipts)
		defer cancel()
		s.service.receipts.flush(last, s.service.proposeReceipts)
		return
	case <-timer.C:
	case <-ctx.Done():
	}
	close(s.service.finished)
	s.grpcServer.Stop() // cuts what did not finish, and lets GracefulStop return
	<-graceful
}

// closeAll ends whatever Start began, in the order of dependence.
func (s *Server) closeAll(ctx context.Context) error {
	s.stop()
	if s.grpcServer != nil {
		s.grpcServer.Stop()
	}
	s.serving.Wait()
	s.stopAdmin()
	if s.service != nil {
		s.enlist.hangUp(true)
		s.running.Wait()
		s.service.forward.close()
	}
	var errs []error
	if s.service != nil {
		if n := s.service.node.Load(); n != nil {
			errs = append(errs, closeNode(ctx, n))
		}
		s.links.close()
	}
	for _, l := range []interface{ Close() error }{s.grpcListener, s.raftListener, s.adminListener} {
		if l != nil {
			l.Close() // most are closed by now; another close does no harm
		}
	}
	if s.dir != nil {
		errs = append(errs, s.dir.Close())
	}
	return errors.Join(errs...)
}

// closeNode closes the node below. A node that hangs does not hang the process: what it
// holds is given up with it.
func closeNode(ctx context.Context, n *node.Node) error {
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeWait)
	defer cancel()
	most := 2 * closeWait
	if ctx.Err() != nil {
		cancel() // a hard stop waits for nothing
		most = hardClose
	}
	closed := make(chan error, 1)
	go func() { closed <- n.Close(closing) }()
	timer := time.NewTimer(most)
	defer timer.Stop()
	select {
	case err := <-closed:
		return err
	case <-timer.C:
		return fmt.Errorf("the node did not close within %v", most)
	}
}
