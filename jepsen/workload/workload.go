package workload

import (
	"context"
	"fmt"
	"strings"

	boardpb "raftboard/fsm/pb"
)

// Workload is a kind of load, W1 to W11.
type Workload interface {
	Name() string
	// Settings of the board that it works on.
	Settings() *boardpb.BoardSettings
	// Watched says that watchers on every node are to record the feed meanwhile.
	Watched() bool
	// Run works until e.Stop is closed, then finishes what was begun (work that was posted is
	// done, calls that are out return), and returns at the latest when ctx ends. An error means
	// that the load could not be made at all; what clients are answered is recorded, not returned.
	Run(ctx context.Context, e Env) error
}

// all lists the workloads in the order W1 to W11.
func all() []Workload {
	return []Workload{
		Register{Clients: 5, Keys: 3},
		Append{Clients: 6, Keys: 3},
		Txn{Clients: 5, Groups: 2},
		Lease{},
		Work{},
		Operations{},
		Soak{},
		Author{},
		Retry{},
		Feed{Writers: 3},
		StaleReads{Readers: 6, Clients: 2, Knockers: 3},
	}
}

// Names lists the workloads.
func Names() (names []string) {
	for _, w := range all() {
		names = append(names, w.Name())
	}
	return names
}

// New is the workload of a name.
func New(name string) (Workload, error) {
	for _, w := range all() {
		if w.Name() == name {
			return w, nil
		}
	}
	return nil, fmt.Errorf("no workload %q: there are %s", name, strings.Join(Names(), ", "))
}
