package netns

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// Sweep removes what runs have left that could not close: it lets hung disks go on, kills the
// processes in their namespaces, and removes file systems, namespaces and cgroups. It looks
// only at names that a process gave which is dead. Directories of runs stay. Two processes may
// sweep at the same time.
func Sweep() error {
	mounts, err := abandonedMounts()
	for _, at := range mounts {
		v := &volume{at: at, mounted: true}
		_ = v.thaw() // it need not be frozen, nor have power
	}
	entries, err2 := os.ReadDir(namespaces)
	if errors.Is(err2, fs.ErrNotExist) {
		err2 = nil // no namespace was ever named here
	}
	err = errors.Join(err, err2)
	for _, e := range entries {
		if abandoned(e.Name()) {
			err = errors.Join(err, unless(filepath.Join(namespaces, e.Name()), endAll(e.Name())))
		}
	}
	for _, at := range mounts {
		v := &volume{at: at, mounted: true}
		if failed := v.unmount(true); !errors.Is(failed, syscall.EINVAL) { // EINVAL: another was faster
			err = errors.Join(err, failed)
		}
	}
	for _, e := range entries {
		if abandoned(e.Name()) {
			err = errors.Join(err, unless(filepath.Join(namespaces, e.Name()), dropSpace(e.Name())))
		}
	}
	return errors.Join(err, sweepGroups())
}

// unless lets an error pass if what it is about is still there: nobody else has swept it.
func unless(path string, err error) error {
	if _, gone := os.Lstat(path); gone != nil {
		return nil
	}
	return err
}

// abandonedMounts are the file systems of dead runs.
func abandonedMounts() (at []string, err error) {
	raw, err := os.ReadFile("/proc/self/mountinfo")
	for line := range strings.Lines(string(raw)) {
		const mountPoint = 4
		if fields := strings.Fields(line); len(fields) > mountPoint && abandoned(fields[mountPoint]) {
			at = append(at, strings.NewReplacer(`\040`, " ", `\011`, "\t", `\134`, `\`).Replace(fields[mountPoint]))
		}
	}
	return at, err
}

func sweepGroups() (err error) {
	for _, h := range hierarchies() {
		entries, none := os.ReadDir(h.root)
		if none != nil {
			continue
		}
		for _, e := range entries {
			if abandoned(e.Name()) {
				path := filepath.Join(h.root, e.Name())
				err = errors.Join(err, unless(path, dropGroup(path)))
			}
		}
	}
	return err
}

// endAll kills every process in a namespace of a dead run.
func endAll(name string) error {
	out, err := tool("", "ip", "netns", "pids", name)
	if err != nil {
		return err
	}
	for _, word := range strings.Fields(out) {
		pid, bad := strconv.Atoi(word)
		if bad != nil {
			return bad
		}
		if failed := syscall.Kill(pid, syscall.SIGKILL); failed != nil && !errors.Is(failed, syscall.ESRCH) {
			err = errors.Join(err, failed)
		}
	}
	return err
}
