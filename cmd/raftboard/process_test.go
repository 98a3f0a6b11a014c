package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	boardpb "raftboard/fsm/pb"
	"raftboard/node/tracefile"
)

// background is a raftboard process whose stderr is read line by line.
type background struct {
	t     *testing.T
	cmd   *exec.Cmd
	lines chan string
}

func launch(t *testing.T, args ...string) *background {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	b := &background{t: t, cmd: exec.Command(self, args...), lines: make(chan string, 10_000)}
	b.cmd.Args[0] = "raftboard"
	b.cmd.Dir = t.TempDir()
	b.cmd.Env = append(os.Environ(), "RAFTBOARD_AS=worker-1", "TMPDIR="+b.cmd.Dir)
	b.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // what it leaves behind is ended with it
	stderr, err := b.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := b.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { // ends with the process
		defer close(b.lines)
		s := bufio.NewScanner(stderr)
		s.Buffer(nil, 1<<20) // SIGUSR1 writes long lines
		for s.Scan() {
			b.lines <- s.Text()
		}
	}()
	t.Cleanup(func() {
		syscall.Kill(-b.cmd.Process.Pid, syscall.SIGKILL)
		b.cmd.Wait() // an error once it has been waited for
	})
	return b
}

// says waits for a line with text.
func (b *background) says(text string) string {
	b.t.Helper()
	timeout := time.After(30 * time.Second)
	var seen []string
	for {
		select {
		case line, open := <-b.lines:
			if !open {
				b.t.Fatalf("it ended without saying %q: %s", text, strings.Join(seen, "\n"))
			}
			if strings.Contains(line, text) {
				return line
			}
			seen = append(seen, line)
		case <-timeout:
			b.t.Fatalf("it did not say %q: %s", text, strings.Join(seen, "\n"))
		}
	}
}

// ends waits for the end and gives the exit status.
func (b *background) ends() int {
	b.t.Helper()
	for range b.lines {
	}
	b.cmd.Wait()
	return b.cmd.ProcessState.ExitCode()
}

func (b *background) signal(s syscall.Signal) {
	b.t.Helper()
	if err := b.cmd.Process.Signal(s); err != nil {
		b.t.Fatal(err)
	}
}

func listenAddr(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func launchNode(t *testing.T, flags ...string) (*background, string) {
	t.Helper()
	addr := listenAddr(t)
	b := launch(t, append([]string{"serve", "--auth", "off", "--data-dir", t.TempDir(), "--node-name", "n1",
		"--bootstrap-expect", "1",
		"--grpc-addr", addr, "--raft-addr", "127.0.0.1:0", "--admin-addr", "", "--log-format", "text"}, flags...)...)
	b.says("serving")
	return b, addr
}

func TestANodeAnswersItsSignals(t *testing.T) {
	t.Parallel()
	b, addr := launchNode(t)
	if _, stderr, status := raftboard(t, t.TempDir(), nil, "append", "facts/a", "1", "--endpoints", addr); status != 0 {
		t.Fatal(stderr)
	}
	b.signal(syscall.SIGHUP)
	b.says("nothing to reload")
	b.signal(syscall.SIGUSR1)
	if line := b.says("SIGUSR1: state"); !strings.Contains(line, "leader") {
		t.Errorf("the state is not in %q", line)
	}
	b.says("goroutine profile")
	b.signal(syscall.SIGTERM)
	if status := b.ends(); status != 0 {
		t.Errorf("SIGTERM: exit status %d", status)
	}
}

func TestASecondSignalEndsADrainAtOnce(t *testing.T) {
	t.Parallel()
	b, addr := launchNode(t, "--drain-delay", "1h")
	if _, stderr, status := raftboard(t, t.TempDir(), nil, "append", "facts/a", "1", "--endpoints", addr); status != 0 {
		t.Fatal(stderr)
	}
	b.signal(syscall.SIGTERM)
	b.says("stopping")
	b.signal(syscall.SIGTERM)
	if status := b.ends(); status != 130 {
		t.Errorf("exit status %d, want 130", status)
	}
}

// T-13: a killed process leaves no hold behind but its lease, which ends by itself, and a restart under the same
// name is not in its own way.
func TestT13AKilledHolderFreesItsClaimInTime(t *testing.T) {
	t.Parallel()
	node := launch(t, "dev", "--grpc-addr", listenAddr(t))
	ready := node.says(" is ready.")
	endpoint := strings.Fields(ready)[1]
	call := func(args ...string) string {
		t.Helper()
		stdout, stderr, status := raftboard(t, t.TempDir(), []string{"RAFTBOARD_ENDPOINTS=" + endpoint}, args...)
		if status != 0 {
			t.Fatalf("%v: exit status %d, %s", args, status, stderr)
		}
		return stdout
	}
	// A node that has just begun to lead grants everybody the grace: let it pass.
	call("post", "claims/first", "1")
	call("claim", "claims/first", "--ttl", "1s")
	call("watch", "claims/first", "--kinds", "lease_expired", "--count", "1", "--from", "1")
	call("post", "claims/k1", "1")
	holder := launch(t, "run", "--claim", "claims/k1", "--ttl", "2s", "--endpoints", endpoint, "--", "sleep", "3600")
	holder.says("claimed claims/k1")
	began := time.Now()
	syscall.Kill(-holder.cmd.Process.Pid, syscall.SIGKILL)
	call("watch", "claims/k1", "--kinds", "lease_expired", "--count", "1", "--from", "1")
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("the lease of 2 s ended after %v", took)
	}
	if said := call("claim", "claims/k1", "--ttl", "60s"); !strings.Contains(said, "generation 2 ") {
		t.Errorf("%s", said)
	}
}

func TestRunWindsUpWhenItIsInterrupted(t *testing.T) {
	t.Parallel()
	node := launch(t, "dev", "--grpc-addr", listenAddr(t))
	endpoint := strings.Fields(node.says(" is ready."))[1]
	b := launch(t, "run", "--claim", "claims/k", "--endpoints", endpoint, "--", "sh", "-c",
		"trap 'echo wound up >&2; exit 3' TERM; echo up >&2; sleep 3600 & wait")
	b.says("up")
	b.signal(syscall.SIGINT)
	b.says("wound up")
	if status := b.ends(); status != 130 {
		t.Errorf("exit status %d, want 130", status)
	}
	stdout, _, _ := raftboard(t, t.TempDir(), nil, "claims", "--free", "-o", "json", "--endpoints", endpoint)
	if want := `"reason":"interrupted"`; !strings.Contains(stdout, want) {
		t.Errorf("the item was not given back: %s", fmt.Sprint(stdout))
	}
}

// T-93: a first start that is killed half-way is no obstacle for the second.
func TestT93AStartKilledHalfWayCanBeRepeated(t *testing.T) {
	t.Parallel()
	data, addr := t.TempDir(), listenAddr(t)
	first := launch(t, "dev", "--grpc-addr", addr, "--data-dir", data, "--log-level", "debug")
	first.says("raftboard") // the first thing it says, long before it is ready
	first.signal(syscall.SIGKILL)
	first.ends()
	second := launch(t, "dev", "--grpc-addr", addr, "--data-dir", data)
	second.says(" is ready.")
	if _, stderr, status := raftboard(t, t.TempDir(), nil, "append", "facts/a", "1", "--endpoints", addr); status != 0 {
		t.Error(stderr)
	}
}

// A trace is for judging a process from outside, also one that was killed: every write that
// was acknowledged is in it.
func TestTheTraceFileOfAKilledNodeShowsWhatItAcknowledged(t *testing.T) {
	t.Parallel()
	data, trace := t.TempDir(), filepath.Join(t.TempDir(), "trace")
	for life := range 2 {
		b, addr := launchNode(t, "--data-dir", data, "--trace-file", trace, "--snapshot-interval", "100ms",
			"--snapshot-threshold", "1", "--trailing-logs", "1")
		key := fmt.Sprintf("facts/life-%d", life)
		if _, stderr, status := raftboard(t, t.TempDir(), nil, "append", key, "1", "--endpoints", addr); status != 0 {
			t.Fatal(stderr)
		}
		b.signal(syscall.SIGKILL)
		b.ends()
		text, err := os.ReadFile(trace)
		if err != nil {
			t.Fatal(err)
		}
		lives, written := 0, false
		for row := range strings.Lines(string(text)) {
			var l tracefile.Line
			if err := json.Unmarshal([]byte(row), &l); err != nil {
				t.Fatalf("%v: %s", err, row)
			}
			if l.Life != nil {
				lives++
			}
			if l.Applied == nil {
				continue
			}
			cmd := &boardpb.Command{}
			if err := proto.Unmarshal(l.Applied.Command, cmd); err != nil {
				t.Fatal(err)
			}
			written = written || lives == life+1 && cmd.GetAppend().GetKey() == key && l.Applied.Digest != ""
		}
		if lives != life+1 || !written {
			t.Errorf("%d lives, the append is in it: %v:\n%s", lives, written, text)
		}
	}
}

func TestATraceThatCannotBeWrittenIsSaidAtOnce(t *testing.T) {
	t.Parallel()
	_, stderr, status := raftboard(t, t.TempDir(), nil, "serve", "--auth", "off", "--data-dir", t.TempDir(), "--node-name", "n1",
		"--trace-file", "/dev/full")
	if status != 2 || !strings.Contains(stderr, "--trace-file") {
		t.Errorf("exit status %d, %s", status, stderr)
	}
}
