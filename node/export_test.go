package node

import (
	"time"

	"github.com/hashicorp/raft"
)

// What the tests of the library's faults need from inside.

// Guarded is a transport as a node gives it to raft.
func Guarded(tr Transport) Transport {
	began := time.Now()
	return guardTransport(tr, func() time.Duration { return time.Since(began) })
}

// ClearDivergentLog is what a node does before raft starts.
func ClearDivergentLog(log raft.LogStore, snaps raft.SnapshotStore) error {
	metas, err := snaps.List()
	if err != nil || len(metas) == 0 {
		return err
	}
	_, err = clearDivergentLog(log, metas[0])
	return err
}

// Library is the raft of a node.
func (n *Node) Library() *raft.Raft { return n.raft }

// Suspect makes a node compare digests, as a tick with another digest does.
func (n *Node) Suspect(index uint64) { n.suspect(index) }

// RoleChanged tells Config.Roles what the node is, as a change does.
func (n *Node) RoleChanged() { n.roles.changed() }
