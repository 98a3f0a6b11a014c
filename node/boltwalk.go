package node

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
)

// boltWalk goes through every page of a bolt file that is in use, and reads their headers,
// tables and keys, not what is stored: that has checksums of its own (seal.go). It checks all
// that bbolt checks when it opens a file. Bbolt does so on a goroutine that goes on after the
// first fault has ended in a panic elsewhere, and nobody can recover what becomes of that.
type boltWalk struct {
	file io.ReaderAt
	meta boltMeta
	seen []bool // by page: each belongs to one place at most, so that a walk ends
}

// span is where the keys of a page have to lie; nil: anywhere.
type span struct{ from, below []byte }

// maxBoltKey is the longest key that bbolt stores.
const maxBoltKey = 32768

// tree looks at a page and everything below it.
func (w *boltWalk) tree(id uint64, keys span) error {
	if id < boltMetas || id >= w.meta.end {
		return fmt.Errorf("page %d is outside of what is in use: %w", id, errDamaged)
	}
	at := int64(id) * w.meta.page
	head, err := w.read(at, boltHeader)
	if err != nil {
		return err
	}
	if says := binary.NativeEndian.Uint64(head); says != id {
		return fmt.Errorf("page %d says that it is %d: %w", id, says, errDamaged)
	}
	more := uint64(binary.NativeEndian.Uint32(head[12:]))
	if id+more >= w.meta.end {
		return fmt.Errorf("page %d goes on behind what is in use: %w", id, errDamaged)
	}
	for i := id; i <= id+more; i++ {
		if w.seen[i] {
			return fmt.Errorf("page %d has two places: %w", i, errDamaged)
		}
		w.seen[i] = true
	}
	if err := w.content(at, int64(1+more)*w.meta.page, keys, false); err != nil {
		return fmt.Errorf("page %d: %w", id, err)
	}
	return nil
}

// content looks at the table of a page of size bytes, and at what it points to. An inline page
// is one that lies within the value of a bucket.
func (w *boltWalk) content(at, size int64, keys span, inline bool) error {
	order := binary.NativeEndian
	head, err := w.read(at, boltHeader)
	if err != nil {
		return err
	}
	flags, count := order.Uint16(head[8:]), int64(order.Uint16(head[10:]))
	if flags != boltLeaf && (flags != boltBranch || inline || count == 0) {
		return fmt.Errorf("it is of no kind that belongs there (%#x, %d elements): %w", flags, count, errDamaged)
	}
	if boltHeader+count*boltElement > size {
		return fmt.Errorf("its table of %d elements is larger than it: %w", count, errDamaged)
	}
	table, err := w.read(at+boltHeader, count*boltElement)
	if err != nil {
		return err
	}
	elements := make([]element, count)
	for i := range elements {
		e := decodeElement(table[i*boltElement:], boltHeader+int64(i)*boltElement, flags)
		if e.keySize > maxBoltKey || e.at+e.keySize+e.size > size {
			return fmt.Errorf("element %d lies outside of it: %w", i, errDamaged)
		}
		if e.key, err = w.read(at+e.at, e.keySize); err != nil {
			return err
		}
		first := i == 0 && (keys.from == nil || bytes.Compare(keys.from, e.key) <= 0)
		later := i > 0 && bytes.Compare(elements[i-1].key, e.key) < 0
		if !first && !later || keys.below != nil && bytes.Compare(e.key, keys.below) >= 0 {
			return fmt.Errorf("element %d is not in order: %w", i, errDamaged)
		}
		elements[i] = e
	}
	return w.below(at, elements, keys)
}

// element is one of a page's table: a key with a value, or with the page of what is below it.
type element struct {
	at            int64 // of the key, within the page
	keySize, size int64
	key           []byte
	branch        bool
	child         uint64 // of a branch
	bucket        bool   // the value is one
}

func decodeElement(raw []byte, begins int64, flags uint16) element {
	order := binary.NativeEndian
	if flags == boltBranch {
		return element{branch: true, at: begins + int64(order.Uint32(raw)), keySize: int64(order.Uint32(raw[4:])), child: order.Uint64(raw[8:])}
	}
	return element{at: begins + int64(order.Uint32(raw[4:])), keySize: int64(order.Uint32(raw[8:])), size: int64(order.Uint32(raw[12:])),
		bucket: order.Uint32(raw)&boltBucket != 0}
}

// below looks at what the elements of a page at a place of the file point to.
func (w *boltWalk) below(at int64, elements []element, keys span) error {
	for i, e := range elements {
		switch {
		case e.bucket:
			if err := w.bucket(at+e.at+e.keySize, e.size); err != nil {
				return err
			}
		case e.branch:
			under := span{from: e.key, below: keys.below}
			if i+1 < len(elements) {
				under.below = elements[i+1].key
			}
			if err := w.tree(e.child, under); err != nil {
				return err
			}
		}
	}
	return nil
}

// bucket looks at the value of a bucket: the page of its tree, or 0 and one page inline.
func (w *boltWalk) bucket(at, size int64) error {
	if size < boltElement {
		return fmt.Errorf("a bucket of %d bytes: %w", size, errDamaged)
	}
	head, err := w.read(at, boltElement)
	if err != nil {
		return err
	}
	if root := binary.NativeEndian.Uint64(head); root != 0 {
		return w.tree(root, span{})
	}
	if size < boltElement+boltHeader {
		return fmt.Errorf("an inline bucket of %d bytes: %w", size, errDamaged)
	}
	return w.content(at+boltElement, size-boltElement, span{}, true)
}

func (w *boltWalk) read(at, n int64) ([]byte, error) {
	b := make([]byte, n)
	if _, err := w.file.ReadAt(b, at); err != nil {
		return nil, fmt.Errorf("read %d bytes at %d: %w", n, at, err)
	}
	return b, nil
}
