package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// hold makes dir if it is not there, and this process its only holder until release; a dead
// process holds nothing.
func hold(dir string) (release func(), err error) {
	for {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return nil, err
		}
		f, err := os.Open(dir)
		if errors.Is(err, os.ErrNotExist) {
			continue // its last holder removed it just now
		}
		if err != nil {
			return nil, err
		}
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if errors.Is(err, syscall.EWOULDBLOCK) {
			f.Close()
			return nil, fmt.Errorf("a run of this plan is going on in %s: wait for its end, or give another --dir", dir)
		}
		if err != nil {
			f.Close()
			return nil, err
		}
		mine, err := f.Stat()
		there, gone := os.Stat(dir)
		if err == nil && gone == nil && os.SameFile(mine, there) {
			return func() { f.Close() }, nil
		}
		f.Close()
	}
}

// clear empties a directory and leaves it where it is, for its holder.
func clear(dir string) error {
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		err = errors.Join(err, os.RemoveAll(filepath.Join(dir, e.Name())))
	}
	return err
}
