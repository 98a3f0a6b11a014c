package report

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"raftboard/jepsen/check"
	"raftboard/jepsen/history"
)

// life is one life of a node.
type life struct {
	node string
	n    int
}

// recorded is what lives recorded of each entry.
type recorded struct {
	lives     []life
	low, high map[life]uint64
	at        map[uint64]map[life][]*history.Applied
	installed map[life]uint64 // the newest snapshot that took the place of entries
}

func (f *facts) recorded() *recorded {
	r := &recorded{low: map[life]uint64{}, high: map[life]uint64{}, at: map[uint64]map[life][]*history.Applied{}, installed: map[life]uint64{}}
	for i := range f.h.Applied {
		a := &f.h.Applied[i]
		l := life{a.Node, a.Life}
		was, known := r.low[l]
		if !known {
			r.lives = append(r.lives, l)
		}
		if !known || a.Index < was {
			r.low[l] = a.Index
		}
		r.high[l] = max(r.high[l], a.Index)
		if r.at[a.Index] == nil {
			r.at[a.Index] = map[life][]*history.Applied{}
		}
		r.at[a.Index][l] = append(r.at[a.Index][l], a)
	}
	for _, in := range f.h.Install {
		l := life{in.Node, in.Life}
		r.installed[l] = max(r.installed[l], in.Index)
	}
	slices.SortFunc(r.lives, func(a, b life) int { return cmp.Or(cmp.Compare(a.node, b.node), cmp.Compare(a.n, b.n)) })
	return r
}

// account is what a life says of an entry, in words; "" if it need not say anything.
func (r *recorded) account(l life, index uint64) string {
	records := r.at[index][l]
	if len(records) == 0 {
		if r.low[l] < index && index < r.high[l] && r.installed[l] < index {
			return "    nothing, though it applied entries before and after it\n"
		}
		return ""
	}
	var b strings.Builder
	for _, a := range records {
		b.WriteString(tellRecord(a))
	}
	return b.String()
}

// first is the first entry of which lives do not say the same; 0 if there is none.
func (r *recorded) first() uint64 {
	for _, index := range sortedKeys(r.at) {
		said := ""
		for _, l := range r.lives {
			account := r.account(l, index)
			if account != "" && said != "" && account != said {
				return index
			}
			said = cmp.Or(said, account)
		}
	}
	return 0
}

// differing tells what each life of each node recorded at the first entry that is not the same
// everywhere; lives that say the same are told of together.
func (f *facts) differing(b *strings.Builder, found check.Finding) {
	r := f.recorded()
	index := cmp.Or(r.first(), found.Index)
	if index == 0 {
		return
	}
	who := map[string][]string{}
	var accounts []string
	for _, l := range r.lives {
		account := r.account(l, index)
		if account == "" {
			continue
		}
		if who[account] == nil {
			accounts = append(accounts, account)
		}
		who[account] = append(who[account], fmt.Sprintf("%s (life %d)", clip(l.node, 30), l.n))
	}
	fmt.Fprintf(b, "\nThe first entry that is not the same everywhere is %d:\n", index)
	for i, account := range accounts {
		if i == mostRecords {
			fmt.Fprintf(b, "  … and %d more accounts of it\n", len(accounts)-i)
			break
		}
		fmt.Fprintf(b, "  %s:\n%s", clip(strings.Join(who[account], ", "), 160), account)
	}
}

func tellRecord(a *history.Applied) string {
	return fmt.Sprintf("    %d.%d, term %d, %s: %s\n      → %s\n      command %s, result %s, state behind it %s\n", a.Index, a.Position, a.Term,
		boardTime(a.T), command(a), resultOf(a), shortHash(a.CommandHash), shortHash(a.ResultHash), shortHash(a.Digest))
}

func shortHash(s string) string { return cmp.Or(clip(s, 13), "not recorded") }

// isCycle: the operations of the finding follow each other in a ring. Of what T2 finds that
// are those with the names of Adya's circles.
func isCycle(found check.Finding) bool {
	name, _, _ := strings.Cut(found.What, ",")
	switch strings.TrimSuffix(name, "-realtime") {
	case "G0", "G1c", "G-single", "G2":
		return found.Checker == "T2" && len(found.Ops) > 1
	}
	return false
}

// ties are the sentences of a cycle that say why one operation is before the next.
func ties(found check.Finding) (out []string) {
	for _, line := range strings.Split(found.What, "\n") {
		if strings.Contains(line, " is before ") {
			out = append(out, one(strings.TrimSpace(line)))
		}
	}
	return out
}

// ring draws the cycle of a finding; nil if it has none.
func (f *facts) ring(found check.Finding) *ringPicture {
	if !isCycle(found) || len(found.Ops) > 12 {
		return nil
	}
	by := map[uint64]*history.Op{}
	for i := range f.h.Ops {
		by[f.h.Ops[i].ID] = &f.h.Ops[i]
	}
	r := &ringPicture{H: 260}
	n := len(found.Ops)
	at := func(i int) (float64, float64) {
		turn := 2*math.Pi*float64(i)/float64(n) - math.Pi/2
		return round(400 + 240*math.Cos(turn)), round(130 + 95*math.Sin(turn))
	}
	for i, id := range found.Ops {
		x, y := at(i)
		nx, ny := at((i + 1) % n)
		dx, dy := nx-x, ny-y
		size := math.Hypot(dx, dy)
		r.Nodes = append(r.Nodes, ringNode{X: x, Y: y, Text: fmt.Sprintf("operation %d", id)})
		if o := by[id]; o != nil {
			r.Nodes[i].Sub = clip(o.Client, 22)
		}
		arrow := ringArrow{D: fmt.Sprintf("M%s %sL%s %s", number(x+dx/size*70), number(y+dy/size*26), number(nx-dx/size*76), number(ny-dy/size*30))}
		if why := ties(found); len(why) == n {
			arrow.Tip = why[i]
		}
		r.Arrows = append(r.Arrows, arrow)
	}
	return r
}

// ringPicture is a cycle of operations.
type ringPicture struct {
	H      float64
	Nodes  []ringNode
	Arrows []ringArrow
}

type ringArrow struct{ D, Tip string }

type ringNode struct {
	X, Y      float64
	Text, Sub string
}

// watcherOf is the watcher that a finding is about; "" if it is about none.
func (f *facts) watcherOf(found check.Finding) string {
	if len(found.Ops) > 0 || !strings.HasPrefix(found.Checker, "F") {
		return ""
	}
	names, _ := watchers(f.h)
	longest := ""
	for _, name := range names {
		if strings.Contains(found.What, "watcher "+name) && len(name) > len(longest) {
			longest = name
		}
	}
	return longest
}

// told is what a watcher heard around the first place at which its feed is odd, or at its end.
func (f *facts) told(b *strings.Builder, watcher string, found check.Finding) {
	_, logs := watchers(f.h)
	log := logs[watcher]
	at, what := len(log)-1, "the end of what it was told"
	if odd := oddities(log); len(odd) > 0 {
		at, what = odd[0].at, odd[0].text
	}
	var all []moment
	for i := max(0, at-5); i < min(len(log), at+4); i++ {
		all = append(all, moment{at: log[i].At, order: i, must: i == at, tell: func() string { return tellTold(&log[i]) }})
	}
	if len(all) > 0 {
		all = append(all, f.faultMoments(all[0].at-beside, all[len(all)-1].at+beside)...)
	}
	if found.Index > 0 {
		all = append(all, f.entryMoments(nil, nil, found)...)
	}
	all = nearest(all, log[at].At, mostLines)
	fmt.Fprintf(b, "\nWhat %s was told, in seconds since the run began, around %s (*):\n", clip(watcher, 40), what)
	for _, m := range all {
		mark := " "
		if m.must {
			mark = "*"
		}
		fmt.Fprintf(b, "%s %9.3f  %s\n", mark, m.at.Seconds(), m.tell())
	}
}

func tellTold(t *history.Told) string {
	switch {
	case t.Event != nil:
		e := t.Event
		text := fmt.Sprintf("told of rev %d.%d: %s %s", e.Rev, e.Sub, strings.ToLower(strings.TrimPrefix(e.Kind.String(), "KIND_")), clip(e.Key, 60))
		if e.Generation > 0 {
			text += fmt.Sprintf(", generation %d", e.Generation)
		}
		if e.Author != "" {
			text += ", by " + clip(e.Author, 30)
		}
		return text
	case t.Asked != nil:
		return fmt.Sprintf("asks for the feed: %s %d", one(t.Asked.Mode), t.Asked.From)
	case t.Bookmark > 0:
		return fmt.Sprintf("bookmark %d", t.Bookmark)
	case t.Cut != "":
		return "cut off, goes on: " + clip(t.Cut, 120)
	case t.Ended != "":
		return "ended: " + clip(t.Ended, 120)
	case t.Record != nil:
		return "a record of the snapshot: " + clip(t.Record.Key, 60)
	}
	return "something else"
}
