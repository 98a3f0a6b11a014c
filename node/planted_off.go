//go:build !faults

package node

import (
	"time"

	"github.com/hashicorp/raft"
)

// withFaults are stores as they are.
func withFaults(s Stores) Stores { return s }

func acknowledge([]*proposal) {}

func (n *Node) emitAtAppend([]byte, uint64, bool) {}

func (n *Node) verifyLeader(time.Duration) raft.Future { return nil }
