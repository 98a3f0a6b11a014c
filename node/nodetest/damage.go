package nodetest

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
)

// What can be damaged while no process has the disk open. Each answers in words what it did,
// or why there was nothing to damage.

// CutTail takes the newest entries of the log away, at most n and never the first one.
func (d *Disk) CutTail(n int) (what string, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	first, last := d.now.first, d.now.last
	if last <= first {
		return "", errors.New("the log is too short to be cut")
	}
	from := max(first+1, last+1-min(uint64(n), last))
	d.now.deleteRange(from, last)
	return fmt.Sprintf("log entries %d to %d are gone", from, last), nil
}

// FlipLog turns one bit of one entry of the log around.
func (d *Disk) FlipLog(dice *rand.Rand) (what string, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	var full []uint64
	for i := d.now.first; i > 0 && i <= d.now.last; i++ {
		if e := d.now.log[i]; e != nil && len(e.Data) > 0 {
			full = append(full, i)
		}
	}
	if len(full) == 0 {
		return "", errors.New("the log holds no data")
	}
	at := full[dice.IntN(len(full))]
	e := *d.now.log[at]
	var bit int
	e.Data, bit = flipped(e.Data, dice)
	d.now.log[at] = &e
	return fmt.Sprintf("bit %d of log entry %d is flipped", bit, at), nil
}

func flipped(data []byte, dice *rand.Rand) ([]byte, int) {
	data = bytes.Clone(data)
	bit := dice.IntN(8 * len(data))
	data[bit/8] ^= 1 << (bit % 8)
	return data, bit
}

// FlipSnapshot turns one bit of the newest snapshot around.
func (d *Disk) FlipSnapshot(dice *rand.Rand) (what string, err error) {
	return d.damageSnapshot(func(s *snapshot) string {
		var bit int
		s.data, bit = flipped(s.data, dice)
		return fmt.Sprintf("bit %d of it is flipped", bit)
	})
}

// EmptySnapshot leaves the newest snapshot without content.
func (d *Disk) EmptySnapshot() (what string, err error) {
	return d.damageSnapshot(func(s *snapshot) string {
		s.data = nil
		return "it is empty"
	})
}

func (d *Disk) damageSnapshot(do func(*snapshot) string) (what string, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.now.snaps) == 0 || len(d.now.snaps[0].data) == 0 {
		return "", errors.New("there is no snapshot")
	}
	s := *d.now.snaps[0]
	what = do(&s)
	d.now.snaps = append([]*snapshot{&s}, d.now.snaps[1:]...)
	return fmt.Sprintf("snapshot %s: %s", s.meta.ID, what), nil
}

// SwapSnapshots puts the content of the newest two snapshots, each whole in itself, in each
// other's place.
func (d *Disk) SwapSnapshots() (what string, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.now.snaps) < 2 {
		return "", errors.New("there are no two snapshots")
	}
	a, b := *d.now.snaps[0], *d.now.snaps[1]
	a.data, a.sum, a.meta.Size, b.data, b.sum, b.meta.Size = b.data, b.sum, b.meta.Size, a.data, a.sum, a.meta.Size
	d.now.snaps = append([]*snapshot{&a, &b}, d.now.snaps[2:]...)
	return fmt.Sprintf("snapshots %s and %s have each other's content", a.meta.ID, b.meta.ID), nil
}

// Older puts back what the disk held at some moment before, when its log was shorter.
func (d *Disk) Older(dice *rand.Rand) (what string, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	was := d.now.last
	var shorter []content
	for _, c := range d.older {
		if c.last < was {
			shorter = append(shorter, c)
		}
	}
	if len(shorter) == 0 {
		return "", errors.New("there is no older copy")
	}
	d.now = shorter[dice.IntN(len(shorter))].clone()
	d.undos = nil
	return fmt.Sprintf("an older copy is back: its log ends at entry %d, and it ended at %d", d.now.last, was), nil
}
