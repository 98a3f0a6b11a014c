package node_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"raftboard/node"
	"raftboard/node/nodetest"
)

// pictures are copies of a node's data directory at each moment in which one more part of a
// snapshot was written, or was read for a restore: what a kill -9 at that moment leaves.
type pictures struct {
	t    *testing.T
	from string

	mu   sync.Mutex
	on   bool
	dirs []string
}

func (p *pictures) take() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.on {
		return
	}
	dir := filepath.Join(p.t.TempDir(), "killed")
	if err := os.CopyFS(dir, os.DirFS(p.from)); err != nil {
		p.t.Error(err)
	}
	p.dirs = append(p.dirs, dir)
}

// pictured are the snapshots of a node of which pictures are taken.
type pictured struct {
	raft.SnapshotStore
	p    *pictures
	part int // bytes that are written or read between two pictures
}

func (s pictured) Create(v raft.SnapshotVersion, index, term uint64, conf raft.Configuration, confIndex uint64,
	tr raft.Transport) (raft.SnapshotSink, error) {
	s.p.take()
	sink, err := s.SnapshotStore.Create(v, index, term, conf, confIndex, tr)
	s.p.take()
	return picturedSink{sink, s}, err
}

func (s pictured) Open(id string) (*raft.SnapshotMeta, io.ReadCloser, error) {
	meta, rc, err := s.SnapshotStore.Open(id)
	return meta, picturedReader{rc, s}, err
}

type picturedSink struct {
	raft.SnapshotSink
	s pictured
}

// Write writes in small parts; what the store buffers, a kill takes.
func (k picturedSink) Write(b []byte) (written int, err error) {
	for part := range slices.Chunk(b, k.s.part) {
		n, err := k.SnapshotSink.Write(part)
		if written += n; err != nil {
			return written, err
		}
		k.s.p.take()
	}
	return written, nil
}

func (k picturedSink) Close() error {
	k.s.p.take()
	err := k.SnapshotSink.Close()
	k.s.p.take()
	return err
}

type picturedReader struct {
	io.ReadCloser
	s pictured
}

func (r picturedReader) Read(b []byte) (int, error) {
	r.s.p.take()
	return r.ReadCloser.Read(b[:min(len(b), r.s.part)])
}

// opened opens the stores of a data directory, which is given up with them.
func opened(t *testing.T, path, name string, log hclog.Logger) node.Stores {
	dir, err := node.OpenDir(path, node.Want{NodeName: name})
	if err != nil {
		t.Fatal(err)
	}
	s, err := node.OpenStores(dir, log)
	if err != nil {
		t.Fatal(err)
	}
	stores := s.Close
	s.Close = func() error { return errors.Join(stores(), dir.Close()) }
	return s
}

// onPaths is a cluster whose nodes have the data directories that paths say at the moment.
func onPaths(t *testing.T, paths []string, wrap func(i int, s node.Stores) node.Stores, log hclog.Logger) *nodetest.Cluster {
	return nodetest.Start(t, nodetest.Options{Nodes: len(paths),
		Configure: func(_ int, cfg *node.Config) {
			cfg.TrailingLogs, cfg.SnapshotThreshold, cfg.Logger = 1, 1<<30, log // snapshots only when asked
		},
		Stores: func(i int) node.Stores {
			s := opened(t, paths[i], fmt.Sprintf("n%d", i), log)
			if wrap != nil {
				s = wrap(i, s)
			}
			return s
		}})
}

func paths(t *testing.T, n int) (paths []string) {
	for i := range n {
		paths = append(paths, filepath.Join(t.TempDir(), fmt.Sprint(i)))
	}
	return paths
}

// boards writes some, and a snapshot of them on the given nodes.
func boards(t *testing.T, c *nodetest.Cluster, from, to int, on ...int) {
	t.Helper()
	for i := from; i < to; i++ {
		mustPropose(t, c.WaitLeader().Node, create(fmt.Sprintf("b%d", i)))
	}
	c.WaitSame()
	for _, i := range on {
		time.Sleep(time.Second) // snapshots are named by their time
		snapshot(t, c.Members[i].Node)
	}
}

func hasBoards(t *testing.T, n *node.Node, count int, when string) {
	t.Helper()
	for i := range count {
		if n.View().Board(fmt.Sprintf("b%d", i)) == nil {
			t.Errorf("%s: board b%d is gone", when, i)
		}
	}
}

// some are at most n of the pictures, spread evenly, the first and the last among them.
func (p *pictures) some(n int) (dirs []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.on = false
	n = min(n, len(p.dirs))
	for i := range n {
		dirs = append(dirs, p.dirs[i*(len(p.dirs)-1)/max(1, n-1)])
	}
	return dirs
}

// T-82, the first half of its twenty points: the kill comes while a snapshot is written.
func TestT82ANodeKilledAtTenPointsOfASnapshotStartsFromThePreviousOne(t *testing.T) {
	where := paths(t, 1)
	home := where[0]
	synctest.Test(t, func(t *testing.T) {
		p := &pictures{t: t, from: home}
		c := onPaths(t, where, func(_ int, s node.Stores) node.Stores {
			s.Snapshots = pictured{s.Snapshots, p, 256}
			return s
		}, nil)
		boards(t, c, 0, 5, 0)
		boards(t, c, 5, 10)
		p.on = true
		time.Sleep(time.Second)
		snapshot(t, c.Members[0].Node)
		killed := p.some(10)
		if len(killed) < 10 {
			t.Fatalf("only %d moments", len(killed))
		}
		want := c.Members[0].Node.View().Digest()
		index := c.Members[0].Node.View().Applied()
		for i, dir := range killed {
			c.Crash(0)
			where[0] = dir
			c.Restart(0)
			n := c.WaitLeader().Node
			hasBoards(t, n, 10, fmt.Sprint("killed at point ", i))
			if got, known := n.View().DigestAt(index); known && got != want {
				t.Errorf("killed at point %d: the digest at %d is another one", i, index)
			}
			snapshot(t, n) // what the kill left is in nobody's way
		}
	})
}

// T-82, the second half: the kill comes while a follower installs a snapshot.
func TestT82AFollowerKilledAtTenPointsOfARestoreCatchesUp(t *testing.T) {
	where := paths(t, 3)
	synctest.Test(t, func(t *testing.T) {
		var late int
		var p *pictures
		c := onPaths(t, where, func(i int, s node.Stores) node.Stores {
			if p != nil && i == late {
				s.Snapshots = pictured{s.Snapshots, p, 256}
			}
			return s
		}, nil)
		boards(t, c, 0, 2)
		late = (c.WaitLeader().Index + 1) % 3
		c.Crash(late)
		for i := range 4 {
			boards(t, c, 2+4*i, 6+4*i, (late+1)%3, (late+2)%3)
		}
		p = &pictures{t: t, from: where[late], on: true}
		c.Restart(late)
		c.WaitSame()
		killed := p.some(10)
		if len(killed) < 10 || c.Members[late].Node.Status().LastRestore < 0 {
			t.Fatalf("only %d moments of a restore", len(killed))
		}
		for i, dir := range killed {
			c.Crash(late)
			where[late] = dir
			c.Restart(late)
			c.WaitSame()
			hasBoards(t, c.Members[late].Node, 18, fmt.Sprint("killed at point ", i))
			if err := c.Members[late].Died(); err != nil {
				t.Errorf("killed at point %d it stopped: %v", i, err)
			}
		}
	})
}

// newest are the directories of the snapshots of a data directory, the newest first.
func newest(t *testing.T, path string) (dirs []string) {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(path, "raft", "snapshots", "*-*-*"))
	if err != nil || len(found) < 2 {
		t.Fatalf("snapshots %v, %v", found, err)
	}
	index := func(dir string) (n int) { // names are term-index-time
		if _, err := fmt.Sscanf(strings.SplitN(filepath.Base(dir), "-", 2)[1], "%d", &n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	slices.SortFunc(found, func(a, b string) int { return index(b) - index(a) })
	return found
}

// content are the state files of the two newest snapshots.
func content(t *testing.T, path string) (files [2]string, raw [2][]byte) {
	t.Helper()
	for i, dir := range newest(t, path)[:2] {
		files[i] = filepath.Join(dir, "state.bin")
		var err error
		if raw[i], err = os.ReadFile(files[i]); err != nil {
			t.Fatal(err)
		}
	}
	return files, raw
}

// damages are what T-82 does to the snapshots of a node that is down.
func damages(t *testing.T) map[string]func(path string) {
	write := func(file string, raw []byte) {
		t.Helper()
		if err := os.WriteFile(file, raw, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	rename := func(from, to string) {
		t.Helper()
		if err := os.Rename(from, to); err != nil {
			t.Fatal(err)
		}
	}
	return map[string]func(path string){
		"cut": func(path string) {
			files, raw := content(t, path)
			write(files[0], raw[0][:len(raw[0])/2])
		},
		"empty": func(path string) {
			files, _ := content(t, path)
			write(files[0], nil)
		},
		"a bit flipped": func(path string) {
			files, raw := content(t, path)
			raw[0][len(raw[0])/3] ^= 4
			write(files[0], raw[0])
		},
		"a bit of its meta flipped": func(path string) {
			file := filepath.Join(newest(t, path)[0], "meta.json")
			raw, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			raw[0] ^= 4
			write(file, raw)
		},
		"contents exchanged": func(path string) { // with the checksums that belong to them
			dirs := newest(t, path)
			files, _ := content(t, path)
			sums := [2]any{}
			metas := [2]map[string]any{}
			for i := range files {
				raw, err := os.ReadFile(filepath.Join(dirs[i], "meta.json"))
				if err = errors.Join(err, json.Unmarshal(raw, &metas[i])); err != nil {
					t.Fatal(err)
				}
				sums[i] = metas[i]["CRC"]
			}
			rename(files[0], files[0]+"x")
			rename(files[1], files[0])
			rename(files[0]+"x", files[1])
			for i := range files {
				metas[i]["CRC"] = sums[1-i]
				raw, err := json.Marshal(metas[i])
				if err != nil {
					t.Fatal(err)
				}
				write(filepath.Join(dirs[i], "meta.json"), raw)
			}
		},
		"states and metas exchanged": func(path string) {
			dirs := newest(t, path)
			rename(dirs[0], dirs[0]+"x")
			rename(dirs[1], dirs[0])
			rename(dirs[0]+"x", dirs[1])
		},
	}
}

// T-82: the newest snapshot is damaged on one of three nodes, which then starts from the one
// before and its log, or says how to join anew; never does it show another state.
func TestT82ANodeWithABrokenSnapshotStartsFromThePreviousOneAndSaysWhich(t *testing.T) {
	for name, damage := range damages(t) {
		t.Run(name, func(t *testing.T) {
			where := paths(t, 3)
			synctest.Test(t, func(t *testing.T) {
				said := &heard{}
				c := onPaths(t, where, nil, hclog.New(&hclog.LoggerOptions{Output: said, Level: hclog.Warn}))
				for i := range 4 {
					boards(t, c, 3*i, 3*i+3, 0, 1, 2)
				}
				boards(t, c, 12, 15)
				victim := (c.WaitLeader().Index + 1) % 3
				c.Crash(victim)
				bad := filepath.Base(newest(t, where[victim])[0])
				damage(where[victim])
				err := c.TryRestart(victim)
				var dir *node.DirError
				switch {
				case errors.As(err, &dir) && strings.Contains(dir.Hint, "raftboard node remove"):
					t.Logf("it does not start: %v; %s", err, dir.Hint)
					return // from peers, as a new member: TestT85 of transport does what it says
				case err != nil:
					t.Fatal(err)
				}
				mustPropose(t, c.WaitLeader().Node, create("after"))
				c.WaitSame()
				hasBoards(t, c.Members[victim].Node, 15, name)
				time.Sleep(time.Minute) // ticks carry digests
				for _, m := range c.Members {
					if m.Died() != nil {
						t.Errorf("%s stopped: %v", m.Name, m.Died())
					}
				}
				if !strings.Contains(said.text(), bad) {
					t.Errorf("nothing names the bad snapshot %s: %s", bad, said.text())
				}
			})
		})
	}
}

// heard keeps what is logged.
type heard struct {
	mu sync.Mutex
	b  strings.Builder
}

func (h *heard) Write(b []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.b.Write(b)
}

func (h *heard) text() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.b.String()
}

func TestT82ALogThatLacksWhatItsSnapshotWasOfIsRefusedAndNoPanic(t *testing.T) {
	where := paths(t, 1)
	synctest.Test(t, func(t *testing.T) {
		c := onPaths(t, where, nil, nil)
		for i := range 4 {
			boards(t, c, 3*i, 3*i+3, 0)
		}
		boards(t, c, 12, 15)
		c.Crash(0)
		for _, dir := range newest(t, where[0]) {
			if err := os.RemoveAll(dir); err != nil {
				t.Fatal(err)
			}
		}
		var dir *node.DirError
		if err := c.TryRestart(0); !errors.As(err, &dir) || !strings.Contains(dir.What, "a snapshot or a part of the log is missing") || dir.Hint == "" {
			t.Errorf("without its snapshots the start answers %v", err)
		}
	})
}
