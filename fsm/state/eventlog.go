package state

import (
	"slices"
	"sort"

	boardpb "raftboard/fsm/pb"
)

const blockSize = 256

// eventLog is an append-only list of events with a moving start. An event has an
// ordinal, counted from 0 for ever; blocks are shared with every View, which reads only
// below the `next` it was published with.
type eventLog struct {
	blocks      []*eventBlock
	first, next uint64
}

type eventBlock struct {
	base   uint64
	events [blockSize]*boardpb.Event
	sums   [blockSize]Sum
}

func (l *eventLog) append(ev *boardpb.Event, sum Sum) {
	n := len(l.blocks)
	if n == 0 || l.next == l.blocks[n-1].base+blockSize {
		l.blocks = append(l.blocks, &eventBlock{base: l.next - l.next%blockSize})
		n++
	}
	b := l.blocks[n-1]
	b.events[l.next%blockSize], b.sums[l.next%blockSize] = ev, sum
	l.next++
}

func (l *eventLog) block(ordinal uint64) *eventBlock {
	return l.blocks[(ordinal-l.blocks[0].base)/blockSize]
}

func (l *eventLog) at(ordinal uint64) *boardpb.Event {
	return l.block(ordinal).events[ordinal%blockSize]
}

// dropFirst gives up the oldest event and returns its sum.
func (l *eventLog) dropFirst() (*boardpb.Event, Sum) {
	b := l.block(l.first)
	ev, sum := b.events[l.first%blockSize], b.sums[l.first%blockSize]
	l.first++
	if l.first == b.base+blockSize {
		l.blocks = slices.Clone(l.blocks[1:]) // or the array would keep the block
	}
	return ev, sum
}

func (l *eventLog) len() uint64 { return l.next - l.first }

// seek returns the ordinal of the first event at (rev, sub) or behind it.
func (l *eventLog) seek(rev uint64, sub uint32) uint64 {
	n := sort.Search(int(l.len()), func(i int) bool {
		ev := l.at(l.first + uint64(i))
		return ev.Rev > rev || ev.Rev == rev && ev.Sub >= sub
	})
	return l.first + uint64(n)
}
