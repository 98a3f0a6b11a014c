package node

import (
	"errors"
	"testing"

	"github.com/hashicorp/raft"

	boardpb "raftboard/fsm/pb"
)

func threeNodes() []*boardpb.Node {
	return []*boardpb.Node{{Id: "c", Name: "n3"}, {Id: "a", Name: "n1"}, {Id: "b", Name: "n2"}}
}

func memoryStores() (Stores, *raft.InmemStore) {
	s := raft.NewInmemStore()
	return Stores{Log: s, Stable: s, Snapshots: raft.NewInmemSnapshotStore(), Where: "memory"}, s
}

func TestP26ABootstrapThatWasCutBetweenItsWritesIsCompleted(t *testing.T) {
	intent := NewIntent("cl", "test", threeNodes())
	s, store := memoryStores()
	if err := store.SetUint64([]byte("CurrentTerm"), 1); err != nil {
		t.Fatal(err)
	}
	// The library on its own answers ErrCantBootstrap for ever.
	for range 2 {
		if err := Bootstrap("a", s, intent); err != nil {
			t.Fatal(err)
		}
	}
	var e raft.Log
	if err := store.GetLog(1, &e); err != nil || e.Term != 1 || e.Type != raft.LogConfiguration {
		t.Fatalf("entry 1 is %+v, %v", e, err)
	}
	if conf := raft.DecodeConfiguration(e.Data); len(conf.Servers) != 3 || string(conf.Servers[0].Address) != string(conf.Servers[0].ID) {
		t.Errorf("the configuration is %v", conf)
	}
	if last, _ := store.LastIndex(); last != 1 {
		t.Errorf("the log ends at %d", last)
	}
}

func TestP26ABootstrapLeavesAClusterThatIsThereAlone(t *testing.T) {
	s, store := memoryStores()
	if err := errors.Join(Bootstrap("a", s, NewIntent("cl", "test", threeNodes())), store.StoreLog(&raft.Log{Index: 2, Term: 5}),
		store.SetUint64([]byte("CurrentTerm"), 5)); err != nil {
		t.Fatal(err)
	}
	if err := Bootstrap("a", s, NewIntent("other", "test", threeNodes()[:1])); err != nil {
		t.Fatal(err)
	}
	var e raft.Log
	if err := store.GetLog(1, &e); err != nil || len(raft.DecodeConfiguration(e.Data).Servers) != 3 {
		t.Errorf("entry 1 was replaced: %v, %v", e, err)
	}
}

func TestP26EqualMembersAreOneIntentInAnyOrder(t *testing.T) {
	nodes := threeNodes()
	a := NewIntent("cl", "test", nodes)
	nodes[0], nodes[2] = nodes[2], nodes[0]
	if b := NewIntent("cl", "test", nodes); !a.equal(b) {
		t.Errorf("%v and %v differ", a, b)
	}
}

func TestP26AFreshNodeAcceptsOneIntentForEver(t *testing.T) {
	path := t.TempDir()
	d := openDir(t, path, Want{NodeName: "n1"})
	self := &boardpb.Node{Id: d.Identity().NodeID, Name: "n1"}
	first := NewIntent("cl", "test", []*boardpb.Node{self, {Id: "b", Name: "n2"}})
	if err := errors.Join(d.AcceptIntent(first), d.AcceptIntent(first)); err != nil {
		t.Fatal(err)
	}
	if err := d.AcceptIntent(NewIntent("cl2", "test", []*boardpb.Node{self})); err == nil {
		t.Error("a second intent was accepted")
	}
	if err := d.AcceptIntent(NewIntent("cl3", "test", []*boardpb.Node{{Id: "b", Name: "n2"}})); err == nil {
		t.Error("an intent without this node was accepted")
	}
	d.Close()
	again := openDir(t, path, Want{NodeName: "n1"})
	if got, ok, err := again.Intent(); err != nil || !ok || !got.equal(first) {
		t.Errorf("after a restart the intent is %v, %v, %v", got, ok, err)
	}
}

func TestP26AMemberOfAClusterAcceptsNoIntentOfAnother(t *testing.T) {
	d := openDir(t, t.TempDir(), Want{NodeName: "n1"})
	if err := d.SetCluster("cl", "test"); err != nil {
		t.Fatal(err)
	}
	if err := d.AcceptIntent(NewIntent("cl2", "test", []*boardpb.Node{{Id: d.Identity().NodeID, Name: "n1"}})); err == nil {
		t.Error("it was accepted")
	}
}
