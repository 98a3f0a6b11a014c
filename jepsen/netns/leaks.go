package netns

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"raftboard/jepsen/history"
)

const (
	// idleFiles is how many descriptors a node may have when no client is left: its files, its
	// listeners, and some connections to each of its peers. One at rest among three has 22.
	idleFiles = 64
	// idlePatience is how long a node may take to notice that its clients have gone.
	idlePatience = 5 * time.Second
)

// leaks looks, when all clients are gone, for descriptors that nodes keep (G5).
func leaks(nodes []*node) []history.Note {
	var looking sync.WaitGroup
	found := make([]string, len(nodes))
	for i, n := range nodes {
		looking.Go(func() { found[i] = n.leaks() })
	}
	looking.Wait()
	var notes []history.Note
	for i, text := range found {
		if text != "" {
			notes = append(notes, history.Note{Kind: history.NoteLeak, Node: nodes[i].name, Text: text})
		}
	}
	return notes
}

func (n *node) leaks() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	for began := time.Now(); n.alive(); time.Sleep(20 * time.Millisecond) {
		pid := n.life.cmd.Process.Pid
		files, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
		if err != nil || len(files) <= idleFiles {
			break // nothing to find, or it has just ended
		}
		if states, err := threads(pid); err != nil || strings.Contains(states, "T") {
			break // the run broke off while it was stopped: it cannot let go of anything
		}
		if time.Since(began) > idlePatience {
			return fmt.Sprintf("it has %d descriptors %v after its last client went; at most %d are expected",
				len(files), idlePatience, idleFiles)
		}
	}
	return ""
}
