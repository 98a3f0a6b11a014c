package report_test

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"html"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode"

	boardpb "raftboard/fsm/pb"
	"raftboard/jepsen/check"
	"raftboard/jepsen/history"
	"raftboard/jepsen/report"
)

// page renders and looks at what holds of every page: it is whole, it loads nothing, and its
// pictures are well-formed and without a number that is none.
func page(t *testing.T, h *history.History, j check.Judgement) string {
	t.Helper()
	var b bytes.Buffer
	if err := report.Run(&b, h, j); err != nil {
		t.Fatal(err)
	}
	sound(t, b.String())
	return b.String()
}

func sound(t *testing.T, text string) {
	t.Helper()
	if !strings.HasSuffix(strings.TrimSpace(text), "</html>") {
		t.Error("the page has no end")
	}
	if !strings.Contains(text, `content="default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'"`) {
		t.Error("the page does not forbid the browser to load anything")
	}
	tags := regexp.MustCompile(`<[a-zA-Z][^<>]*>`).FindAllString(regexp.MustCompile(`srcdoc="[^"]*"`).ReplaceAllString(text, ""), -1)
	if len(tags) < 20 {
		t.Errorf("the page has %d tags: the search for what it loads is blind", len(tags))
	}
	outer := regexp.MustCompile(`(?i)^<(link|base|img|object|embed|image|use|audio|video)\b|\s(src|xlink:href)=`)
	leads := regexp.MustCompile(`(?i)\shref="(https?:|//|javascript:|data:)`)
	for _, tag := range tags {
		if outer.MatchString(regexp.MustCompile(`="[^"]*"`).ReplaceAllString(tag, `=""`)) || leads.MatchString(tag) {
			t.Errorf("the page reaches out: %s", tag)
		}
	}
	for _, part := range regexp.MustCompile(`(?s)<(style|script)>.*?</(style|script)>`).FindAllString(text, -1) {
		if regexp.MustCompile(`@import|url\(|https?://`).MatchString(strings.ReplaceAll(part, "http://www.w3.org/2000/svg", "")) {
			t.Error("the style or the script of the page reaches out")
		}
	}
	if strings.Contains(text, "ZgotmplZ") {
		t.Error("the template refused something it was given")
	}
	for _, rest := range strings.Split(text, `<svg class="plot"`)[1:] {
		wellFormed(t, `<svg class="plot"`+rest)
	}
}

// wellFormed looks at the picture that a text begins with.
func wellFormed(t *testing.T, svg string) {
	t.Helper()
	d := xml.NewDecoder(strings.NewReader(svg))
	for depth := 0; ; {
		token, err := d.Token()
		if err != nil {
			t.Errorf("a picture is not well-formed: %v: %.200s", err, svg)
			return
		}
		if _, is := token.(xml.EndElement); is {
			if depth--; depth == 0 {
				return
			}
		}
		if e, is := token.(xml.StartElement); is {
			depth++
			for _, a := range e.Attr {
				if strings.Contains(a.Value, "NaN") || strings.Contains(a.Value, "Inf") {
					t.Errorf("a picture has %s=%q", a.Name.Local, a.Value)
				}
			}
		}
	}
}

// section is a page's text from one heading to the next.
func section(t *testing.T, text, id string) string {
	t.Helper()
	_, rest, found := strings.Cut(text, `<h2 id="`+id+`">`)
	if !found {
		t.Fatalf("the page has no section %s", id)
	}
	rest, _, _ = strings.Cut(rest, `<h2 id="`)
	return rest
}

func TestAPageSaysWhatWasRunAndWhatCameOfItInOrder(t *testing.T) {
	h := registers(20, false)
	text := page(t, h, check.Judgement{Verdict: check.VALID, Met: map[check.State]int{check.LeaderChange: 3}})
	at := -1
	for _, part := range []string{"No anomaly found under these faults at this rate.", "n1, n2, n3", h.Run.Rerun, `id="counts"`, `id="faults"`, "n2 leads in term 3",
		`id="states"`, "leader change", `id="latency"`, `id="rate"`, `id="nodes"`, `id="append"`, `id="clients"`, `id="porcupine"`, `id="leases"`, `id="feed"`, `id="words"`} {
		next := strings.Index(text, part)
		if next < at {
			t.Errorf("%q stands at %d, what is before it at %d", part, next, at)
		}
		at = max(at, next)
	}
	for _, word := range []string{"correct", "proven", "guaranteed"} {
		if strings.Contains(strings.ToLower(text), word) {
			t.Errorf("the page says %q: a run shows no such thing", word)
		}
	}
	for id, want := range map[string]string{"latency": `class="dot ok"`, "rate": `class="rate ok"`, "nodes": `class="role leader"`, "faults": "164 ms"} {
		if !strings.Contains(section(t, text, id), want) {
			t.Errorf("section %s lacks %s", id, want)
		}
	}
}

func TestARunThatProvesNothingIsNotShownAsAPass(t *testing.T) {
	h := registers(20, false)
	h.Faults[0].Witness = ""
	j := check.Whole(h)
	text := page(t, h, j)
	if j.Verdict == check.VALID || strings.Contains(text, "No anomaly found") {
		t.Errorf("the verdict is %s, and the page says that no anomaly was found", j.Verdict)
	}
	if !strings.Contains(section(t, text, "faults"), `<span class="bad">none</span>`) {
		t.Error("a fault without a witness is not marked")
	}
}

func TestAFailureIsToldDrawnAndExplained(t *testing.T) {
	h := registers(20, true)
	j := check.Whole(h)
	if j.Verdict != check.FAILED || j.Findings[0].Checker != "R1" {
		t.Fatalf("the spoiled run is %s: %v", j.Verdict, j.Findings)
	}
	text := page(t, h, j)
	for id, want := range map[string]string{"story": "client-3: get reg/a", "clients": `class="op ok named"`, "porcupine": "<iframe sandbox=\"allow-scripts\""} {
		if !strings.Contains(section(t, text, id), want) {
			t.Errorf("section %s lacks %s", id, want)
		}
	}
	inner := html.UnescapeString(regexp.MustCompile(`srcdoc="([^"]*)"`).FindStringSubmatch(text)[1])
	for _, want := range []string{"operation 41 of client-3", "faults", "const go = ", "render(data);"} {
		if !strings.Contains(inner, want) {
			t.Errorf("porcupine's page lacks %q", want)
		}
	}
}

// evil are texts that want out of where they are put.
func evil() []string {
	return []string{`<script>alert(1)</script>`, `"><img src=x onerror=alert(1)>`, `</title></svg><iframe src="https://example.com">`,
		`{{.Rerun}}`, "\x1b[31mred\x07", "\u202egnp.exe", "a\nb", `'; alert(1); '`, "\xff\xfe", "render(data)"}
}

// hostile has the text in every field that somebody else fills.
func hostile(text string) *history.History {
	b := newHand("register")
	key, value := "reg/"+text, fmt.Sprintf("%q", text)
	b.set(text, key, value, 1)
	b.set(text, key, value+"2", 2)
	b.get(text, key, value, 1)
	b.claim(text, key, 1, 50)
	b.now += time.Minute
	b.claim("other", key, 2, 50)
	b.complete(text, key, 1, true)
	b.kill(text, text)
	b.event(text, 1)
	b.event(text, 3)
	b.h.Feed[0].Event.Key = key
	b.h.Feed = append(b.h.Feed, history.Told{Watcher: text, Board: aBoard, At: b.now, Cut: text})
	b.h.Finals = append(b.h.Finals, history.Final{Reader: text, Board: aBoard, Entry: &boardpb.Entry{Key: key, Value: []byte(value)}})
	b.h.Roles = append(b.h.Roles, history.Role{Node: text, Life: 1, At: b.now, Term: 3, Role: text})
	b.h.Install = append(b.h.Install, history.Installed{Node: text, Life: 1, At: b.now, Index: 1})
	b.h.Notes = append(b.h.Notes, history.Note{Kind: history.NoteDied, Node: text, Text: text})
	b.h.Run.Nodes = append(b.h.Run.Nodes, text)
	for _, s := range []*string{&b.h.Run.Nemesis, &b.h.Run.Driver, &b.h.Run.Mutant, &b.h.Run.Version, &b.h.Run.Rerun} {
		*s = text
	}
	b.h.Ops[0].Result.Error, b.h.Ops[0].Outcome, b.h.Ops[0].Result.Answer = text, history.Info, ""
	return b.done()
}

func TestForeignTextStaysTextOnThePageAndPrintsOnATerminal(t *testing.T) {
	for _, text := range evil() {
		h := hostile(text)
		j := check.Whole(h)
		for _, one := range []string{"F2", "G1", "T2", "R1", "Q3"} {
			j.Findings = append(j.Findings, check.Finding{Checker: one, Class: check.Violation, What: "G0, watcher " + text, Ops: []uint64{1, 2}})
		}
		j.Findings[0].What += text
		out := page(t, h, j)
		inner := ""
		for _, doc := range regexp.MustCompile(`srcdoc="([^"]*)"`).FindAllStringSubmatch(out, -1) {
			inner += html.UnescapeString(doc[1])
		}
		if inner == "" {
			t.Fatal("the run has no page of porcupine's: nothing was tried there")
		}
		for where, s := range map[string]string{"the page": out, "porcupine's page": inner} {
			for _, bad := range []string{"<script>alert", "<img", `<iframe src=`, "\x1b", "\u202e", "\x07"} {
				if strings.Contains(s, bad) {
					t.Errorf("%q reaches %s as %q", text, where, bad)
				}
			}
		}
		if n := strings.Count(inner, "</script>"); n != strings.Count(inner, "<script>") {
			t.Errorf("%q ends the script of porcupine's page", text)
		}
		for _, f := range j.Findings {
			story := report.Story(h, check.Judgement{Verdict: check.FAILED, Findings: []check.Finding{f}, Order: j.Order, Windows: j.Windows})
			for _, r := range story {
				if r != '\n' && !unicode.IsPrint(r) || r == unicode.ReplacementChar {
					t.Errorf("%q: the story of %s has the character %U", text, f.Checker, r)
					break
				}
			}
		}
	}
}

func TestABigHistoryIsDrawnInPartAndThePageSaysSo(t *testing.T) {
	b := newHand("register")
	const n = 40_000 // twice what is drawn
	for i := range n {
		o := history.Op{Client: fmt.Sprintf("client-%d", i%40), Kind: history.Kind(fmt.Sprintf("kind-%d", i%20)), Key: "k", Outcome: history.OK, Result: history.Result{Answer: "ok"}}
		if i%100 == 0 {
			o.Outcome, o.Result = history.Info, history.Result{Error: fmt.Sprintf("rpc error: code = Unavailable, try %d", i)}
		}
		b.op(o)
	}
	for i := range uint64(9_000) {
		b.event("w", i+1)
	}
	for i := range 400 {
		b.h.Faults = append(b.h.Faults, history.Fault{Name: "kill", Nemesis: "N7", Targets: []string{"n1"}, Start: time.Duration(i) * time.Second, End: time.Duration(i)*time.Second + 500*time.Millisecond, Witness: "yes"})
	}
	h := b.done()
	var windows []*check.Window
	for i := range 9000 {
		windows = append(windows, &check.Window{Board: aBoard, Key: fmt.Sprintf("claims/%d", i), Generation: 1, Owner: fmt.Sprintf("w%d", i%50), From: int64(i), To: int64(i + 1), Cause: "completed"})
	}
	b.apply(&boardpb.Command{}, &boardpb.Result{})
	order, _ := check.Agree(h)
	j := check.Judgement{Verdict: check.FAILED, Order: order, Windows: windows}
	for i := range 5000 {
		j.Findings = append(j.Findings, check.Finding{Checker: fmt.Sprintf("X%d", i%100), Class: check.Violation, What: "bad", Ops: []uint64{uint64(i*10 + 1)}})
	}
	text := page(t, h, j)
	for _, want := range []string{"A sample is drawn: 19 600 of 39 600 ok operations and 400 of 400 others", "40 000", "The first 300 of 400 faults are listed.",
		"The first 3 000 of 9 000 windows are drawn.", "16 of 20 kinds are drawn.", "Of a watcher that was told more than 3 000 things a sample is drawn", "24 of 50 holders are drawn."} {
		if !strings.Contains(text, want) {
			t.Errorf("the page does not say %q", want)
		}
	}
	if len(text) > 8<<20 {
		t.Errorf("the page has %d bytes", len(text))
	}
}

func TestAnEmptyHistoryGivesAPageThatSaysWhatIsMissing(t *testing.T) {
	for name, j := range map[string]check.Judgement{"not judged": {}, "judged": check.Whole(&history.History{})} {
		text := page(t, &history.History{}, j)
		for id, want := range map[string]string{"counts": "No operation was recorded.", "faults": "No fault was recorded", "latency": "no latency to show", "rate": "no rate to show",
			"nodes": "names no node", "append": "appends nothing", "clients": "No violation names an operation", "porcupine": "No key failed", "leases": "No lease was granted", "feed": "Nobody watched"} {
			if !strings.Contains(section(t, text, id), want) {
				t.Errorf("%s: section %s does not say %q", name, id, want)
			}
		}
		if strings.Contains(text, "No anomaly found") {
			t.Errorf("%s: an empty history is called free of anomalies", name)
		}
	}
}

func TestWithoutTimesOfApplyingThePageFallsBackAndSaysSo(t *testing.T) {
	b := newHand("work")
	b.claim("w1", "claims/a", 1, 1000)
	b.complete("w1", "claims/a", 1, false)
	h := b.done()
	h.Roles = nil
	for i := range h.Applied {
		h.Applied[i].At = 0
	}
	order, _ := check.Agree(h)
	windows, _ := check.Leases(order)
	text := page(t, h, check.Judgement{Order: order, Windows: windows})
	for id, want := range map[string]string{"nodes": "does not say when nodes applied what", "leases": "placed by the answers of clients"} {
		if !strings.Contains(section(t, text, id), want) {
			t.Errorf("section %s does not say %q", id, want)
		}
	}
	if !strings.Contains(section(t, text, "nodes"), "Roles were not recorded") {
		t.Error("the page does not say that roles are missing")
	}
	if !strings.Contains(section(t, text, "leases"), "w1") {
		t.Error("the window is not drawn")
	}
}
