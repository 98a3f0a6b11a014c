package report

import (
	"bytes"
	"cmp"
	"embed"
	"fmt"
	"html/template"
	"io"
	"slices"
	"strings"
	"time"

	"raftboard/jepsen/check"
	"raftboard/jepsen/history"
)

//go:embed *.html
var pages embed.FS

const (
	mostFindings  = 40
	mostGroups    = 30
	mostAnswers   = 24
	mostPictures  = 4
	drawPatience  = 5 * time.Second // of porcupine, for one key, in real time
	mostFaultRows = 300
	mostNotes     = 50
)

// page is what the page of a run shows.
type page struct {
	Title    string
	Verdict  check.Verdict
	Means    string
	First    string // the first witness
	Story    string
	Ring     *ringPicture
	Facts    []pair
	Rerun    string
	Findings []group
	Notes    []string
	Table    []kindRow
	Answers  []answerRow
	Waits    []string
	Faults   []faultRow
	MoreFlt  string
	States   []stateRow
	Work     []pair

	Latency, Rate, Lanes, Lag, Holders, Hands, Feed section
	Append                                          section
	Appends                                         *appends
	Timelines                                       []timeline
	NoTimes                                         string
	Pictures                                        []picture
	NoPicture                                       string
}

// section is a picture or the reason why there is none, and what is to be said with it.
type section struct {
	Plot *plot
	Note string
}

type pair struct{ Name, Text string }

// group is all findings of one checker and class.
type group struct {
	Checker, Class, Wants string
	N                     int
	Texts                 []string
	More                  int
}

type faultRow struct {
	Start, Length, Nemesis, Name, Targets, Witness, Error, First, Silence string
	Client                                                                bool
}

type stateRow struct {
	Name, Text     string
	N              int
	Needed, Missed bool
}

// picture is porcupine's page of one key.
type picture struct{ Key, HTML string }

// Run writes the page of one run. It needs of j what check.Whole gives; a history that lacks
// something, or all, still gives a page that says what is missing. It may take some seconds:
// keys that are not linearizable are searched once more, to be drawn.
func Run(w io.Writer, h *history.History, j check.Judgement) error {
	f := gather(h, j)
	p := &page{
		Title: cmp.Or(one(h.Run.Workload), "a run") + " × " + cmp.Or(one(h.Run.Nemesis), "no nemesis"), Verdict: j.Verdict,
		Means: meaning(j), Rerun: one(h.Run.Rerun), Facts: f.basics(), Findings: grouped(j.Findings),
		Table: f.kindRows(), Answers: f.answerRows(), Waits: f.waits(), States: f.stateRows(), Work: f.leaseCounts(),
	}
	if len(j.Findings) > 0 {
		first := j.Findings[0]
		p.First = first.Checker + ": " + firstLine(first.What)
		p.Story, p.Ring = f.story(first), f.ring(first)
	}
	p.Faults, p.MoreFlt = f.faultRows()
	for i, n := range h.Notes {
		if i == mostNotes {
			p.Notes = append(p.Notes, fmt.Sprintf("and %d more", len(h.Notes)-i))
			break
		}
		p.Notes = append(p.Notes, fmt.Sprintf("%s on %s at %s: %s", n.Kind, cmp.Or(one(n.Node), "the harness"), seconds(n.At), clip(n.Text, 2000)))
	}
	f.draw(p)
	p.Pictures, p.NoPicture = f.pictures()
	return render(w, "run.html", p)
}

// draw makes the pictures that share the time of the run.
func (f *facts) draw(p *page) {
	of := func(plot *plot, note string) section {
		if plot != nil {
			plot.Linked = true
		}
		return section{plot, note}
	}
	p.Latency, p.Rate = of(f.latency()), of(f.rate())
	p.Lanes, p.Lag = of(f.lanes()), of(f.lag())
	p.Holders, p.Hands, p.Feed = of(f.holders()), of(f.changedHands()), of(f.feed())
	appended, counts, note := f.appended()
	p.Append, p.Appends = of(appended, note), counts
	p.Timelines, p.NoTimes = f.timelines()
}

// render executes a page as a whole before it writes: half a page looks like a whole one.
func render(w io.Writer, name string, data any) error {
	t, err := template.New(name).Funcs(template.FuncMap{"plain": plain, "thousands": thousands}).ParseFS(pages, "*.html")
	if err != nil {
		return fmt.Errorf("report: %w", err)
	}
	var b bytes.Buffer
	if err := t.ExecuteTemplate(&b, name, data); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	_, err = w.Write(b.Bytes())
	return err
}

// meaning is what a verdict says, and no more.
func meaning(j check.Judgement) string {
	switch j.Verdict {
	case check.VALID:
		return "No anomaly found under these faults at this rate."
	case check.FAILED:
		return "A promise was broken: what clients and nodes recorded cannot both be so if the board keeps its word."
	case check.INVALID:
		return "This run proves nothing: what it was made for did not happen, or cannot be told. It is not a pass."
	case check.UNKNOWN:
		return "Nobody knows: a search ran out of time before it had decided. It is not a pass."
	}
	return "This run was not judged."
}

func firstLine(s string) string {
	line, _, more := strings.Cut(s, "\n")
	if more {
		line += " …"
	}
	return clip(line, 300)
}

// grouped puts findings together by checker, in the order in which checkers come up.
func grouped(found []check.Finding) (out []group) {
	at := map[string]int{}
	shown := 0
	for _, f := range found {
		name := map[check.Class]string{check.Violation: "violation", check.Invalid: "proves nothing", check.Undecided: "undecided"}[f.Class]
		key := f.Checker + " " + name
		i, known := at[key]
		if !known {
			i = len(out)
			at[key] = i
			out = append(out, group{Checker: one(f.Checker), Class: name, Wants: check.RuleOf(f.Checker)})
		}
		g := &out[i]
		if g.N++; len(g.Texts) < 5 && shown < mostFindings {
			g.Texts = append(g.Texts, strings.TrimRight(plain(f.String()), "\n"))
			shown++
		} else {
			g.More++
		}
	}
	return out[:min(len(out), mostGroups)]
}

// basics is what was run.
func (f *facts) basics() []pair {
	r := f.h.Run
	var out []pair
	add := func(name, text string) {
		if text != "" {
			out = append(out, pair{name, one(text)})
		}
	}
	add("workload", r.Workload)
	add("nemesis", cmp.Or(r.Nemesis, "none"))
	driver := r.Driver
	switch driver {
	case "sim":
		driver += " (whole servers in one process; times are virtual)"
	case "netns":
		driver += " (real processes in network namespaces)"
	}
	add("driver", driver)
	add("nodes", strings.Join(f.nodes, ", "))
	add("seed", fmt.Sprint(r.Seed))
	add("version", cmp.Or(r.Version, "not recorded"))
	add("planted bug", r.Mutant)
	if r.Rate > 0 {
		add("planned", fmt.Sprintf("%d operations per second for %s", r.Rate, brief(r.Time)))
	}
	add("lasted", fmt.Sprintf("%s, of which %s before the last heal", brief(f.whole.to), brief(r.Healed)))
	rate := float64(len(f.h.Ops)) / f.whole.to.Seconds()
	add("done", fmt.Sprintf("%s, %s per second over the whole run", count(len(f.h.Ops), "operation"), number(rate)))
	if f.j.Order != nil {
		add("applied", fmt.Sprintf("%s in the agreed order", count(len(f.j.Order.Records), "command")))
	}
	if !r.Began.IsZero() {
		add("began", r.Began.Format("2006-01-02 15:04:05 MST")+" on the clock of the harness")
	}
	return out
}

func (f *facts) faultRows() (out []faultRow, more string) {
	for i, ft := range f.faults {
		if i == mostFaultRows {
			return out, fmt.Sprintf("The first %d of %d faults are listed.", i, len(f.faults))
		}
		row := faultRow{Start: seconds(ft.Start), Length: brief(ft.End - ft.Start), Nemesis: cmp.Or(clip(ft.Nemesis, 20), "–"), Name: clip(ft.Name, 40),
			Targets: clip(ft.targets(), 200), Witness: clip(ft.Witness, 500), Error: clip(ft.Error, 500), Client: ft.onClient, First: "–", Silence: "–"}
		if !ft.onClient {
			row.Silence, row.First = brief(ft.silence), "none"
			if ft.answered {
				row.First = brief(ft.first)
			}
		}
		out = append(out, row)
	}
	return out, ""
}

// stateRows are what the run met, with what it had to meet.
func (f *facts) stateRows() (out []stateRow) {
	needed := map[check.State]bool{}
	for _, s := range check.Demanded(f.h.Run).States {
		needed[s] = true
	}
	words := stateWords()
	rows := map[check.State]bool{}
	for s := range f.j.Met {
		rows[s] = true
	}
	for s := range needed {
		rows[s] = true
	}
	for s := range words {
		rows[s] = true
	}
	for _, s := range sortedKeys(rows) {
		out = append(out, stateRow{Name: string(s), Text: words[s], N: f.j.Met[s], Needed: needed[s], Missed: needed[s] && f.j.Met[s] == 0})
	}
	slices.SortStableFunc(out, func(a, b stateRow) int { return cmp.Compare(boolInt(b.Needed), boolInt(a.Needed)) })
	return out
}

// stateWords says what each state is, for who reads the table.
func stateWords() map[check.State]string {
	return map[check.State]string{
		check.LeaderChange:   "another node began to lead while clients worked",
		check.Resumed:        "the same leader went on after one long stall",
		check.Reclaim:        "a lease was granted whose last holder had lost it by expiry",
		check.Unparked:       "an item that had been tried out, and so parked, was let back into the queue",
		check.FencedWrite:    "a write or a hand-in came from a holder that was one no more, and was refused",
		check.Resent:         "a command was asked for again and got its first answer again",
		check.InfoApplied:    "a client never learned the outcome of a write, and it was applied",
		check.InfoNotApplied: "a client never learned the outcome of a write, and it was not applied",
		check.Conflicted:     "a write named a version that was not the newest one, and was refused",
		check.FeedResumed:    "a watcher was cut off and went on elsewhere",
		check.Renewed:        "a lease was kept alive",
		check.HeardRead:      "somebody read what the feed had told",
		check.ForgeryRefused: "what claimed to be another's, or was malformed, was refused",
		check.Forwarded:      "a node that does not lead answered a write",
		check.SaidCompacted:  "a watcher asked for what was compacted away, and was told so",
		check.SlowReader:     "a watcher that read too slowly was cut off",
		check.AboveHead:      "a watcher asked for a start above the newest rev, and was refused",
		check.Abandoned:      "a command below the floor of its loop's numbers was refused",
		check.BodyReused:     "an identity came again with another command, and was refused",
		check.AfterEnd:       "a command of a loop that had ended was refused",
		check.ResentAcross:   "a node that knows the first answer only from a snapshot gave it again",
		check.Hunted:         "a node that led a moment ago was asked to read",
		check.WithoutAnyone:  "a call ended as unavailable while nobody had a majority",

		"snapshot install":               "a node went on from a snapshot of a state that it had not reached by itself",
		"grace used":                     "a lease lived on only because there had been an election",
		"conflict four times in a row":   "a caller gave up after four conflicts, and reported it",
		"feed resumed across a failover": "a watcher went on where it was while another node began to lead",
	}
}

// patient is porcupine's page with another beginning: it measures its own text, so it must
// wait until there is a layout, and it then shows the first error and not the first operation.
func patient(page string) string {
	const call = "render(data)"
	const wait = `const go = () => {
        if (document.querySelector("#legend text").getBBox().width === 0) return requestAnimationFrame(go);
        render(data);
        document.querySelector("#jump-link").dispatchEvent(new MouseEvent("click"));
      };
      go()`
	at := strings.LastIndex(page, call)
	if at < 0 {
		return page
	}
	return page[:at] + wait + page[at+len(call):]
}

// pictures are porcupine's pages of the keys that R1 condemned.
func (f *facts) pictures() (out []picture, note string) {
	var keys []string
	byID := map[uint64]string{}
	for i := range f.h.Ops {
		byID[f.h.Ops[i].ID] = f.h.Ops[i].Key
	}
	for _, found := range f.j.Findings {
		if found.Checker != "R1" || found.Class != check.Violation || len(found.Ops) == 0 {
			continue
		}
		if key := byID[found.Ops[0]]; key != "" && !slices.Contains(keys, key) {
			keys = append(keys, key)
		}
	}
	if len(keys) == 0 {
		return nil, "No key failed to be linearizable (R1), so there is no page of porcupine's."
	}
	if len(keys) > mostPictures {
		note = fmt.Sprintf("%d of %d keys are shown.", mostPictures, len(keys))
		keys = keys[:mostPictures]
	}
	for _, key := range keys {
		var b bytes.Buffer
		if err := check.Picture(&b, f.h, key, drawPatience); err != nil {
			note += " " + clip(key, 60) + " could not be drawn: " + one(err.Error())
			continue
		}
		out = append(out, picture{one(key), patient(b.String())})
	}
	return out, note
}
