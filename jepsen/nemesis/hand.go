package nemesis

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"raftboard/client"
	"raftboard/jepsen/history"
	wirepb "raftboard/transport/pb"
)

// Hand is what does the faults of one run: it knows which nodes are hurt at the moment, so
// that faults which come together leave the majority that a fault did not mean to take.
type Hand struct {
	Target Target
	Log    *history.Log
	Dice   *rand.Rand
	// Timeout is the election timeout of the cluster: lengths are drawn around it.
	Timeout time.Duration
	// Admin does what an operator would; Ask is the unary face of one node.
	Admin *client.Cluster
	Ask   func(name string, node int) wirepb.BoardClient
	// Tail gives the newest of what was applied anywhere, for faults that repeat requests.
	Tail func(n int) []history.Applied

	mu        sync.Mutex
	hurt      map[int]bool
	added     int
	processes map[int]*process
}

// NewDice are the dice of the nemesis of a seed.
func NewDice(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 0x6e656d65736973)) }

// roll and length may be called by faults that run at the same time.
func (h *Hand) roll(n int) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.Dice.IntN(n)
}

// dice are a fault's own.
func (h *Hand) dice() *rand.Rand {
	h.mu.Lock()
	defer h.mu.Unlock()
	return rand.New(rand.NewPCG(h.Dice.Uint64(), h.Dice.Uint64()))
}

// between draws a time.
func (h *Hand) between(least, most time.Duration) time.Duration {
	if most <= least {
		return least
	}
	return least + time.Duration(h.roll(int(most-least)))
}

// live are the numbers of the nodes that were not retired.
func (h *Hand) live() (nodes []int) {
	for i, name := range h.Target.Nodes() {
		if name != "" {
			nodes = append(nodes, i)
		}
	}
	return nodes
}

// names are those of nodes.
func (h *Hand) names(nodes []int) (names []string) {
	all := h.Target.Nodes()
	for _, i := range nodes {
		names = append(names, all[i])
	}
	return names
}

// minority is how many nodes can be hurt and a majority be left.
func (h *Hand) minority() int { return (len(h.live()) - 1) / 2 }

// take marks nodes as hurt, unless one is already, or a majority would be hurt that was not
// meant to be. free gives them back.
func (h *Hand) take(nodes []int, majority bool) (free func(), ok bool) {
	most := h.minority()
	if majority {
		most = len(h.live())
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.hurt == nil {
		h.hurt = map[int]bool{}
	}
	for _, i := range nodes {
		if h.hurt[i] {
			return nil, false
		}
	}
	if len(h.hurt)+len(nodes) > most || majority && len(h.hurt) > 0 {
		return nil, false
	}
	for _, i := range nodes {
		h.hurt[i] = true
	}
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		for _, i := range nodes {
			delete(h.hurt, i)
		}
	}, true
}

// statusPatience bounds one question to a node.
const statusPatience = time.Second

func (h *Hand) status(ctx context.Context, node int) (Status, error) {
	ctx, cancel := context.WithTimeout(ctx, statusPatience)
	defer cancel()
	return h.Target.Status(ctx, node)
}

// leader waits for a node that leads and is none of those excepted; of two that think so the
// one of the newer term counts.
func (h *Hand) leader(ctx context.Context, most time.Duration, except ...int) (node int, s Status, err error) {
	for began := time.Now(); ; {
		found, seen := false, ""
		for _, i := range h.live() {
			if slices.Contains(except, i) {
				continue
			}
			now, err := h.status(ctx, i)
			seen += fmt.Sprintf("; %s: leader %v, term %d, ready %v, %v", h.Target.Nodes()[i], now.Leader, now.Term, now.Ready, err)
			if err == nil && now.Leader && (!found || now.Term > s.Term) {
				node, s, found = i, now, true
			}
		}
		if found {
			return node, s, nil
		}
		if time.Since(began) > most || !rest(ctx, 50*time.Millisecond) {
			return 0, Status{}, fmt.Errorf("no node led within %v%s", most, seen)
		}
	}
}

// ready waits until nodes are ready, and says which is not. Nobody waits for one that is
// replaced meanwhile.
func (h *Hand) ready(ctx context.Context, most time.Duration, nodes ...int) error {
	for began := time.Now(); ; {
		waits := ""
		for _, i := range nodes {
			if s, err := h.status(ctx, i); err != nil || !s.Ready {
				if waits = h.Target.Nodes()[i]; waits != "" {
					break
				}
			}
		}
		if waits == "" {
			return nil
		}
		if time.Since(began) > most || !rest(ctx, 50*time.Millisecond) {
			return fmt.Errorf("node %s is not ready after %v", waits, most)
		}
	}
}

// others are the live nodes but those given.
func (h *Hand) others(but ...int) (rest []int) {
	for _, i := range h.live() {
		if !slices.Contains(but, i) {
			rest = append(rest, i)
		}
	}
	return rest
}

// some are n live nodes by the dice.
func (h *Hand) some(n int) []int {
	nodes := h.live()
	d := h.dice()
	d.Shuffle(len(nodes), func(i, j int) { nodes[i], nodes[j] = nodes[j], nodes[i] })
	return nodes[:min(n, len(nodes))]
}

// victims draws who is to be hurt: one of "leader", "one", "minority", "majority", "all".
func (h *Hand) victims(ctx context.Context, whom string) ([]int, error) {
	switch whom {
	case "leader":
		node, _, err := h.leader(ctx, 5*h.Timeout)
		return []int{node}, err
	case "minority":
		return h.some(max(1, h.minority())), nil
	case "majority":
		return h.some(len(h.live())/2 + 1), nil
	case "all":
		return h.live(), nil
	}
	return h.some(1), nil
}

// begin opens the record of a fault.
func (h *Hand) begin(name, id string, nodes []int) history.Fault {
	return history.Fault{Name: name, Nemesis: id, Targets: h.names(nodes), Start: h.Log.Now()}
}

// end closes it with what was seen; no witness makes the run INVALID.
func (h *Hand) end(f history.Fault, witness string, err error) error {
	f.End, f.Witness = h.Log.Now(), witness
	if err != nil {
		f.Witness = ""
		f.Error = err.Error()
	}
	h.Log.Fault(f)
	return err
}

// deserted records the time in which so many nodes are hurt that no majority is left; call
// what it returns before anything is undone. With fewer nodes it does nothing.
func (h *Hand) deserted(id string, nodes []int) (over func()) {
	if len(nodes) <= h.minority() {
		return func() {}
	}
	f := h.begin(history.NoMajority, id, nodes)
	return func() {
		f.End = h.Log.Now()
		f.Witness = fmt.Sprintf("%d of %d nodes could not take part", len(nodes), len(h.live()))
		h.Log.Fault(f)
	}
}

// each does something to every node and joins the errors.
func each(nodes []int, do func(int) error) (err error) {
	for _, i := range nodes {
		err = errors.Join(err, do(i))
	}
	return err
}

// watchLeader says, when called again, how leadership moved since.
func (h *Hand) watchLeader(ctx context.Context) func() string {
	_, before, err := h.leader(ctx, 0)
	return func() string {
		node, after, err2 := h.leader(ctx, 0)
		switch {
		case err != nil || err2 != nil:
			return "no leader in sight"
		case after.Term > before.Term:
			return fmt.Sprintf("%s leads in term %d, before it was term %d", h.Target.Nodes()[node], after.Term, before.Term)
		}
		return fmt.Sprintf("%s still leads in term %d", h.Target.Nodes()[node], after.Term)
	}
}

func join(parts ...string) string { return strings.Join(parts, "; ") }

// rest waits, unless ctx ends first: then it is false.
func rest(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
