package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"os"
	"os/signal"
	"time"

	"raftboard/client"
	boardpb "raftboard/fsm/pb"
)

// A worker: takes items until it is interrupted, finishes the one at hand, and leaves.
func Example_worker() {
	c, err := client.Dial(client.Config{Endpoints: []string{"n1:8970", "n2:8970", "n3:8970"}, As: "worker-1"})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	stop, cancel := signal.NotifyContext(context.Background(), os.Interrupt)
	defer cancel()

	work := client.WorkOptions{Pattern: "claims/*", Duration: 30 * time.Second}
	err = c.Board("default").Work(stop, work, func(ctx context.Context, item *client.Lease) (client.Done, error) {
		var path string // ctx ends when the lease is lost: then stop, another has the item
		if err := json.Unmarshal(item.Value(), &path); err != nil {
			return client.Done{}, err // the item fails: it is put off 1 s, then twice as long each time
		}
		info, err := os.Stat(path)
		if err != nil {
			return client.Done{}, err
		}
		return client.Done{Result: fmt.Appendf(nil, `{"bytes":%d}`, info.Size())}, nil
	})
	if err != nil {
		log.Fatal(err)
	}
}

// A claim by hand: derive the context of the work, and cancel it when the work returns.
func ExampleLoop_Claim() {
	ctx, done := context.WithCancel(context.Background())
	defer done() // whatever happens below, the lease is not renewed any longer

	c, _ := client.Dial(client.DefaultConfig())
	defer c.Close()
	loop, err := c.Board("default").OpenLoop(ctx, client.LoopOptions{})
	if err != nil {
		log.Fatal(err)
	}
	lease, res, err := loop.Claim(ctx, "claims/report", client.ClaimOptions{Duration: time.Minute})
	if err != nil || lease == nil {
		log.Fatal("not ours: ", res.GetOutcome(), err)
	}
	if _, err := lease.Complete(ctx, []byte(`"written"`), ""); errors.Is(err, client.ErrStaleLease) {
		log.Print("too slow: another worker has it")
	}
}

// A conflict is a value: Mutate reads again and tries four times before it gives up.
func ExampleBoard_Mutate() {
	c, _ := client.Dial(client.DefaultConfig())
	defer c.Close()
	res, err := c.Board("default").Mutate(context.Background(), "draft", func(cur *boardpb.Entry) ([]byte, error) {
		return append([]byte(`"v2 of `), append(cur.GetValue(), '"')...), nil
	})
	if err == nil && res.Outcome == boardpb.Outcome_OUTCOME_CONFLICT {
		log.Printf("%s is being fought over: version %d by %s", res.Key, res.Version, res.Author)
	}
}

// A watch heals itself: only what it needs being compacted away ends it.
func ExampleBoard_Watch() {
	ctx := context.Background()
	c, _ := client.Dial(client.DefaultConfig())
	defer c.Close()
	w, err := c.Board("default").Watch(ctx, client.WatchOptions{Patterns: []string{"results/**"}, Snapshot: true, IncludeValues: true})
	if err != nil {
		log.Fatal(err)
	}
	for {
		m, err := w.Next(ctx)
		if err != nil {
			log.Fatal(err)
		}
		if m.Entry != nil {
			fmt.Println(m.Rev, m.Entry.Key, string(m.Entry.Value))
		}
	}
}

// A host lets a model use the board: what it calls is run, and what comes back is told to it.
func ExampleBoard_UseTool() {
	ctx := context.Background()
	c, _ := client.Dial(client.DefaultConfig())
	defer c.Close()
	for _, tool := range client.Tools() {
		log.Print("offer the model ", tool.Name, " with ", string(tool.InputSchema))
	}
	seen, err := c.Board("default").UseTool(ctx, "bb_append",
		[]byte(`{"key":"findings/api","content":"port 8970","summary":"the port"}`))
	if err != nil {
		log.Fatal(err) // of the host: the board cannot be reached
	}
	fmt.Println(seen.Text) // for a tool's message: findings/api@1 — the port
}
