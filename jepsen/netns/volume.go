package netns

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

const (
	volumeBytes = 256 << 20
	// busyPatience bounds the wait for a file system that somebody is still about to let go.
	busyPatience = 5 * time.Second
)

// The requests of ioctl(2) that x/sys does not name.
const (
	fsShutdown  = 0x8004587D // FS_IOC_SHUTDOWN
	noLogFlush  = 2          // EXT4_GOING_FLAGS_NOLOGFLUSH: the journal is not written out
	fsFreeze    = 0xC0045877 // FIFREEZE
	fsThaw      = 0xC0045878 // FITHAW
	commitEvery = 300        // seconds; long, so that only what was synced is sure to be kept
)

// volume is a file system of its own in a file, mounted by way of a loop device that the
// kernel frees with the mount. What ext4 has handed to the loop device counts as being on the
// disk, what it holds in memory does not.
type volume struct {
	image, at string
	mounted   bool
}

// newVolume makes an empty one and mounts it at a directory that it makes.
func newVolume(image, at string) (*volume, error) {
	v := &volume{image: image, at: at}
	file, err := os.OpenFile(image, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return v, err
	}
	if err := errors.Join(file.Truncate(volumeBytes), file.Close(), os.MkdirAll(at, 0o700)); err != nil {
		return v, err
	}
	if _, err := tool("", "mkfs.ext4", "-q", "-m", "0", "-E", "lazy_itable_init=0,lazy_journal_init=0,nodiscard", image); err != nil {
		return v, err
	}
	return v, v.mount()
}

// mount mounts it, after the journal was replayed if its power was cut.
func (v *volume) mount() error {
	if v.mounted {
		return nil
	}
	for began := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		_, err := tool("", "mount", "-t", "ext4", "-o", fmt.Sprintf("loop,commit=%d,noatime", commitEvery), v.image, v.at)
		if err == nil {
			v.mounted = true
			return nil
		}
		if time.Since(began) > busyPatience {
			return err
		}
	}
}

// cut is the loss of power: nothing that is not on the disk now will ever be. Open files
// answer with errors from here on.
func (v *volume) cut() error {
	return v.control(func(fd int) error { return unix.IoctlSetPointerInt(fd, fsShutdown, noLogFlush) })
}

// freeze writes out what is in memory and lets every write wait, until thaw; both do nothing
// where that is so already.
func (v *volume) freeze() error {
	return ignore(unix.EBUSY, v.control(func(fd int) error { return unix.IoctlSetInt(fd, fsFreeze, 0) }))
}

func (v *volume) thaw() error {
	return ignore(unix.EINVAL, v.control(func(fd int) error { return unix.IoctlSetInt(fd, fsThaw, 0) }))
}

func ignore(expected, err error) error {
	if errors.Is(err, expected) {
		return nil
	}
	return err
}

// control does something to the file system as a whole.
func (v *volume) control(do func(fd int) error) error {
	dir, err := os.Open(v.at)
	if err != nil {
		return err
	}
	defer dir.Close()
	if err := do(int(dir.Fd())); err != nil {
		return &os.PathError{Op: "ioctl", Path: v.at, Err: err}
	}
	return nil
}

// unmount lets go of the file system. dead is one whose power was cut: it writes nothing any
// more, so it may be taken away under whoever is slow to let go.
func (v *volume) unmount(dead bool) error {
	if !v.mounted {
		return nil
	}
	for began := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		err := unix.Unmount(v.at, 0)
		if err != nil && dead && time.Since(began) > busyPatience {
			err = unix.Unmount(v.at, unix.MNT_DETACH)
		}
		if err == nil {
			v.mounted = false
			return nil
		}
		if time.Since(began) > 2*busyPatience {
			return fmt.Errorf("unmount %s: %w", v.at, err)
		}
	}
}

// filler is a file that eats the free space.
func (v *volume) filler() string { return filepath.Join(v.at, "filler") }

// fill eats all space, and proves that nothing can be written any more.
func (v *volume) fill() error {
	file, err := os.OpenFile(v.filler(), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	size := info.Size()
	for step := int64(volumeBytes); step >= 4096; {
		err := unix.Fallocate(int(file.Fd()), 0, size, step)
		switch {
		case err == nil:
			size += step
		case errors.Is(err, unix.ENOSPC):
			step /= 2
		case !errors.Is(err, unix.EINTR):
			return err
		}
	}
	if err := file.Sync(); err != nil {
		return err
	}
	if _, err := file.WriteAt(make([]byte, 1<<20), size); !errors.Is(err, unix.ENOSPC) {
		return fmt.Errorf("%s is not full: a write was answered with %w", v.at, err)
	}
	return nil
}

// drain gives the space back.
func (v *volume) drain() error {
	if err := os.Remove(v.filler()); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}
