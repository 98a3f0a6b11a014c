package node

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"time"

	"raftboard/jepsen/planted"
)

// dirFormat is the format of the data directory; another one is refused.
const dirFormat = 1

// The files of a data directory; doc.go shows the whole layout.
const (
	versionFile    = "VERSION"
	identityFile   = "identity.json"
	intentFile     = "intent.json"
	lockFile       = "LOCK"
	raftDirName    = "raft"
	logFileName    = "log.db"
	stableFileName = "stable.db"
	// logStoreBolt is the one kind of log store there is so far.
	logStoreBolt = "boltdb"
)

// Identity is who a data directory belongs to. It is written once and then only completed.
type Identity struct {
	NodeID      string `json:"node_id"`
	NodeName    string `json:"node_name"`
	ClusterID   string `json:"cluster_id,omitempty"` // empty: not a member of anything yet
	ClusterName string `json:"cluster_name,omitempty"`
	LogStore    string `json:"log_store"`
	HasState    bool   `json:"has_state,omitempty"` // raft state was made here once
	HeartbeatMs int64  `json:"heartbeat_ms,omitempty"`
	ElectionMs  int64  `json:"election_ms,omitempty"`
	LeaseMs     int64  `json:"lease_ms,omitempty"`
}

// DirError says what is wrong with a data directory, and the way back.
type DirError struct {
	Dir   string
	What  string
	Hint  string
	Cause error
}

func (e *DirError) Error() string { return fmt.Sprintf("data directory %s: %s", e.Dir, e.What) }
func (e *DirError) Unwrap() error { return e.Cause }

// Dir is a data directory that this process owns until Close.
type Dir struct {
	path string
	lock *os.File

	mu sync.Mutex
	id Identity
}

// Want is what the process expects of a directory. An empty field expects nothing.
type Want struct {
	NodeName    string // of a fresh directory: the name it gets
	ClusterID   string
	ClusterName string
	LogStore    string
	Timing      Timing
}

// nodeName is a constant: the grammar of node names.
var nodeName = regexp.MustCompile(`^[a-z0-9]([a-z0-9._-]{0,62}[a-z0-9])?$`)

// OpenDir takes a data directory, or makes one. A directory of another format, node, cluster
// or log store is refused and left as it is; so is one that another process uses.
func OpenDir(path string, want Want) (*Dir, error) {
	if want.LogStore == "" {
		want.LogStore = logStoreBolt
	}
	if want.LogStore != logStoreBolt {
		return nil, &DirError{Dir: path, Hint: "use " + logStoreBolt,
			What: fmt.Sprintf("log store %q is not known", want.LogStore)}
	}
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, storeError(path, err)
	}
	lock, err := lockDir(path)
	if err != nil {
		return nil, err
	}
	d := &Dir{path: path, lock: lock}
	if err := d.load(want); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

func lockDir(path string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(path, lockFile), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, storeError(path, err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, &DirError{Dir: path, What: "it is in use by another raftboard process", Cause: err,
				Hint: "stop that process, or give this one its own --data-dir"}
		}
		return nil, storeError(path, err)
	}
	return f, nil
}

func (d *Dir) load(want Want) error {
	version, err := os.ReadFile(filepath.Join(d.path, versionFile))
	switch {
	case errors.Is(err, os.ErrNotExist):
		return d.create(want)
	case err != nil:
		return storeError(d.path, err)
	}
	if got, ours := strings.TrimSpace(string(version)), fmt.Sprintf("raftboard %d", dirFormat); got != ours {
		return &DirError{Dir: d.path, What: fmt.Sprintf("it says %q, this binary reads %q", got, ours),
			Hint: "run the binary that wrote it, or give this one another --data-dir"}
	}
	raw, err := os.ReadFile(filepath.Join(d.path, identityFile))
	if err != nil {
		return &DirError{Dir: d.path, What: "its identity cannot be read: " + err.Error(), Cause: err, Hint: lostIdentityHint}
	}
	dec := json.NewDecoder(strings.NewReader(string(raw)))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&d.id); err != nil || d.id.NodeID == "" || d.id.NodeName == "" {
		return &DirError{Dir: d.path, Cause: err, Hint: lostIdentityHint,
			What: fmt.Sprintf("%s is damaged (%v)", identityFile, err)}
	}
	return d.compare(want)
}

const lostIdentityHint = "nothing was changed; restore the file from a copy, or move the directory aside, " +
	"remove the node from the cluster (`raftboard node remove NAME`), let its name in again (`raftboard node add NAME`) " +
	"and join again with an empty one as a new member; " + aloneHint

// create makes a fresh directory; one that holds anything else is somebody else's.
func (d *Dir) create(want Want) error {
	entries, err := os.ReadDir(d.path)
	if err != nil {
		return storeError(d.path, err)
	}
	for _, e := range entries {
		// An identity without a version is a first start that was cut short.
		if n := e.Name(); n != lockFile && n != identityFile && !strings.HasSuffix(n, ".tmp") {
			return &DirError{Dir: d.path,
				What: fmt.Sprintf("it has no %s but holds %q: it is not a raftboard data directory", versionFile, n),
				Hint: fmt.Sprintf("give an empty directory with --data-dir, or, if it is one, write the missing file again: "+
					"it holds the line `raftboard %d`", dirFormat)}
		}
	}
	if !nodeName.MatchString(want.NodeName) {
		return &DirError{Dir: d.path, What: fmt.Sprintf("node name %q is not usable", want.NodeName),
			Hint: "use 1 to 64 of a-z 0-9 . _ - and start and end with a letter or digit"}
	}
	id, err := NewID()
	if err != nil {
		return err
	}
	if planted.Bug("M37") { // the bug: the id is made of the name, so an empty directory gets it back
		id = fmt.Sprintf("%08x-0000-4000-8000-000000000000", crc32.ChecksumIEEE([]byte(want.NodeName)))
	}
	d.id = Identity{NodeID: id, NodeName: want.NodeName, LogStore: want.LogStore}
	d.id.setTiming(want.Timing)
	if err := d.save(); err != nil {
		return err
	}
	// The version comes last: it makes the directory one of ours.
	return d.write(versionFile, fmt.Appendf(nil, "raftboard %d\n", dirFormat))
}

func (d *Dir) compare(want Want) error {
	refuse := func(what, has, wants, hint string) error {
		return &DirError{Dir: d.path, What: fmt.Sprintf("it belongs to %s %q, not to %q", what, has, wants), Hint: hint}
	}
	switch id := &d.id; {
	case want.NodeName != "" && id.NodeName != want.NodeName:
		return refuse("node", id.NodeName, want.NodeName,
			fmt.Sprintf("start it with --node-name %s, or give this node another --data-dir", id.NodeName))
	case want.ClusterID != "" && id.ClusterID != "" && id.ClusterID != want.ClusterID:
		return refuse("cluster", id.ClusterID, want.ClusterID,
			"join that cluster's nodes, or give an empty --data-dir to become a new member here")
	case want.ClusterName != "" && id.ClusterName != "" && id.ClusterName != want.ClusterName:
		return refuse("cluster", id.ClusterName, want.ClusterName,
			fmt.Sprintf("start it with --cluster-name %s, or give an empty --data-dir", id.ClusterName))
	case id.LogStore != want.LogStore:
		return refuse("log store", id.LogStore, want.LogStore, "start it with --log-store "+id.LogStore+
			"; a node changes its log store by joining again as a new member")
	}
	if before := d.id; want.Timing != (Timing{}) {
		if d.id.setTiming(want.Timing); d.id != before {
			return d.save()
		}
	}
	return nil
}

func (id *Identity) setTiming(t Timing) {
	id.HeartbeatMs, id.ElectionMs, id.LeaseMs = t.Heartbeat.Milliseconds(), t.Election.Milliseconds(), t.Lease.Milliseconds()
}

// Timing is what the node ran with last; zero when nothing is recorded.
func (id Identity) Timing() Timing {
	ms := func(n int64) time.Duration { return time.Duration(n) * time.Millisecond }
	return Timing{Heartbeat: ms(id.HeartbeatMs), Election: ms(id.ElectionMs), Lease: ms(id.LeaseMs)}
}

// Path is where the directory is.
func (d *Dir) Path() string { return d.path }

// Identity is a copy of who the directory belongs to.
func (d *Dir) Identity() Identity {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.id
}

// SetCluster makes a fresh directory a member's. It happens once; the same cluster again is fine.
func (d *Dir) SetCluster(id, name string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.id.ClusterID == id && d.id.ClusterName == name {
		return nil
	}
	if d.id.ClusterID != "" {
		return &DirError{Dir: d.path, Hint: "give an empty --data-dir to become a new member there",
			What: fmt.Sprintf("it belongs to cluster %q (%s), not to %q (%s)", d.id.ClusterName, d.id.ClusterID, name, id)}
	}
	if id == "" {
		return fmt.Errorf("node: a cluster needs an id")
	}
	before := d.id
	d.id.ClusterID, d.id.ClusterName = id, name
	if err := d.saveLocked(); err != nil {
		d.id = before
		return err
	}
	return nil
}

func (d *Dir) markState() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.id.HasState {
		return nil
	}
	d.id.HasState = true
	return d.saveLocked()
}

// Close gives the directory up.
func (d *Dir) Close() error { return d.lock.Close() }

func (d *Dir) save() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.saveLocked()
}

func (d *Dir) saveLocked() error {
	raw, err := json.MarshalIndent(d.id, "", "  ")
	if err != nil {
		return err
	}
	return d.write(identityFile, append(raw, '\n'))
}

// write replaces a file of the directory as a whole: written beside it, synced, renamed.
func (d *Dir) write(name string, content []byte) error {
	if err := ReplaceFile(filepath.Join(d.path, name), content); err != nil {
		return storeError(d.path, err)
	}
	return nil
}

// ReplaceFile puts content at path so that a crash leaves the old file or the new one.
func ReplaceFile(path string, content []byte) error {
	tmp := path + ".tmp"
	f, err := os.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(tmp, path); err != nil {
		return err
	}
	return syncDir(filepath.Dir(path))
}

func syncDir(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// NewID makes a random UUID (version 4): a node's id, which is also its raft address, or a cluster's.
func NewID() (string, error) {
	var b [16]byte
	if _, err := rand.Read(b[:]); err != nil {
		return "", err
	}
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[0:4], b[4:6], b[6:8], b[8:10], b[10:]), nil
}
