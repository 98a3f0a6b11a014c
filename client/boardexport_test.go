package client_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"raftboard/client"
	boardpb "raftboard/fsm/pb"
	"raftboard/fsm/state"
	"raftboard/transport/clustertest"
)

// F-19: every node writes the same board to the last byte but for who wrote it when, and
// what was written folds to the digest the live board has.
func TestEveryNodeExportsTheBoardAndItReplaysToTheSameDigest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := clustertest.Start(t, clustertest.Options{Nodes: 3})
		ctx := background(t)
		op := dial(t, cluster, "op", cluster.Addrs()...)
		b := op.Board("default")
		for i := range uint64(300) {
			res, err := b.Append(ctx, fmt.Sprintf("facts/%d", i%40), fmt.Appendf(nil, `{"n": %d, "text": %q}`, i, strings.Repeat("é\n", 1000)), client.AppendOptions{})
			ok(t, "append", res, err)
			if i == 150 {
				dead := cluster.Leader()
				cluster.Kill(dead)
				cluster.WaitReady()
				cluster.Restart(dead)
			}
		}
		cluster.WaitReady()
		live, _, err := b.Describe(ctx, client.ReadOptions{})
		if err != nil {
			t.Fatal(err)
		}
		var first string
		for _, addr := range cluster.Addrs() {
			var out bytes.Buffer
			head, err := dial(t, cluster, "op", addr).Board("default").Export(ctx, &out)
			if err != nil || head.Digest != hex.EncodeToString(live.Digest) || head.Rev != live.Head.Rev {
				t.Fatalf("%s: %+v, %v; the live board has digest %x at rev %d", addr, head, err, live.Digest, live.Head.Rev)
			}
			_, records, _ := strings.Cut(out.String(), "\n")
			records = records[:strings.LastIndex(records[:len(records)-1], "\n")]
			if first == "" {
				first = records
			}
			if records != first {
				t.Errorf("%s writes other lines than the first node", addr)
			}
			if got := fold(t, out.String()); got != head.Digest {
				t.Errorf("%s: replayed to digest %s, want %s", addr, got, head.Digest)
			}
			exportsRefusedWhenDamaged(t, out.String())
		}
		if _, err := op.Board("nowhere").Export(ctx, &bytes.Buffer{}); !errors.Is(err, client.ErrNotFound) {
			t.Errorf("a board that is not there: %v", err)
		}
	})
}

// F-33: what was closed stays closed whoever leads, is read and exported by every node, and
// whoever held work there hears of it at once.
func TestAClosedBoardIsReadAndTakesNoWritesWhoeverLeads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := clustertest.Start(t, clustertest.Options{Nodes: 3})
		ctx := background(t)
		op, worker := dial(t, cluster, "op", cluster.Addrs()...), dial(t, cluster, "w1", cluster.Addrs()...)
		if _, err := op.CreateBoard(ctx, "apollo", nil); err != nil {
			t.Fatal(err)
		}
		b := worker.Board("apollo")
		loop, err := b.OpenLoop(ctx, client.LoopOptions{TTL: 30 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		lease, _, err := loop.Claim(ctx, "claims/a", client.ClaimOptions{})
		if err != nil || lease == nil {
			t.Fatalf("claim: %v, %v", lease, err)
		}
		res, err := b.Append(ctx, "facts/a", []byte(`1`), client.AppendOptions{})
		ok(t, "append", res, err)
		closed, err := op.CloseBoard(ctx, "apollo")
		ok(t, "close", closed, err)
		dead := cluster.Leader()
		cluster.Kill(dead)
		cluster.WaitReady()
		cluster.Restart(dead)
		cluster.WaitReady()
		select {
		case <-lease.Context().Done():
		case <-time.After(15 * time.Second):
			t.Error("the holder of a lease was not told in half its duration that the board is closed")
		}
		for _, addr := range cluster.Addrs() {
			c := dial(t, cluster, "op", addr)
			again, err := c.CloseBoard(ctx, "apollo")
			if err != nil || again.Rev != closed.Rev {
				t.Errorf("%s: closed again: %v, %v; want rev %d", addr, again, err, closed.Rev)
			}
			if _, err := c.Board("apollo").Append(ctx, "facts/a", []byte(`2`), client.AppendOptions{}); !errors.Is(err, client.ErrStopping) {
				t.Errorf("%s: an append to a closed board: %v", addr, err)
			}
			if _, err := c.Board("apollo").OpenLoop(ctx, client.LoopOptions{}); !errors.Is(err, client.ErrStopping) {
				t.Errorf("%s: a loop on a closed board: %v", addr, err)
			}
			got, _, err := c.Board("apollo").Get(ctx, "facts/a", client.ReadOptions{})
			if err != nil || string(got.GetEntry().GetValue()) != "1" {
				t.Errorf("%s: %v, %v", addr, got, err)
			}
			var out bytes.Buffer
			head, err := c.Board("apollo").Export(ctx, &out)
			if err != nil || fold(t, out.String()) != head.Digest {
				t.Errorf("%s: the snapshot of a closed board: %+v, %v", addr, head, err)
			}
		}
	})
}

func fold(t *testing.T, text string) string {
	t.Helper()
	r := state.NewReplay()
	head, err := client.ReadExport(strings.NewReader(text), r.Take)
	if err != nil {
		t.Fatal(err)
	}
	b, err := r.Board(head.Board)
	if err != nil || b == nil {
		t.Fatalf("%v, %v", b, err)
	}
	digest := b.Digest()
	return hex.EncodeToString(digest[:])
}

// exportsRefusedWhenDamaged cuts the text between any two lines and in one, and changes it.
func exportsRefusedWhenDamaged(t *testing.T, text string) {
	t.Helper()
	lines := strings.SplitAfter(text, "\n")
	lines = lines[:len(lines)-1]
	last := len(lines) - 1
	damaged := map[string]string{
		"nothing":           "",
		"the first line":    lines[0],
		"no last line":      strings.Join(lines[:last], ""),
		"half a last line":  text[:len(text)-20],
		"a line less":       strings.Join(lines[:2], "") + strings.Join(lines[3:], ""),
		"a line twice":      strings.Join(lines[:3], "") + lines[2] + strings.Join(lines[3:], ""),
		"two lines swapped": strings.Join(lines[:2], "") + lines[3] + lines[2] + strings.Join(lines[4:], ""),
		"another letter":    strings.Replace(text, "facts/7", "facts/8", 1),
		"more behind":       text + lines[2],
	}
	for what, bad := range damaged {
		_, err := client.ReadExport(strings.NewReader(bad), func(*boardpb.SnapshotRecord) error { return nil })
		if !errors.Is(err, client.ErrExportDamaged) {
			t.Errorf("%s: %v", what, err)
		}
	}
}
