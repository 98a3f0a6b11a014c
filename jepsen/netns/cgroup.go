package netns

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"raftboard/jepsen/nemesis"
)

// period is that of a quota of processor time, in microseconds.
const period = 100_000

// hierarchy is where this machine keeps the cgroups that can limit processor time.
type hierarchy struct {
	root  string
	quota func(share float64) (file, text string)
}

// hierarchies are the places where it may be: version 1, and version 2 in its two usual ones.
func hierarchies() []hierarchy {
	one := func(share float64) (string, string) {
		if share == 0 {
			return "cpu.cfs_quota_us", "-1"
		}
		return "cpu.cfs_quota_us", strconv.Itoa(int(share * period))
	}
	two := func(share float64) (string, string) {
		if share == 0 {
			return "cpu.max", "max " + strconv.Itoa(period)
		}
		return "cpu.max", fmt.Sprintf("%d %d", int(share*period), period)
	}
	return []hierarchy{{"/sys/fs/cgroup/cpu", one}, {"/sys/fs/cgroup", two}, {"/sys/fs/cgroup/unified", two}}
}

// cpuGroups finds the one of this machine.
func cpuGroups() (hierarchy, error) {
	for _, h := range hierarchies() {
		if _, err := os.Stat(filepath.Join(h.root, "cpu.cfs_quota_us")); err == nil {
			return h, nil
		}
		raw, err := os.ReadFile(filepath.Join(h.root, "cgroup.subtree_control"))
		if err == nil && strings.Contains(" "+strings.TrimSpace(string(raw))+" ", " cpu ") {
			return h, nil
		}
	}
	return hierarchy{}, fmt.Errorf("processor time: %w: no cgroup hierarchy here has the controller cpu", nemesis.ErrUnsupported)
}

// group is the cgroup of a node.
func (n *node) group(h hierarchy) string { return filepath.Join(h.root, n.space.name) }

// Starve implements nemesis.Target: a quota of processor time, for this life and those after it.
func (c *Cluster) Starve(i int, share float64) error {
	return c.with(i, func(n *node) error {
		if share == n.share {
			return nil
		}
		if share < 0 || share >= 1 {
			return fmt.Errorf("netns: a share of %v of a core", share)
		}
		n.share = share
		return n.confine()
	})
}

// confine puts the process of a node under its quota. Called with n.mu held.
func (n *node) confine() error {
	h, err := cpuGroups()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(n.group(h), 0o755); err != nil {
		return err
	}
	file, text := h.quota(n.share)
	if err := write(filepath.Join(n.group(h), file), text); err != nil || n.life == nil {
		return err
	}
	return write(filepath.Join(n.group(h), "cgroup.procs"), strconv.Itoa(n.life.cmd.Process.Pid))
}

// release removes the cgroup of a node that is down.
func (n *node) release() error {
	h, err := cpuGroups()
	if err != nil {
		return nil // so there is none
	}
	return dropGroup(n.group(h))
}

// dropGroup removes a cgroup whose processes have ended, or are about to.
func dropGroup(path string) error {
	for began := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		err := os.Remove(path)
		if err == nil || errors.Is(err, os.ErrNotExist) {
			return nil
		}
		if !errors.Is(err, syscall.EBUSY) || time.Since(began) > busyPatience {
			return err
		}
	}
}

// write writes to a file of the kernel.
func write(path, text string) error {
	file, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = file.WriteString(text)
	return errors.Join(err, file.Close())
}
