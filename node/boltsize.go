package node

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"os"
	"path/filepath"
	"syscall"

	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
)

// openBoltFile opens a bolt file. Bbolt maps the file and trusts what it finds there: behind the
// end of a file that was cut short lies a SIGBUS, and a page that is none is a panic, in part
// on a goroutine of bbolt's own. So the file is looked at before.
func openBoltFile(d *Dir, file string) (_ *raftboltdb.BoltStore, err error) {
	id := d.Identity()
	damaged := func(err error) error {
		return &DirError{Dir: d.path, Cause: err, Hint: rejoinHint(id.NodeID),
			What: fmt.Sprintf("%s is damaged: %v", filepath.Join(raftDirName, filepath.Base(file)), err)}
	}
	if err := checkBolt(file, id.HasState); errors.Is(err, errDamaged) {
		return nil, damaged(err)
	} else if err != nil {
		return nil, openError(d.path, file, err)
	}
	var opened *os.File
	options := boltOptions(file)
	options.BoltOptions.OpenFile = func(name string, flag int, mode os.FileMode) (_ *os.File, err error) {
		opened, err = os.OpenFile(name, flag, mode)
		return opened, err
	}
	defer func() {
		if p := recover(); p != nil {
			err = damaged(fmt.Errorf("bbolt cannot read it: %v: %w", p, errDamaged))
			if opened != nil { // its map stays and would keep the lock: whoever tries again is to hear the same
				err = errors.Join(err, syscall.Flock(int(opened.Fd()), syscall.LOCK_UN), opened.Close())
			}
		}
	}()
	store, err := raftboltdb.New(options)
	if err != nil {
		return nil, openError(d.path, file, err)
	}
	return store, nil
}

// The layout of a bolt file, as far as it is looked at: in pages of the machine's byte order,
// the first two of them meta pages, of which the newer valid one counts.
const (
	boltMagic    = 0xED0CDAED
	boltVersion  = 2
	boltHeader   = 16 // of every page: id, flags, count, overflow
	boltElement  = 16 // of a page's table, and the header of a bucket
	boltMetaSize = 64
	boltMetas    = 2
	boltBranch   = 0x01
	boltLeaf     = 0x02
	boltBucket   = 0x01 // flag of an element
	minBoltPage  = 1 << 10
	maxBoltPage  = 1 << 24
)

// boltMeta is what a meta page says.
type boltMeta struct {
	page int64  // bytes of a page
	root uint64 // page of the outermost bucket
	end  uint64 // pages below it are in use
	tx   uint64 // the newer one counts
}

// checkBolt tells what is wrong with a bolt file that nobody has open, nil for nothing. An
// empty one is right where there was no state yet; one that is not there is made by bbolt.
func checkBolt(path string, hadState bool) error {
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	defer f.Close()
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_SH|syscall.LOCK_NB); err != nil {
		return nil // somebody writes to it, which bbolt says better
	}
	info, err := f.Stat()
	if err != nil {
		return err
	}
	size := info.Size()
	if size == 0 && !hadState {
		return nil
	}
	meta, ok := newestBoltMeta(f, size)
	if !ok {
		return fmt.Errorf("of its %d bytes none are a meta page: it was cut short or overwritten: %w", size, errDamaged)
	}
	if inUse := int64(meta.end) * meta.page; size < inUse {
		return fmt.Errorf("it has %d bytes and %d are in use: it was cut short: %w", size, inUse, errDamaged)
	}
	w := &boltWalk{file: f, meta: meta, seen: make([]bool, meta.end)}
	return w.tree(meta.root, span{})
}

func newestBoltMeta(f io.ReaderAt, size int64) (newest boltMeta, ok bool) {
	look := func(at int64) {
		if m, valid := readBoltMeta(f, at); valid && (!ok || m.tx > newest.tx) && int64(m.end) <= maxBoltEnd(m.page) {
			newest, ok = m, true
		}
	}
	look(0)
	if ok {
		look(newest.page)
		return newest, ok
	}
	for at := int64(minBoltPage); at <= maxBoltPage && at < size && !ok; at *= 2 {
		look(at)
	}
	return newest, ok
}

// maxBoltEnd keeps page numbers within what a file offset can say.
func maxBoltEnd(page int64) int64 { return 1 << 62 / page }

func readBoltMeta(f io.ReaderAt, at int64) (m boltMeta, valid bool) {
	raw := make([]byte, boltMetaSize)
	if _, err := f.ReadAt(raw, at+boltHeader); err != nil {
		return m, false
	}
	order := binary.NativeEndian
	sum := fnv.New64a()
	sum.Write(raw[:boltMetaSize-8])
	m = boltMeta{page: int64(order.Uint32(raw[8:])), root: order.Uint64(raw[16:]), end: order.Uint64(raw[40:]), tx: order.Uint64(raw[48:])}
	valid = order.Uint32(raw) == boltMagic && order.Uint32(raw[4:]) == boltVersion && order.Uint64(raw[56:]) == sum.Sum64() &&
		m.page >= minBoltPage && m.page <= maxBoltPage && m.end >= boltMetas
	return m, valid
}
