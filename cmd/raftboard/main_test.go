package main

import (
	"bufio"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// TestMain lets the test binary be raftboard itself when it is called by that name: the scripts
// below, and the processes the demo starts, run the real thing.
func TestMain(m *testing.M) {
	// These tests mostly wait: for leases to run out, for elections. A flag of the command line still wins.
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
	testscript.Main(m, map[string]func(){"raftboard": func() { os.Exit(realMain()) }})
}

func TestTranscripts(t *testing.T) {
	t.Parallel()
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		Deadline:            time.Now().Add(80 * time.Second), // a watch that waits in vain is a failure, not a pause
		Setup: func(env *testscript.Env) error {
			env.Setenv("RAFTBOARD_AS", "worker-1")
			env.Setenv("TMPDIR", env.WorkDir)
			readme, err := filepath.Abs("../../README.md")
			env.Setenv("README", readme)
			return err
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"dev": cmdDev, "exits": cmdExits, "capture": cmdCapture, "port": cmdPort, "busy": cmdBusy, "serve": cmdServe, "stop": cmdStop,
			"samebytes": cmdSameBytes, "unescape": cmdUnescape,
			"completes": cmdCompletes, "transcript": cmdTranscript,
		},
	})
}

// child is a server a script started.
type child struct {
	cmd   *exec.Cmd
	lines chan string // of stderr, until it ends
	ended chan error
}

// start runs the binary in the background and reads its stderr line by line.
func start(ts *testscript.TestScript, args ...string) *child {
	self, err := os.Executable()
	ts.Check(err)
	cmd := exec.Command(self, args...)
	cmd.Args[0] = "raftboard"
	cmd.Dir, cmd.Env = ts.MkAbs("."), append(os.Environ(), "TMPDIR="+ts.Getenv("TMPDIR"), "HOME="+ts.Getenv("WORK"),
		"RAFTBOARD_AUTH="+ts.Getenv("RAFTBOARD_AUTH"), "TZ="+ts.Getenv("TZ"))
	stderr, err := cmd.StderrPipe()
	ts.Check(err)
	ts.Check(cmd.Start())
	c := &child{cmd: cmd, lines: make(chan string, 1000), ended: make(chan error, 1)}
	go func() { // ends with the process
		for s := bufio.NewScanner(stderr); s.Scan(); {
			c.lines <- s.Text()
		}
		close(c.lines)
		c.ended <- cmd.Wait()
	}()
	ts.Defer(func() {
		cmd.Process.Kill()
		for range c.lines {
		}
		<-c.ended
	})
	return c
}

// await reads stderr until a line holds text.
func (c *child) await(ts *testscript.TestScript, text string) {
	timeout := time.After(30 * time.Second)
	for {
		select {
		case line, open := <-c.lines:
			if !open {
				ts.Fatalf("the server ended without saying %q", text)
			}
			ts.Logf("[server] %s", line)
			if strings.Contains(line, text) {
				return
			}
		case <-timeout:
			ts.Fatalf("the server did not say %q", text)
		}
	}
}

// cmdDev starts a dev node on a free port and points the script at it: dev [FLAGS].
func cmdDev(ts *testscript.TestScript, _ bool, args []string) {
	addr := freeAddr(ts)
	c := start(ts, append([]string{"dev", "--grpc-addr", addr}, args...)...)
	c.await(ts, " is ready.")
	ts.Setenv("RAFTBOARD_ENDPOINTS", addr)
	ts.Setenv("DEV_PID", strconv.Itoa(c.cmd.Process.Pid))
}

// cmdServe starts a node with the given flags and waits until it says TEXT: serve TEXT FLAGS….
func cmdServe(ts *testscript.TestScript, _ bool, args []string) {
	c := start(ts, append([]string{"serve"}, args[1:]...)...)
	c.await(ts, args[0])
	ts.Setenv("DEV_PID", strconv.Itoa(c.cmd.Process.Pid))
}

// cmdStop ends the server started last with SIGTERM and waits for its port to be free: stop ADDR.
func cmdStop(ts *testscript.TestScript, _ bool, args []string) {
	pid, err := strconv.Atoi(ts.Getenv("DEV_PID"))
	ts.Check(err)
	ts.Check(syscall.Kill(pid, syscall.SIGTERM))
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); {
		c, err := net.DialTimeout("tcp", args[0], time.Second)
		if errors.Is(err, syscall.ECONNREFUSED) {
			return
		}
		if err == nil {
			c.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
			c.Read(make([]byte, 1))
			c.Close()
		}
	}
	ts.Fatalf("the server did not stop")
}

// cmdExits runs a command and checks its status: exits N raftboard ARGS….
func cmdExits(ts *testscript.TestScript, _ bool, args []string) {
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		var exit *exec.ExitError
		if !errors.As(err, &exit) {
			ts.Fatalf("%v", err)
		}
		got = exit.ExitCode()
	}
	if got != want {
		ts.Fatalf("exit status %d, want %d", got, want)
	}
}

// cmdCapture keeps the last stdout, without line breaks around it, in a variable: capture NAME.
func cmdCapture(ts *testscript.TestScript, _ bool, args []string) {
	ts.Setenv(args[0], strings.TrimSpace(ts.ReadFile("stdout")))
}

// cmdPort puts a free address into a variable: port NAME.
func cmdPort(ts *testscript.TestScript, _ bool, args []string) { ts.Setenv(args[0], freeAddr(ts)) }

// cmdBusy listens on an address until the script ends: busy NAME.
func cmdBusy(ts *testscript.TestScript, _ bool, args []string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	ts.Check(err)
	ts.Defer(func() { l.Close() })
	ts.Setenv(args[0], l.Addr().String())
}

// cmdCompletes asks for completions until a word is among them: completes WORD ARGS…. A look at the board has
// 300 ms, which a busy machine may miss.
func cmdCompletes(ts *testscript.TestScript, _ bool, args []string) {
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); {
		ts.Check(ts.Exec("raftboard", append([]string{"__complete"}, args[1:]...)...))
		if slices.Contains(strings.Split(ts.ReadFile("stdout"), "\n"), args[0]) {
			return
		}
	}
	ts.Fatalf("%s is not offered", args[0])
}

// cmdSameBytes compares the last stdout with a file, byte for byte: samebytes FILE.
func cmdSameBytes(ts *testscript.TestScript, _ bool, args []string) {
	if got, want := ts.ReadFile("stdout"), ts.ReadFile(args[0]); got != want {
		ts.Fatalf("got  %q\nwant %q", got, want)
	}
}

// cmdUnescape writes a Go string literal's bytes to a file: unescape FILE 'literal'.
func cmdUnescape(ts *testscript.TestScript, _ bool, args []string) {
	text, err := strconv.Unquote(`"` + strings.ReplaceAll(args[1], `"`, `\"`) + `"`)
	ts.Check(err)
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(text), 0o600))
}

func freeAddr(ts *testscript.TestScript) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	ts.Check(err)
	defer l.Close()
	return l.Addr().String()
}

// raftboard runs the binary to its end, in dir, and gives what it said.
func raftboard(t *testing.T, dir string, env []string, args ...string) (stdout, stderr string, status int) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var out, errs strings.Builder
	cmd := exec.CommandContext(t.Context(), self, args...)
	cmd.Args[0] = "raftboard"
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, &out, &errs
	cmd.Env = append(os.Environ(), append([]string{"RAFTBOARD_AS=worker-1", "HOME=" + dir}, env...)...)
	err = cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(fmt.Errorf("%v: %w", args, err))
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}
