package demo

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// process is one child. It ends when its standard input closes, so it never outlives the parent;
// it has a process group of its own, so that Ctrl-C reaches the parent alone.
type process struct {
	name  string
	cmd   *exec.Cmd
	stdin io.WriteCloser
	ended chan struct{}
}

// spawn starts this binary anew under a hidden command. What it says goes to NAME.log in dir.
func spawn(binary, dir, name string, args ...string) (*process, error) {
	log, err := os.OpenFile(filepath.Join(dir, name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close() // the child has its own copy
	cmd := exec.Command(binary, args...)
	cmd.Args[0] = "raftboard"
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, log, log
	cmd.Env = ownEnv()
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting %s: %w", name, err)
	}
	p := &process{name: name, cmd: cmd, stdin: stdin, ended: make(chan struct{})}
	go func() { // ends with the child, which kill ends at the latest
		defer close(p.ended)
		cmd.Wait()
	}()
	return p, nil
}

// ownEnv is the environment without what would configure a command.
func ownEnv() []string {
	var out []string
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "RAFTBOARD_") && !strings.HasPrefix(v, "NOTIFY_SOCKET=") {
			out = append(out, v)
		}
	}
	return out
}

func (p *process) alive() bool {
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

// signal reaches this child and nobody else.
func (p *process) signal(s os.Signal) error {
	if err := p.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("%s: %v: %w", p.name, s, err)
	}
	return nil
}

// kill ends the child as a power cut would, and waits for it. A stopped child dies as well.
func (p *process) kill() {
	if p.signal(os.Kill) == nil {
		<-p.ended
	}
	p.stdin.Close()
}

// stop asks the child to end, and kills it when it takes too long.
func (p *process) stop(patience time.Duration) {
	p.stdin.Close()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-p.ended:
	case <-timer.C:
		p.kill()
	}
}

// lastWords are the end of the child's log, for an error that concerns it.
func (p *process) lastWords() string {
	raw, err := os.ReadFile(filepath.Join(p.cmd.Dir, p.name+".log"))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(raw[max(0, len(raw)-2000):]))
}
