package workload

import (
	"context"
	"errors"
	"sync"

	boardpb "raftboard/fsm/pb"
)

// Operations is W9: the load under which members come and go. Half of it is appends, half is
// work; what is done to the members is done by nemeses and recorded as faults.
type Operations struct{}

// Name implements Workload.
func (Operations) Name() string { return "operations" }

// Watched implements Workload.
func (Operations) Watched() bool { return true }

// Settings of the board that W9 needs.
func (Operations) Settings() *boardpb.BoardSettings {
	return settingsOf(Append{}, Work{})
}

// Run implements Workload.
func (Operations) Run(ctx context.Context, e Env) error {
	e.Rate /= 2
	return together(ctx, e, Append{Clients: 4, Keys: 2}, Work{})
}

// settingsOf are those of several workloads on one board.
func settingsOf(all ...Workload) *boardpb.BoardSettings {
	s := &boardpb.BoardSettings{}
	for _, w := range all {
		s.Namespaces = append(s.Namespaces, w.Settings().Namespaces...)
	}
	return s
}

// together runs several workloads until the last one is done.
func together(ctx context.Context, e Env, all ...Workload) error {
	errs := make([]error, len(all))
	var group sync.WaitGroup
	for i, w := range all {
		group.Go(func() { errs[i] = w.Run(ctx, e) })
	}
	group.Wait()
	return errors.Join(errs...)
}
