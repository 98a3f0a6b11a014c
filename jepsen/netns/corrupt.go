package netns

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"time"

	"raftboard/jepsen/nemesis"
)

// The files of a data directory that are damaged here; the node that wrote them knows more.
const (
	logFile      = "raft/log.db"
	stableFile   = "raft/stable.db"
	identityFile = "identity.json"
	snapshotsDir = "raft/snapshots"
	stateFile    = "state.bin"
	metaFile     = "meta.json"
)

// Corrupt implements nemesis.Target. What needs a snapshot, or two, is ErrUnsupported where
// the node has none.
func (c *Cluster) Corrupt(i int, how nemesis.Corruption, dice *rand.Rand) (what string, err error) {
	err = c.with(i, func(n *node) error {
		if n.alive() {
			return fmt.Errorf("netns: %s runs", n.name)
		}
		if n.disk != nil && n.disk.fault.Hung {
			return fmt.Errorf("netns: the disk of %s hangs", n.name)
		}
		if err := n.powered(); err != nil {
			return err
		}
		n.damaged = true
		what, err = damage(n.data(), n.older(), how, dice)
		return err
	})
	return what, err
}

// damage does it to a data directory that nobody uses; older is a copy of it from earlier.
func damage(dir, older string, how nemesis.Corruption, dice *rand.Rand) (string, error) {
	switch how {
	case nemesis.CutTail:
		return cutTail(filepath.Join(dir, logFile), dice)
	case nemesis.FlipLog:
		return flipValue(filepath.Join(dir, logFile), "logs", dice)
	case nemesis.FlipMeta:
		return flipMeta(dir, dice)
	case nemesis.FlipSnap:
		snaps, err := snapshots(dir, 1)
		if err != nil {
			return "", err
		}
		return flipByte(filepath.Join(snaps[0], stateFile), dice)
	case nemesis.EmptySnap:
		snaps, err := snapshots(dir, 1)
		if err != nil {
			return "", err
		}
		return "the state of snapshot " + filepath.Base(snaps[0]) + " is empty", os.Truncate(filepath.Join(snaps[0], stateFile), 0)
	case nemesis.SwappedSnap:
		snaps, err := snapshots(dir, 2)
		if err != nil {
			return "", err
		}
		return swap(filepath.Join(snaps[0], stateFile), filepath.Join(snaps[1], stateFile))
	case nemesis.OlderCopy:
		if _, err := os.Stat(older); err != nil {
			return "", fmt.Errorf("an older copy: %w: none was taken: %w", nemesis.ErrUnsupported, err)
		}
		return "the directory is as it was when the last life began", errors.Join(empty(dir), copyDir(older, dir))
	case nemesis.WipeAll:
		return "the directory is empty", empty(dir)
	}
	return "", fmt.Errorf("corruption %q: %w", how, nemesis.ErrUnsupported)
}

// snapshots are the directories of at least so many snapshots, the newest first.
func snapshots(dir string, least int) (paths []string, err error) {
	entries, err := os.ReadDir(filepath.Join(dir, snapshotsDir))
	if err != nil {
		return nil, err
	}
	type snap struct {
		path string
		at   time.Time
	}
	var found []snap
	for _, e := range entries {
		path := filepath.Join(dir, snapshotsDir, e.Name())
		if info, err := os.Stat(filepath.Join(path, stateFile)); err == nil && filepath.Ext(path) != ".tmp" {
			found = append(found, snap{path, info.ModTime()})
		}
	}
	if len(found) < least {
		return nil, fmt.Errorf("damage to %d snapshots: %w: there are %d", least, nemesis.ErrUnsupported, len(found))
	}
	slices.SortFunc(found, func(a, b snap) int { return b.at.Compare(a.at) })
	for _, s := range found {
		paths = append(paths, s.path)
	}
	return paths, nil
}

// flipByte flips one bit of a file.
func flipByte(path string, dice *rand.Rand) (string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return "", err
	}
	if info.Size() == 0 {
		return "", fmt.Errorf("a bit of %s: %w: it is empty", path, nemesis.ErrUnsupported)
	}
	return flipAt(path, dice.Int64N(info.Size()), dice.IntN(8))
}

func flipAt(path string, at int64, bit int) (string, error) {
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return "", err
	}
	defer file.Close()
	b := make([]byte, 1)
	if _, err := file.ReadAt(b, at); err != nil {
		return "", err
	}
	b[0] ^= 1 << bit
	_, err = file.WriteAt(b, at)
	return fmt.Sprintf("bit %d of byte %d of %s is flipped", bit, at, filepath.Base(path)), errors.Join(err, file.Sync())
}

// flipMeta flips a bit of a file that is neither log nor the state of a snapshot.
func flipMeta(dir string, dice *rand.Rand) (string, error) {
	files := []string{identityFile, stableFile}
	if snaps, err := snapshots(dir, 1); err == nil {
		files = append(files, filepath.Join(snapshotsDir, filepath.Base(snaps[0]), metaFile))
	}
	file := files[dice.IntN(len(files))]
	if file == stableFile {
		return flipValue(filepath.Join(dir, file), "conf", dice)
	}
	return flipByte(filepath.Join(dir, file), dice)
}

// swap lets two files change places.
func swap(a, b string) (string, error) {
	aside := a + ".swapped"
	return fmt.Sprintf("%s of the snapshots %s and %s changed places", filepath.Base(a), filepath.Base(filepath.Dir(a)), filepath.Base(filepath.Dir(b))),
		errors.Join(os.Rename(a, aside), os.Rename(b, a), os.Rename(aside, b))
}

// empty removes what is in a directory, and not the directory.
func empty(dir string) error {
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		err = errors.Join(err, os.RemoveAll(filepath.Join(dir, e.Name())))
	}
	return err
}

// older is where the copy of a data directory lies that OlderCopy puts back.
func (n *node) older() string { return filepath.Join(n.dir(), "older") }

// keep makes that copy. Called with n.mu held, of a node that is down or stopped: the copy is
// then what the disk would hold had the process been killed.
func (n *node) keep() error {
	if err := os.RemoveAll(n.older()); err != nil {
		return err
	}
	return copyDir(n.data(), n.older())
}

// keepStopped keeps a copy of what a running node has on its disk.
func (n *node) keepStopped() error {
	err := n.halted(true)
	if err == nil {
		err = n.keep()
	}
	return errors.Join(err, n.halted(false))
}

// copyDir copies files and directories to where there may be an empty directory.
func copyDir(from, to string) error {
	if err := os.Remove(to); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		return err
	}
	return os.Chmod(to, 0o700)
}
