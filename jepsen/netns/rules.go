package netns

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"raftboard/jepsen/nemesis"
)

// wall is what the firewall of one namespace does to packets that come in, by the node that
// they come from, or nemesis.Clients.
type wall struct {
	space *space
	only  string // the address in the namespace that is meant; "" is all of them

	mu     sync.Mutex
	shapes map[int]nemesis.Shape
}

func newWall(s *space, only string) (*wall, error) {
	_, err := s.run(`table inet faults {
		chain in { type filter hook input priority 0; policy accept; }
	}`, "nft", "-f", "-")
	return &wall{space: s, only: only, shapes: map[int]nemesis.Shape{}}, err
}

// counter names the count of packets from one end that did not pass.
func counter(from int) string {
	if from == nemesis.Clients {
		return "from-clients"
	}
	return fmt.Sprintf("from-%d", from)
}

// sources are the addresses from which packets of one end come.
func sources(from int) string {
	if from == nemesis.Clients {
		return clientsAddr
	}
	return nodeAddr(from) + ", " + faceAddr(from)
}

// shape replaces what happens to packets from one end, in one step for all.
func (w *wall) shape(from int, s nemesis.Shape) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	next := maps.Clone(w.shapes)
	next[from] = s
	var script strings.Builder
	script.WriteString("flush chain inet faults in\n")
	for _, end := range slices.Sorted(maps.Keys(next)) {
		s := next[end]
		fmt.Fprintf(&script, "add counter inet faults %s\n", counter(end))
		for _, verdict := range verdicts(s, counter(end)) {
			only := ""
			if w.only != "" {
				only = "ip daddr " + w.only + " "
			}
			fmt.Fprintf(&script, "add rule inet faults in ip saddr { %s } %s%s\n", sources(end), only, verdict)
		}
	}
	if _, err := w.space.run(script.String(), "nft", "-f", "-"); err != nil {
		return err
	}
	w.shapes = next
	return nil
}

// verdicts are the ends of the rules that a shape needs.
func verdicts(s nemesis.Shape, counter string) (v []string) {
	if s.Cut {
		v = append(v, fmt.Sprintf("counter name %q drop", counter))
	}
	if s.Reset {
		v = append(v, fmt.Sprintf("meta l4proto tcp counter name %q reject with tcp reset", counter))
	}
	if s.Loss > 0 {
		const parts = 10_000
		v = append(v, fmt.Sprintf("numgen random mod %d < %d counter name %q drop", parts, max(1, int(s.Loss*parts)), counter))
	}
	return v
}

// counts reads how many packets of each end did not pass so far.
func (w *wall) counts() (map[string]uint64, error) {
	out, err := w.space.run("", "nft", "-j", "list", "counters", "table", "inet", "faults")
	if err != nil {
		return nil, err
	}
	var answer struct {
		Nftables []struct {
			Counter *struct {
				Name    string `json:"name"`
				Packets uint64 `json:"packets"`
			} `json:"counter"`
		} `json:"nftables"`
	}
	if err := json.Unmarshal([]byte(out), &answer); err != nil {
		return nil, fmt.Errorf("the counters of nft: %w", err)
	}
	counts := map[string]uint64{}
	for _, item := range answer.Nftables {
		if item.Counter != nil {
			counts[item.Counter.Name] = item.Counter.Packets
		}
	}
	return counts, nil
}
