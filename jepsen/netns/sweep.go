package netns

import (
	"errors"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// Sweep removes what runs have left that could not close: processes in their namespaces, and
// the namespaces. It looks only at names that a process wrote which is dead.
func Sweep() error {
	entries, err := os.ReadDir(namespaces)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	for _, e := range entries {
		if !abandoned(e.Name()) {
			continue
		}
		err = errors.Join(err, endAll(e.Name()))
		if failed := dropSpace(e.Name()); failed != nil {
			if _, gone := os.Lstat(namespaces + "/" + e.Name()); gone == nil {
				err = errors.Join(err, failed) // nobody else swept it meanwhile
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
