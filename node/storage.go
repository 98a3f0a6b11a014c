package node

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	"go.etcd.io/bbolt"

	"raftboard/jepsen/planted"
)

const (
	snapshotsKept = 3               // RAFT P21
	lockTimeout   = 2 * time.Second // a second process gets an error instead of hanging
	logCacheSize  = 128             // entries; 64 MiB at the very most
)

// Stores are where a node keeps its raft state. Open wraps them with the guards of this
// package, so tests may pass stores of their own.
type Stores struct {
	Log       raft.LogStore
	Stable    raft.StableStore
	Snapshots raft.SnapshotStore
	Close     func() error // may be nil
	// Free answers the bytes that are free on the volume; nil: space is not watched.
	Free  func() (uint64, error)
	Where string // the directory, for messages
}

// boltOptions are the tuned options of both bolt files. NoSync is not among them and never
// will be (RAFT P19, P20).
func boltOptions(path string) raftboltdb.Options {
	return raftboltdb.Options{
		Path: path,
		BoltOptions: &bbolt.Options{
			Timeout: lockTimeout, NoFreelistSync: true, FreelistType: bbolt.FreelistMapType,
			NoGrowSync: planted.Bug("M11"),
		},
		NoSync:                  planted.Bug("M11"),
		MsgpackUseNewTimeFormat: newTimeFormat,
	}
}

// OpenStores opens the raft state of a data directory, or makes it on the first start. State
// that was there once and is not there now is an error: a voter that forgot its votes could
// vote twice.
func OpenStores(d *Dir, logger hclog.Logger) (Stores, error) {
	if logger == nil {
		logger = hclog.NewNullLogger()
	}
	base := filepath.Join(d.path, raftDirName)
	logFile, stableFile := filepath.Join(base, logFileName), filepath.Join(base, stableFileName)
	if d.Identity().HasState {
		for _, f := range []string{logFile, stableFile} {
			if _, err := os.Stat(f); err != nil {
				return Stores{}, &DirError{Dir: d.path,
					What: fmt.Sprintf("the raft state of this node is incomplete: %v", err),
					Hint: rejoinHint(d.Identity().NodeID)}
			}
		}
	}
	if err := os.MkdirAll(base, 0o700); err != nil {
		return Stores{}, storeError(d.path, err)
	}
	stable, err := openBoltFile(d, stableFile)
	if err != nil {
		return Stores{}, err
	}
	logs, err := openBoltFile(d, logFile)
	if err != nil {
		return Stores{}, errors.Join(err, stable.Close())
	}
	closeBoth := func() error { return errors.Join(logs.Close(), stable.Close()) }
	snaps, err := raft.NewFileSnapshotStoreWithLogger(base, snapshotsKept, logger)
	if err != nil {
		return Stores{}, errors.Join(storeError(d.path, err), closeBoth())
	}
	if err := errors.Join(syncDir(base), syncDir(d.path), d.markState()); err != nil {
		return Stores{}, errors.Join(err, closeBoth())
	}
	return Stores{Log: Sealed(logs), Stable: stable, Snapshots: snaps, Close: closeBoth, Free: func() (uint64, error) { return diskFree(base) }, Where: d.path}, nil
}

func diskFree(dir string) (uint64, error) {
	var fs syscall.Statfs_t
	if err := syscall.Statfs(dir, &fs); err != nil {
		return 0, err
	}
	return fs.Bavail * uint64(fs.Bsize), nil
}

func openError(dir, file string, err error) error {
	if errors.Is(err, bbolt.ErrTimeout) {
		return &DirError{Dir: dir, What: file + " is in use by another process",
			Hint: "stop the other raftboard that runs on this directory, or give this one its own --data-dir"}
	}
	return &DirError{Dir: dir, What: fmt.Sprintf("%s cannot be opened: %v", file, err), Cause: err,
		Hint: "acknowledged data on the other nodes is safe; if the file is damaged, " +
			"move the directory aside and join again as a new member"}
}

// aloneHint is the way back where there is no healthy node to ask.
const aloneHint = "a node that is its whole cluster goes on from a copy of this directory, " +
	"or moves it aside and begins anew with an empty one and --bootstrap-expect 1"

func rejoinHint(id string) string {
	return fmt.Sprintf("run `raftboard node remove %s` against a healthy node, move this directory aside, "+
		"and start again with an empty one and --join: the node comes back as a new member, "+
		"under its name after `raftboard node add` with that name; ", id) + aloneHint
}
