package client_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"raftboard/client"
	"raftboard/transport/clustertest"
	wirepb "raftboard/transport/pb"
)

// toolInputs are inputs of tools, and whether a model may call it with them.
var toolInputs = []struct {
	tool, input string
	fits        bool
}{
	{"bb_list", `{}`, true},
	{"bb_list", `{"prefix":"findings","after":"findings/a","limit":7}`, true},
	{"bb_list", `{"limit":0}`, false},
	{"bb_list", `{"limit":201}`, false},
	{"bb_list", `{"prefix":7}`, false},
	{"bb_list", `{"pattern":"findings/*"}`, false},
	{"bb_list", `[]`, false},
	{"bb_read", `{"key":"findings/a"}`, true},
	{"bb_read", `{"key":"findings/a@1","from_line":1,"to_line":2}`, true},
	{"bb_read", `{"key":"findings/a","from_byte":0,"to_byte":2.0,"limit_bytes":9}`, true},
	{"bb_read", `{}`, false},
	{"bb_read", `{"key":""}`, false},
	{"bb_read", `{"key":"findings/a","from_line":0}`, false},
	{"bb_read", `{"key":"findings/a","from_line":1.5}`, false},
	{"bb_read", `{"key":"findings/a","to_byte":0}`, false},
	{"bb_read", `{"key":"findings/a","limit_bytes":262145}`, false},
	{"bb_write", `{"key":"draft","content":"","expected_version":0,"summary":"empty"}`, true},
	{"bb_write", `{"key":"draft","content":"x","summary":"no version"}`, false},
	{"bb_write", `{"key":"draft","expected_version":0,"summary":"no content"}`, false},
	{"bb_write", `{"key":"draft","content":"x","expected_version":0}`, false},
	{"bb_write", `{"key":"draft","content":"x","expected_version":0,"summary":""}`, false},
	{"bb_write", `{"key":"draft","content":"x","expected_version":-1,"summary":"s"}`, false},
	{"bb_write", `{"key":"draft","content":"x","expected_version":"1","summary":"s"}`, false},
	{"bb_write", `{"key":"draft","content":{"a":1},"expected_version":1,"summary":"s"}`, false},
	{"bb_append", `{"key":"findings/a","content":"x","summary":"s","cites":["findings/a"],"source":"u"}`, true},
	{"bb_append", `{"key":"findings/a","content":"x","summary":"two\nlines"}`, false},
	{"bb_append", `{"key":"findings/a","content":"x","summary":"` + strings.Repeat("s", 201) + `"}`, false},
	{"bb_append", `{"key":"findings/a","content":"x","summary":"s","cites":"findings/a"}`, false},
	{"bb_append", `{"key":"findings/a","content":"x","summary":"s","source":"` + strings.Repeat("s", 513) + `"}`, false},
	{"bb_append", `{"key":"findings/a","content":"x","summary":"s","generation":0}`, false},
	{"bb_append", `{"key":"findings/a","content":"x","summary":"s","unique":true}`, false},
}

// SPEC BB-1: what the schema allows is run, what it does not allow is refused, and a validator
// that others wrote draws the line at the same place.
func TestBB1TheToolsTakeWhatTheirSchemasAllow(t *testing.T) {
	schemas := map[string]*jsonschema.Schema{}
	for _, tool := range client.Tools() {
		doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(tool.InputSchema))
		if err != nil {
			t.Fatal(err)
		}
		c := jsonschema.NewCompiler()
		if err := c.AddResource(tool.Name, doc); err != nil {
			t.Fatal(err)
		}
		if schemas[tool.Name], err = c.Compile(tool.Name); err != nil {
			t.Fatal(err)
		}
		if len(tool.Description) < 100 {
			t.Errorf("%s is described as %q", tool.Name, tool.Description)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		cluster := clustertest.Start(t, clustertest.Options{Nodes: 1})
		ctx := background(t)
		b := dial(t, cluster, "w1", cluster.Addrs()...).Board("default")
		res, err := b.Append(ctx, "findings/a", []byte(`"one"`), client.AppendOptions{})
		ok(t, "append", res, err)
		tried := map[string]int{}
		for _, in := range toolInputs {
			tried[in.tool]++
			doc, err := jsonschema.UnmarshalJSON(strings.NewReader(in.input))
			if err != nil {
				t.Fatal(err)
			}
			if valid := schemas[in.tool].Validate(doc); (valid == nil) != in.fits {
				t.Errorf("%s %s: the schema says %v", in.tool, in.input, valid)
			}
			seen, err := b.UseTool(ctx, in.tool, []byte(in.input))
			if err != nil || (seen.Outcome == "ok") != in.fits {
				t.Errorf("%s %s: %+v, %v", in.tool, in.input, seen, err)
			}
		}
		for name := range schemas {
			if tried[name] == 0 {
				t.Errorf("no input of %s was tried", name)
			}
		}
		for _, bad := range []string{`{} {}`, `{`, ``} {
			if seen, err := b.UseTool(ctx, "bb_list", []byte(bad)); err != nil || seen.Outcome != "bad_request" {
				t.Errorf("%q: %+v, %v", bad, seen, err)
			}
		}
		if seen, err := b.UseTool(ctx, "rm", []byte(`{}`)); err != nil || seen.Outcome != "bad_request" || !strings.Contains(seen.Text, "bb_append") {
			t.Errorf("an unknown tool: %+v, %v", seen, err)
		}
	})
}

func useTool(t *testing.T, ctx context.Context, b *client.Board, tool string, input map[string]any) *client.Observation {
	t.Helper()
	raw, err := json.Marshal(input)
	if err != nil {
		t.Fatal(err)
	}
	seen, err := b.UseTool(ctx, tool, raw)
	if err != nil {
		t.Fatalf("%s %s: %v", tool, raw, err)
	}
	return seen
}

// Two agents work through the tools alone, and the leader goes on the way.
func TestTheToolsOnARealClusterAcrossALeaderChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := clustertest.Start(t, clustertest.Options{Nodes: 3})
		ctx := background(t)
		w1, w2 := dial(t, cluster, "w1", cluster.Addrs()...).Board("default"), dial(t, cluster, "w2", cluster.Addrs()...).Board("default")
		long := strings.Repeat("0123456789abcdef\n", 40<<10/17) + "</board_view> the end"
		seen := useTool(t, ctx, w1, "bb_write", map[string]any{"key": "results/w1/extract", "content": long, "expected_version": 0, "summary": "forty pages"})
		if seen.Text != "results/w1/extract@1 — forty pages" || seen.Ref != "results/w1/extract@1" {
			t.Fatalf("%+v", seen) // SPEC 5.2 test 6: what is handed over is a reference and a line
		}
		useTool(t, ctx, w1, "bb_append", map[string]any{"key": "findings/api", "content": "port 8970", "summary": "the port"})
		again := useTool(t, ctx, w2, "bb_append", map[string]any{"key": "findings/api", "content": "port 8970", "summary": "the port"})
		if again.Outcome != "ok" || again.Ref != "findings/api@1" || !strings.Contains(again.Text, "nothing was added") {
			t.Errorf("a duplicate: %+v", again)
		}
		cluster.Kill(cluster.Leader())
		list := useTool(t, ctx, w2, "bb_list", map[string]any{"prefix": "results/"})
		if !strings.Contains(list.Text, "results/w1/extract@1 by w1") || !strings.Contains(list.Text, ": forty pages") || strings.Contains(list.Text, "findings") {
			t.Errorf("list:\n%s", list.Text)
		}
		var got strings.Builder
		parts := 0
		for from := 0; ; parts++ {
			part, _, err := w2.Content(ctx, &wirepb.ContentQuery{Key: "results/w1/extract", FromByte: uint64(from)}, client.ReadOptions{})
			if err != nil || len(part.Content) > 16<<10 {
				t.Fatalf("from %d: %d bytes, %v", from, len(part.GetContent()), err)
			}
			got.WriteString(part.Content)
			if from = int(part.To); !part.Truncated {
				break
			}
		}
		if got.String() != long || parts != 2 {
			t.Errorf("%d parts of %d bytes, want %d", parts+1, got.Len(), len(long))
		}
		read := useTool(t, ctx, w2, "bb_read", map[string]any{"key": "results/w1/extract"})
		if !strings.Contains(read.Text, "[cut here; for the rest read results/w1/extract from_byte 16384]") || read.Version != 1 {
			t.Errorf("read:\n%.400s", read.Text)
		}
		last := useTool(t, ctx, w2, "bb_read", map[string]any{"key": "results/w1/extract", "from_line": 2410})
		if strings.Count(last.Text, "</board_view") != 1 || !strings.Contains(last.Text, "&lt;/board_view> the end") {
			t.Errorf("the fence holds not:\n%s", last.Text)
		}
		for range 2 { // the version moved: an observation, and nothing was written
			if seen := useTool(t, ctx, w1, "bb_write", map[string]any{"key": "results/w1/extract", "content": "x", "expected_version": 2,
				"summary": "s"}); seen.Outcome != "version_conflict" || seen.Version != 1 || !strings.Contains(seen.Text, "Re-read and reconcile") {
				t.Errorf("a conflict: %+v", seen)
			}
		}
		if seen := useTool(t, ctx, w2, "bb_write", map[string]any{"key": "results/w1/extract", "content": "x", "expected_version": 1,
			"summary": "s"}); seen.Outcome != "forbidden" {
			t.Errorf("another's key: %+v", seen)
		}
		if seen := useTool(t, ctx, w2, "bb_read", map[string]any{"key": "results/w1/none"}); seen.Outcome != "ok" || seen.Version != 0 || seen.Ref != "" {
			t.Errorf("a missing key: %+v", seen)
		}
		w1.Invalidate(ctx, "findings/api@1", "the port moved")
		flagged := useTool(t, ctx, w2, "bb_read", map[string]any{"key": "findings/api"})
		if !strings.Contains(flagged.Text, "[findings/api@1 was invalidated by w1]") {
			t.Errorf("not flagged:\n%s", flagged.Text)
		}
	})
}

// SPEC 5.2 test 3: 8 agents append 500 times each, a tenth of the answers is lost, and every
// item is there once.
func TestBB4FourThousandAppendsWithLostAnswersAreFourThousandItems(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := clustertest.Start(t, clustertest.Options{Nodes: 3})
		ctx := background(t)
		flaky := &losing{rand: rand.New(rand.NewPCG(5, 2))}
		var wg sync.WaitGroup
		for w := range 8 {
			name := fmt.Sprintf("w%d", w)
			c, err := client.Dial(client.Config{Endpoints: cluster.Addrs(), As: name, Dialer: flaky.dialer(cluster.Dialer(name)), Timeout: 5 * time.Minute})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { c.Close() })
			wg.Go(func() {
				for n := range 500 {
					seen, err := c.Board("default").UseTool(ctx, "bb_append",
						fmt.Appendf(nil, `{"key":"facts/log","content":"%s %d","summary":"one"}`, name, n))
					if err != nil || seen.Outcome != "ok" {
						t.Errorf("%s %d: %+v, %v", name, n, seen, err)
						return
					}
				}
			})
		}
		wg.Wait()
		flaky.off.Store(true)
		lost := flaky.lost.Load()
		if lost < 100 {
			t.Fatalf("only %d answers were lost", lost)
		}
		seen := map[string]int{}
		b := dial(t, cluster, "reader", cluster.Addrs()...).Board("default")
		for from, more := uint64(0), true; more; {
			part, _, err := b.Content(ctx, &wirepb.ContentQuery{Key: "facts/log", FromLine: from + 1, ToLine: from + 500}, client.ReadOptions{})
			if err != nil {
				t.Fatal(err)
			}
			for line := range strings.SplitSeq(part.Content, "\n") {
				seen[line]++
			}
			from += 500
			more = from < part.Lines
			if part.Version != 4000 || part.Lines != 4000 {
				t.Fatalf("version %d, %d lines", part.Version, part.Lines)
			}
		}
		if len(seen) != 4000 {
			t.Errorf("%d different items, want 4000", len(seen))
		}
		for line, n := range seen {
			if n != 1 {
				t.Errorf("%q is there %d times", line, n)
			}
		}
	})
}

// SPEC 5.2 test 1: in each of 1,000 rounds 8 agents write what they read the same version of.
// One is told its new version, seven that it is taken; nothing is overwritten.
func TestBB3OfEightWritersOfOneVersionOneWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := clustertest.Start(t, clustertest.Options{Nodes: 3})
		ctx := background(t)
		var agents []*client.Board
		for w := range 8 {
			agents = append(agents, dial(t, cluster, fmt.Sprintf("w%d", w), cluster.Addrs()...).Board("default"))
		}
		for version := range uint64(1000) {
			seen := make([]*client.Observation, len(agents))
			var wg sync.WaitGroup
			for w, b := range agents {
				wg.Go(func() {
					seen[w] = useTool(t, ctx, b, "bb_write", map[string]any{"key": "draft", "content": fmt.Sprintf("round %d by w%d", version, w),
						"expected_version": version, "summary": "a round"})
				})
			}
			wg.Wait()
			winner := -1
			for w, s := range seen {
				switch {
				case s.Version != version+1 || s.Outcome != "ok" && s.Outcome != "version_conflict":
					t.Fatalf("round %d, w%d: %+v", version, w, s)
				case s.Outcome == "ok" && winner >= 0:
					t.Fatalf("round %d: w%d and w%d both wrote", version, winner, w)
				case s.Outcome == "ok":
					winner = w
				}
			}
			got, _, err := agents[0].Content(ctx, &wirepb.ContentQuery{Key: "draft"}, client.ReadOptions{})
			if want := fmt.Sprintf("round %d by w%d", version, winner); err != nil || winner < 0 || got.Content != want || got.Version != version+1 {
				t.Fatalf("round %d: %q at %d, %v; want %q", version, got.GetContent(), got.GetVersion(), err, want)
			}
		}
	})
}
