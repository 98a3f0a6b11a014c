package sim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"

	"google.golang.org/grpc"

	"raftboard/jepsen/nemesis"
	"raftboard/node/nodetest"
	"raftboard/transport/clustertest"
)

func sorted(nodes []int) []int { return slices.Compact(slices.Sorted(slices.Values(nodes))) }

// end is a node, or all clients, as the network knows them.
func (r *Run) end(i int) (string, error) {
	switch {
	case i == nemesis.Clients:
		return clustertest.Others, nil
	case i < 0 || i >= r.servers.Count():
		return "", fmt.Errorf("node %d: %w", i, errNoNode)
	}
	return r.servers.Member(i).Host, nil
}

func (r *Run) ends(a, b int) (from, to string, err error) {
	from, err = r.end(a)
	to, err2 := r.end(b)
	if a == b {
		err = errors.Join(err, errors.New("a link has two ends"))
	}
	return from, to, errors.Join(err, err2)
}

// Link implements nemesis.Target.
func (r *Run) Link(a, b int, s nemesis.Shape) error {
	from, to, err := r.ends(a, b)
	if err != nil {
		return err
	}
	r.servers.Net.SetShape(from, to, clustertest.Shape{Cut: s.Cut || s.Hold, Reset: s.Reset, Delay: s.Delay, Jitter: s.Jitter,
		Loss: s.Loss, Rate: s.Rate})
	return nil
}

// Break implements nemesis.Target.
func (r *Run) Break(a, b int) error {
	from, to, err := r.ends(a, b)
	if err == nil {
		r.servers.Net.Break(from, to)
	}
	return err
}

// Lost implements nemesis.Target.
func (r *Run) Lost(i int) (uint64, error) {
	host, err := r.end(i)
	if err != nil {
		return 0, err
	}
	return r.servers.Net.Lost(host), nil
}

// Disk implements nemesis.Target.
func (r *Run) Disk(i int, f nemesis.DiskFault) error {
	if _, err := r.end(i); err != nil {
		return err
	}
	r.servers.Member(i).Disk.Break(nodetest.Fault{Slow: f.Slow, Hung: f.Hung, Full: f.Full, Error: f.Error, Short: f.Short})
	return nil
}

// Clock implements nemesis.Target.
func (r *Run) Clock(i int, f nemesis.ClockFault) error {
	if _, err := r.end(i); err != nil {
		return err
	}
	r.seat(i).clock.set(f)
	return nil
}

// mostCut is how many entries CutTail takes away at most.
const mostCut = 40

// Corrupt implements nemesis.Target.
func (r *Run) Corrupt(i int, how nemesis.Corruption, dice *rand.Rand) (what string, err error) {
	_, give, err := r.take(i)
	if err != nil {
		return "", err
	}
	defer give()
	if r.servers.Running(i) != nil {
		return "", errors.New("it is up, and has its files open")
	}
	m := r.servers.Member(i)
	switch how {
	case nemesis.CutTail:
		return m.Disk.CutTail(1 + dice.IntN(mostCut))
	case nemesis.FlipLog:
		return m.Disk.FlipLog(dice)
	case nemesis.FlipSnap:
		return m.Disk.FlipSnapshot(dice)
	case nemesis.FlipMeta:
		return flipFile(m.Dir, dice)
	case nemesis.OlderCopy:
		return m.Disk.Older(dice)
	case nemesis.EmptySnap:
		return m.Disk.EmptySnapshot()
	case nemesis.SwappedSnap:
		return m.Disk.SwapSnapshots()
	case nemesis.WipeAll:
		return "its directory and its disk are empty", r.servers.TryWipe(i)
	}
	return "", nemesis.ErrUnsupported
}

// flipFile turns one bit of one file of a data directory around. Log and snapshots are not
// there: they are on the disk of memory.
func flipFile(dir string, dice *rand.Rand) (what string, err error) {
	names, err := os.ReadDir(dir)
	if err != nil {
		return "", err
	}
	var full []string
	for _, e := range names {
		if info, err := e.Info(); err == nil && info.Mode().IsRegular() && info.Size() > 0 {
			full = append(full, e.Name())
		}
	}
	if len(full) == 0 {
		return "", errors.New("there is no file with content")
	}
	name := full[dice.IntN(len(full))]
	raw, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		return "", err
	}
	bit := dice.IntN(8 * len(raw))
	raw[bit/8] ^= 1 << (bit % 8)
	return fmt.Sprintf("bit %d of %s is flipped", bit, name), os.WriteFile(filepath.Join(dir, name), raw, 0o600)
}

// unreachable stands for a node to which no connection can even be tried.
type unreachable struct{ err error }

func (u unreachable) Invoke(context.Context, string, any, any, ...grpc.CallOption) error {
	return u.err
}

func (u unreachable) NewStream(context.Context, *grpc.StreamDesc, string, ...grpc.CallOption) (grpc.ClientStream, error) {
	return nil, u.err
}
