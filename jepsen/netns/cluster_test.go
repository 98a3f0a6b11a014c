package netns_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"raftboard/client"
	boardpb "raftboard/fsm/pb"
	"raftboard/jepsen/history"
	"raftboard/jepsen/nemesis"
	"raftboard/jepsen/netns"
)

// built are the binaries of this test process, each built once.
type built struct {
	once sync.Once
	path string
	err  error
}

var (
	plain, other, tagged built
	workshop             string
)

func TestMain(m *testing.M) {
	var err error
	if dir := os.Getenv(doomed); dir != "" {
		err = doom(dir)
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if workshop, err = os.MkdirTemp("", "netns-test-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	if left := leftBy(os.Getpid()); left != nil {
		fmt.Fprintf(os.Stderr, "FAIL: left behind: %v\n", left)
		code = 1
	}
	os.RemoveAll(workshop)
	os.Exit(code)
}

func (b *built) get(t *testing.T, name string, args ...string) string {
	t.Helper()
	b.once.Do(func() {
		b.path = filepath.Join(workshop, name)
		cmd := exec.Command("go", append(append([]string{"build", "-o", b.path}, args...), "raftboard/cmd/raftboard")...)
		if out, err := cmd.CombinedOutput(); err != nil {
			b.err = fmt.Errorf("%w: %s", err, out)
		}
	})
	if b.err != nil {
		t.Fatal(b.err)
	}
	return b.path
}

// settings are of a board with a place for everybody.
func settings() *boardpb.BoardSettings {
	return &boardpb.BoardSettings{Namespaces: []*boardpb.Namespace{{Pattern: "reg/*", Mode: boardpb.Mode_MODE_SHARED, Purpose: "tests"}}}
}

// needed ends a test on a machine that cannot run it.
func needed(t *testing.T) {
	t.Helper()
	if netns.Needs() != nil {
		t.Skip("NOTHING IS TESTED HERE: " + netns.Needs().Error())
	}
}

// start is a cluster of three in a directory of the test; it is closed with it, and then
// nothing of it may be left.
func start(t *testing.T, change func(*netns.Options)) (*netns.Cluster, *history.Log) {
	t.Helper()
	needed(t)
	log := history.NewLog(history.Run{Workload: "none", Driver: "netns", Board: "b", Nodes: []string{"n1", "n2", "n3"}})
	opt := netns.Options{Nodes: 3, Log: log, Binary: plain.get(t, "raftboard"), Dir: t.TempDir()}
	if change != nil {
		change(&opt)
	}
	c, err := netns.Start(t.Context(), opt)
	if err != nil {
		t.Fatal(err)
	}
	admin := dial(t, c, "admin")
	if _, err := admin.CreateBoard(t.Context(), "b", settings()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		for _, note := range log.History().Notes {
			t.Errorf("%+v", note)
		}
		eventually(t, "nothing left that uses the directory", 5*time.Second, func() bool { return usedBy(opt.Dir) == nil })
		if t.Failed() {
			said(t, opt.Dir)
		}
	})
	return c, log
}

// said logs what the processes said last.
func said(t *testing.T, dir string) {
	logs, _ := filepath.Glob(dir + "/*/life*.log")
	for _, path := range logs {
		text, _ := os.ReadFile(path)
		lines := strings.Split(strings.TrimSpace(string(text)), "\n")
		t.Logf("%s:\n%s", path, strings.Join(lines[max(0, len(lines)-20):], "\n"))
	}
}

// leftBy are the namespaces, cgroups and file systems that a process made and did not remove.
func leftBy(pid int) (left []string) {
	mine := fmt.Sprintf("rbn-%d.", pid)
	for _, in := range []string{"/run/netns", "/sys/fs/cgroup/cpu", "/sys/fs/cgroup"} {
		entries, _ := os.ReadDir(in)
		for _, e := range entries {
			if strings.HasPrefix(e.Name(), mine) {
				left = append(left, filepath.Join(in, e.Name()))
			}
		}
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		left = append(left, err.Error())
	}
	for line := range strings.Lines(string(mounts)) {
		if strings.Contains(line, mine) {
			left = append(left, line)
		}
	}
	return left
}

// usedBy are the processes and loop devices that have to do with a directory.
func usedBy(dir string) (users []string) {
	for _, files := range []string{"/sys/block/loop*/loop/backing_file", "/proc/[0-9]*/cmdline"} {
		paths, _ := filepath.Glob(files)
		for _, path := range paths {
			if text, err := os.ReadFile(path); err == nil && strings.Contains(string(text), dir) {
				users = append(users, fmt.Sprintf("%s: %q", path, text))
			}
		}
	}
	return users
}

// dial is a client that is closed with the test.
func dial(t *testing.T, c *netns.Cluster, name string) *client.Client {
	t.Helper()
	cl, err := c.Dial(name, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cl.Close() })
	return cl
}

// eventually waits until something is so.
func eventually(t *testing.T, what string, most time.Duration, is func() bool) time.Duration {
	t.Helper()
	began := time.Now()
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	for !is() {
		if time.Since(began) > most {
			t.Fatalf("after %v: not yet %s", most, what)
		}
		<-ticker.C
	}
	return time.Since(began)
}

// leader waits for a leader that is none of those excepted.
func leader(t *testing.T, c *netns.Cluster, except ...int) (node int, s nemesis.Status) {
	t.Helper()
	eventually(t, "a leader", 20*time.Second, func() bool {
	nodes:
		for i := range c.Nodes() {
			for _, not := range except {
				if i == not {
					continue nodes
				}
			}
			if got, err := c.Status(t.Context(), i); err == nil && got.Leader {
				node, s = i, got
				return true
			}
		}
		return false
	})
	return node, s
}

// ready waits until all nodes are.
func ready(t *testing.T, c *netns.Cluster) {
	t.Helper()
	eventually(t, "all nodes ready", 30*time.Second, func() bool {
		for i, name := range c.Nodes() {
			if s, err := c.Status(t.Context(), i); name != "" && (err != nil || !s.Ready) {
				return false
			}
		}
		return true
	})
}

// set writes a key, and must be acknowledged in time.
func set(t *testing.T, cl *client.Client, key, value string) *boardpb.Result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	res, err := cl.Board("b").Mutate(ctx, key, func(*boardpb.Entry) ([]byte, error) { return fmt.Appendf(nil, "%q", value), nil })
	if err != nil || res.Outcome != boardpb.Outcome_OUTCOME_OK {
		t.Fatalf("set %s: %v, %v", key, res, err)
	}
	return res
}

func do(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
