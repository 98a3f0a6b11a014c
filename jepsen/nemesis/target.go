package nemesis

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"
)

// ErrUnsupported is what a driver answers to a fault that it cannot do. A run that needs such
// a fault is refused before it starts; it is never run without it.
var ErrUnsupported = errors.New("this driver cannot do that fault")

// Clients stands for all clients of the harness as one end of a link.
const Clients = -1

// Target is the cluster as a nemesis sees it: what a driver can do to processes, links, disks
// and clocks. Nodes are numbered from 0, also those added later. No method waits for the
// cluster to be well again; each returns when the fault is in place, or undone. Undoing what
// is not in place is no error. Safe for several goroutines. A fault that was not seen to be in
// place (the state of the process, the counter of a rule, what a disk now answers) is an error.
type Target interface {
	// Nodes are the names, in the order of the numbers; "" for a retired one.
	Nodes() []string
	// Status is what a node says of itself; an error when it is down, paused or does not answer.
	Status(ctx context.Context, node int) (Status, error)

	// Kill ends a process at once, as SIGKILL does. Start starts it again on what its disk
	// holds; a node that is up stays up.
	Kill(node int) error
	Start(node int) error
	// Stop ends a process gracefully, as SIGTERM does, and waits for its end.
	Stop(node int) error
	// Pause stops a process in the middle of whatever it does, as SIGSTOP does.
	Pause(node int) error
	Resume(node int) error
	// Add starts a fresh node that joins by itself and answers its number.
	Add(name string) (node int, err error)
	// Retire takes a node out for good: its process ends and Nodes names it "".
	Retire(node int) error
	// Switch makes a node run the other build from its next start on: the same source under
	// another version.
	Switch(node int) error
	// PowerOff cuts the power of nodes in one instant: what was not synced is lost. They are
	// down afterwards.
	PowerOff(nodes ...int) error

	// Link shapes what travels from one node to another, or between Clients and a node, in
	// this direction only. The zero Shape mends it.
	Link(from, to int, s Shape) error
	// Break ends every connection between two ends now; they may be made again.
	Break(a, b int) error
	// Lost counts what links to or from this node dropped, held or delayed so far, in packets or chunks.
	Lost(node int) (uint64, error)

	// Disk makes a node's disk bad; the zero Fault mends it.
	Disk(node int, f DiskFault) error
	// Corrupt damages what the disk of a node that is down holds, and says what it did.
	Corrupt(node int, how Corruption, dice *rand.Rand) (what string, err error)

	// Clock moves a node's clocks; the zero ClockFault mends them from here on.
	Clock(node int, f ClockFault) error
	// Starve leaves a node this share of a core, 0 < share < 1; 0 ends it.
	Starve(node int, share float64) error
	// Failpoint arms a named point of a node for its next life ("name:nth:panic"); "" disarms.
	Failpoint(node int, spec string) error
	// Died says why a process has ended by itself since it was last asked; nil if it has not.
	// Only the supervisor of a run asks.
	Died(node int) error
}

// Status is what a node says of itself.
type Status struct {
	NodeID   string
	Leader   bool // and ready to serve as one
	Term     uint64
	Applied  uint64
	First    uint64 // oldest entry of its log
	Last     uint64 // newest entry of its log
	Snapshot uint64 // index of its newest snapshot
	Ready    bool
}

// Shape is what a link does, in one direction.
type Shape struct {
	// Cut drops packets: over TCP neither side hears of the other after a while.
	Cut bool
	// Hold lets connections live and what is on its way wait: what was sent does not arrive
	// until the link is mended, or never if the connection is broken first.
	Hold bool
	// Reset breaks every connection that is made or used.
	Reset bool
	// Delay and Jitter are added to whatever passes; Loss is the part of packets that is
	// dropped (0 to 1); Rate is in bytes per second, 0 without a limit.
	Delay, Jitter time.Duration
	Loss          float64
	Rate          int
}

// DiskFault is one way in which a disk is bad.
type DiskFault struct {
	Slow  time.Duration // every sync takes this much longer
	Hung  bool          // no write or sync returns
	Full  bool          // no space left
	Error bool          // writes fail with an I/O error
	Short bool          // a write is cut in the middle, and fails
}

// Corruption is one way in which what is stored is damaged.
type Corruption string

// The corruptions.
const (
	CutTail     Corruption = "cut-tail"      // the end of the log file is gone
	FlipLog     Corruption = "flip-log"      // one bit of the log
	FlipSnap    Corruption = "flip-snapshot" // one bit of the newest snapshot
	FlipMeta    Corruption = "flip-metadata" // one bit of a file that is neither
	OlderCopy   Corruption = "older-copy"    // the whole directory as it was earlier
	WipeAll     Corruption = "wipe"          // an empty directory
	EmptySnap   Corruption = "empty-snapshot"
	SwappedSnap Corruption = "swapped-snapshots"
)

// ClockFault is what a node's clocks do. Wall is added to its wall clock; Drift is the rate
// of its monotonic clock less one, so 0.02 runs two hundredths too fast. A monotonic clock
// never jumps.
type ClockFault struct {
	Wall  time.Duration
	Drift float64
}
