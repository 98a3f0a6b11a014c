package node_test

import (
	"strings"
	"testing"

	"github.com/hashicorp/raft"

	"raftboard/node"
)

// A flipped bit of a stored command was applied as another command, on that node alone.
func TestADamagedLogEntryIsNamedAndNeverRead(t *testing.T) {
	entry := raft.Log{Index: 7, Term: 3, Type: raft.LogCommand, Data: []byte("set a = 1")}
	for name, damage := range map[string]func(*raft.Log){
		"a bit of the command":      func(e *raft.Log) { e.Data[4] ^= 1 },
		"the term":                  func(e *raft.Log) { e.Term++ },
		"the kind":                  func(e *raft.Log) { e.Type = raft.LogNoop },
		"the checksum":              func(e *raft.Log) { e.Extensions[0] ^= 1 },
		"an entry without checksum": func(e *raft.Log) { e.Extensions = nil },
	} {
		inner := raft.NewInmemStore()
		store := node.Sealed(inner)
		if err := store.StoreLog(&entry); err != nil {
			t.Fatal(err)
		}
		if entry.Extensions != nil {
			t.Fatal("the entry that raft holds was changed")
		}
		var got raft.Log
		if err := store.GetLog(7, &got); err != nil || string(got.Data) != "set a = 1" || got.Extensions != nil {
			t.Fatalf("read back %+v, %v", got, err)
		}
		var stored raft.Log
		if err := inner.GetLog(7, &stored); err != nil {
			t.Fatal(err)
		}
		stored.Data = append([]byte(nil), stored.Data...)
		damage(&stored)
		if err := inner.StoreLog(&stored); err != nil {
			t.Fatal(err)
		}
		if err := store.GetLog(7, &got); err == nil || !strings.Contains(err.Error(), "log entry 7 is damaged") {
			t.Errorf("%s: read %+v, %v", name, got, err)
		}
	}
}
