package transport_test

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"raftboard/fsm"
	boardpb "raftboard/fsm/pb"
	"raftboard/node"
	"raftboard/transport"
	"raftboard/transport/clustertest"
	wirepb "raftboard/transport/pb"
)

// onFiles are nodes with real data directories and many snapshots.
func onFiles(nodes int) clustertest.Options {
	return clustertest.Options{Nodes: nodes, Configure: func(_ int, cfg *transport.Config) {
		cfg.OpenStores = nil
		cfg.SnapshotThreshold, cfg.TrailingLogs, cfg.SnapshotInterval = 5, 1, time.Second
	}}
}

// filesOf are the files of a data directory, those of the newest snapshot first.
func filesOf(t *testing.T, dir string) (files []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			path, err = filepath.Rel(dir, path)
			files = append(files, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Reverse(files)
	return files
}

// without gives a node that is down a copy of its directory that lacks one file.
func without(t *testing.T, m *clustertest.Member, dir, file string) {
	t.Helper()
	m.Dir = filepath.Join(t.TempDir(), "copy")
	if err := errors.Join(os.CopyFS(m.Dir, os.DirFS(dir)), os.Remove(filepath.Join(m.Dir, file))); err != nil {
		t.Fatal(err)
	}
}

// advice is what a start that was refused says is to be done.
func advice(t *testing.T, file string, err error) string {
	t.Helper()
	var dir *node.DirError
	if !errors.As(err, &dir) || dir.Hint == "" {
		t.Fatalf("without %s the start ends with %v: no advice", file, err)
	}
	t.Logf("without %s: %s; %s", file, dir.What, dir.Hint)
	return dir.Hint
}

// line is a constant: the line of a missing file, as the advice gives it.
var line = regexp.MustCompile("write the missing file again: it holds the line `([^`]+)`")

// removal is a constant: whom the advice says to remove.
var removal = regexp.MustCompile("`raftboard node remove ([^`]+)`")

// rewritten does what the advice says about a file that is to be written again.
func rewritten(t *testing.T, m *clustertest.Member, file, advice string) bool {
	t.Helper()
	found := line.FindStringSubmatch(advice)
	if found == nil {
		return false
	}
	if err := os.WriteFile(filepath.Join(m.Dir, file), []byte(found[1]+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return true
}

func TestT85ASingleNodeFindsAWayInWhicheverFileIsGone(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := clustertest.Start(t, onFiles(1))
		for i := range 6 {
			fillSerially(t, c, 0, 10*i, 10*(i+1))
			time.Sleep(3 * time.Second)
		}
		c.Kill(0)
		m := c.Members[0]
		whole := m.Dir
		refusals := 0
		same := func(file, how string) {
			t.Helper()
			c.WaitReady()
			for i := range 60 {
				if got := as(t, c, "w1", 0).value(key(i)); got != "1" {
					t.Errorf("without %s, %s: %s reads %q", file, how, key(i), got)
				}
			}
			c.Kill(0)
		}
		for _, file := range filesOf(t, whole) {
			if _, err := os.Stat(filepath.Join(whole, file)); err != nil {
				continue // of a snapshot that a newer one has replaced since the node went on from the copy
			}
			without(t, m, whole, file)
			err := c.TryRestart(0)
			if err == nil {
				same(file, "started as it is")
				continue
			}
			refusals++
			hint := advice(t, file, err)
			if rewritten(t, m, file, hint) {
				c.Restart(0)
				same(file, "written again")
				continue
			}
			for _, want := range []string{"a copy of this directory", "--bootstrap-expect 1"} {
				if !strings.Contains(hint, want) {
					t.Fatalf("without %s a single node is told %q: there is no other node", file, hint)
				}
			}
			m.Dir = whole // the copy
			c.Restart(0)
			same(file, "gone on from the copy")
			if whole = m.Dir; strings.HasSuffix(file, "log.db") { // the other way: anew
				c.Wipe(0)
				c.Restart(0)
				c.WaitReady()
				as(t, c, "w1", 0).ok(set("results/w1/anew", "1"))
				c.Kill(0)
				m.Dir = whole
			}
		}
		if refusals < 4 {
			t.Errorf("%d starts were refused; the version, the identity and the two stores cannot be missed", refusals)
		}
	})
}

func key(i int) string { return "results/w1/k" + string(rune('a'+i/26)) + string(rune('a'+i%26)) }

func fillSerially(t *testing.T, c *clustertest.Cluster, at, from, to int) {
	t.Helper()
	w := as(t, c, "w1", at)
	for i := from; i < to; i++ {
		w.ok(set(key(i), "1"))
	}
}

func TestT85OneOfThreeFindsAWayInWhicheverFileIsGone(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := clustertest.Start(t, onFiles(3))
		victim := c.Follower()
		m := c.Members[victim]
		for i := range 6 {
			fillSerially(t, c, c.Leader(), 10*i, 10*(i+1))
			time.Sleep(3 * time.Second)
		}
		tried, rejoined := map[string]bool{}, 0
		next := func() string {
			for _, file := range filesOf(t, m.Dir) {
				kind := filepath.Base(file) // one of each kind: of the snapshots the newest
				if !tried[kind] {
					tried[kind] = true
					return file
				}
			}
			return ""
		}
		for {
			c.WaitReady()
			name := m.Name
			c.Kill(victim)
			file := next()
			if file == "" {
				break
			}
			without(t, m, m.Dir, file)
			if err := c.TryRestart(victim); err != nil {
				hint := advice(t, file, err)
				if rewritten(t, m, file, hint) {
					c.Restart(victim)
				} else {
					found := removal.FindStringSubmatch(hint)
					if found == nil {
						t.Fatalf("without %s the advice names no command: %s", file, hint)
					}
					rejoined++
					rejoin(t, c, victim, strings.ReplaceAll(found[1], "NAME", name), name)
				}
			}
			theSameOnEveryNode(t, c)
			fillSerially(t, c, c.Leader(), 0, 12) // new snapshots
			time.Sleep(3 * time.Second)
		}
		if rejoined != 3 {
			t.Errorf("%d times it had to join anew; without its identity and its two stores it must", rejoined)
		}
		c.Restart(victim)
		theSameOnEveryNode(t, c)
	})
}

func TestT85ABackupWhoseCursorIsCompactedTakesAFullOneAndGoesOn(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := clustertest.Start(t, clustertest.Options{})
		fillSerially(t, c, 0, 0, 50)
		w := as(t, c, "w1", c.Follower())
		const cursor = 20 // as far as the backup came before it was off
		for range 3 {
			fillSerially(t, c, 0, 0, 50)
		}
		as(t, c, "op", c.Leader()).ok(&boardpb.Command{IdempotencyKey: "k", Op: &boardpb.Command_BoardCompact{
			BoardCompact: &boardpb.BoardCompact{Name: "default", BeforeRev: 150}}})
		time.Sleep(time.Second)
		if r, _ := watchError(w, fromRev(cursor, "results/**")); r.Code != boardpb.Code_CODE_COMPACTED || r.Hint == "" {
			t.Fatalf("it is told %v", r)
		}
		op, ctx := operator(t, c, c.Follower())
		stream, err := op.Snapshot(ctx, &wirepb.SnapshotRequest{})
		if err != nil {
			t.Fatal(err)
		}
		var full bytes.Buffer
		for chunk, err := stream.Recv(); err == nil; chunk, err = stream.Recv() {
			full.Write(chunk.Data)
		}
		var rev uint64
		copied := map[string]string{}
		if _, err := fsm.ReadSnapshot(&full, func(r *boardpb.SnapshotRecord) error {
			if head := r.GetHead(); head != nil && r.Board == "default" {
				rev = head.Rev
			}
			if e := r.GetEntry(); e != nil {
				copied[e.Key] = string(e.Value)
			}
			return nil
		}); err != nil || rev < 200 || len(copied) < 50 {
			t.Fatalf("the full one has %d keys, rev %d, %v", len(copied), rev, err)
		}
		f := watch(w, fromRev(rev+1, "results/**"))
		w.ok(set(key(3), `"later"`))
		if live := f.events(1)[0]; live.Event.Rev != rev+1 {
			t.Errorf("it goes on with %v, expected rev %d", live.Event, rev+1)
		}
	})
}
