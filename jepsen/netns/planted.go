package netns

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"raftboard/jepsen/nemesis"
)

// noticed is how long a process may take to see that a file of planted faults has changed: it
// looks at most every tenth of a second.
const noticed = 150 * time.Millisecond

// Files that nodes built with the tag "faults" look into, and the variables that name them.
func (n *node) clockFile() string { return filepath.Join(n.dir(), "clock") }
func (n *node) faultFile() string { return filepath.Join(n.dir(), "fault") }

// plant are the variables of a life of a tagged binary.
func (n *node) plant(failpoint string) []string {
	if !n.c.opt.Tagged {
		return nil
	}
	env := []string{"FAULT_CLOCK=" + n.clockFile(), "FAULT_FILE=" + n.faultFile()}
	if failpoint != "" {
		env = append(env, "FAULT="+failpoint)
	}
	return env
}

// fail makes writes of log and votes fail, or lets them succeed again. Called with n.mu held.
func (n *node) fail(whole, short bool) error {
	if !n.c.opt.Tagged {
		return nil
	}
	var points []string
	if short {
		points = append(points, "log-write:1+:short")
	}
	if whole {
		points = append(points, "log-write:1+:eio", "stable-write:1+:eio")
	}
	return n.tell(n.faultFile(), strings.Join(points, ","))
}

// tell replaces a file of planted faults at once, and waits until a process has seen it.
func (n *node) tell(path, text string) error {
	was, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if string(was) == text {
		return nil
	}
	if err := errors.Join(os.WriteFile(path+".next", []byte(text), 0o600), os.Rename(path+".next", path)); err != nil {
		return err
	}
	if n.life != nil {
		time.Sleep(noticed)
	}
	return nil
}

// Clock implements nemesis.Target.
func (c *Cluster) Clock(i int, f nemesis.ClockFault) error {
	if !c.opt.Tagged {
		if f == (nemesis.ClockFault{}) {
			return nil
		}
		return fmt.Errorf("clocks: %w without Options.Tagged", nemesis.ErrUnsupported)
	}
	text := ""
	if f != (nemesis.ClockFault{}) {
		text = fmt.Sprintf("wall=%s drift=%g", f.Wall, f.Drift)
	}
	return c.with(i, func(n *node) error { return n.tell(n.clockFile(), text) })
}

// Failpoint implements nemesis.Target.
func (c *Cluster) Failpoint(i int, spec string) error {
	if !c.opt.Tagged {
		if spec == "" {
			return nil
		}
		return fmt.Errorf("failpoints: %w without Options.Tagged", nemesis.ErrUnsupported)
	}
	return c.with(i, func(n *node) error {
		n.failpoint = spec
		return nil
	})
}
