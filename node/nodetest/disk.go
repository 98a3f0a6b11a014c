package nodetest

import (
	"errors"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"raftboard/node"
)

// Disk is what a node has stored. It outlives the node, and it can stall and fail.
type Disk struct {
	log   *raft.InmemStore
	snaps *raft.InmemSnapshotStore

	mu    sync.Mutex
	until time.Time
	err   error
}

// NewDisk makes an empty disk.
func NewDisk() *Disk {
	return &Disk{log: raft.NewInmemStore(), snaps: raft.NewInmemSnapshotStore()}
}

// Copy is another disk that holds what this one does now. Of the stable values it holds
// those that raft writes.
func (d *Disk) Copy() (*Disk, error) {
	c := NewDisk()
	c.snaps = d.snaps // only ever replaced as a whole, and a copy takes none before it is told apart
	first, err := d.log.FirstIndex()
	last, err2 := d.log.LastIndex()
	err = errors.Join(err, err2)
	for i := first; err == nil && first > 0 && i <= last; i++ {
		var entry raft.Log
		if err = d.log.GetLog(i, &entry); err == nil {
			err = c.log.StoreLog(&entry)
		}
	}
	for _, key := range []string{"CurrentTerm", "LastVoteTerm"} {
		if v, e := d.log.GetUint64([]byte(key)); e == nil {
			err = errors.Join(err, c.log.SetUint64([]byte(key), v))
		}
	}
	if v, e := d.log.Get([]byte("LastVoteCand")); e == nil {
		err = errors.Join(err, c.log.Set([]byte("LastVoteCand"), v))
	}
	return c, err
}

// Stores are the disk as a node opens it.
func (d *Disk) Stores() node.Stores {
	return node.Stores{Log: diskLog{d.log, d}, Stable: diskStable{d.log, d}, Snapshots: d.snaps, Where: "memory"}
}

// Stall makes every write that begins in the next while wait until it is over. A write holds
// raft's main goroutine, so this also stands in for a paused process.
func (d *Disk) Stall(length time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.until = time.Now().Add(length)
}

// Fail makes every write fail with an error; nil mends the disk.
func (d *Disk) Fail(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.err = err
}

// write waits for a stall to end and says whether the write may happen.
func (d *Disk) write() error {
	d.mu.Lock()
	until := d.until
	d.mu.Unlock()
	time.Sleep(time.Until(until))
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.err
}

type diskLog struct {
	raft.LogStore
	d *Disk
}

func (l diskLog) StoreLog(e *raft.Log) error { return l.StoreLogs([]*raft.Log{e}) }

func (l diskLog) StoreLogs(entries []*raft.Log) error {
	if err := l.d.write(); err != nil {
		return err
	}
	return l.LogStore.StoreLogs(entries)
}

func (l diskLog) DeleteRange(from, to uint64) error {
	if err := l.d.write(); err != nil {
		return err
	}
	return l.LogStore.DeleteRange(from, to)
}

type diskStable struct {
	raft.StableStore
	d *Disk
}

func (s diskStable) Set(key, value []byte) error {
	if err := s.d.write(); err != nil {
		return err
	}
	return s.StableStore.Set(key, value)
}

func (s diskStable) SetUint64(key []byte, v uint64) error {
	if err := s.d.write(); err != nil {
		return err
	}
	return s.StableStore.SetUint64(key, v)
}
