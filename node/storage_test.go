package node

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hashicorp/raft"
	"go.etcd.io/bbolt"
)

func openDir(t *testing.T, path string, w Want) *Dir {
	t.Helper()
	d, err := OpenDir(path, w)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

func TestADirectoryKeepsItsIdentity(t *testing.T) {
	path := filepath.Join(t.TempDir(), "data")
	d := openDir(t, path, Want{NodeName: "n1", Timing: DefaultTiming()})
	first := d.Identity()
	if err := d.SetCluster("c-1", "prod"); err != nil {
		t.Fatal(err)
	}
	if err := d.SetCluster("c-2", "prod"); err == nil {
		t.Error("a second cluster was accepted")
	}
	d.Close()
	again := openDir(t, path, Want{NodeName: "n1", ClusterName: "prod"}).Identity()
	if again.NodeID != first.NodeID || again.ClusterID != "c-1" || again.Timing().Heartbeat != DefaultTiming().Heartbeat {
		t.Errorf("%+v after %+v", again, first)
	}
}

func TestT78ADirectoryOfAnotherNodeClusterFormatOrStoreIsRefusedWithTheWayBack(t *testing.T) {
	cases := map[string]struct {
		spoil func(t *testing.T, path string)
		want  Want
		says  string
	}{
		"another node name":    {want: Want{NodeName: "n2"}, says: `belongs to node "n1"`},
		"another cluster id":   {want: Want{NodeName: "n1", ClusterID: "c-9"}, says: `belongs to cluster "c-1"`},
		"another cluster name": {want: Want{NodeName: "n1", ClusterName: "test"}, says: `belongs to cluster "prod"`},
		"another log store":    {want: Want{NodeName: "n1", LogStore: "wal"}, says: `"wal" is not known`},
		"another format":       {spoil: rewrite(versionFile, "raftboard 2\n"), want: Want{NodeName: "n1"}, says: `it says "raftboard 2"`},
		"a cut identity":       {spoil: rewrite(identityFile, `{"node_id": "x`), want: Want{NodeName: "n1"}, says: "damaged"},
		"a lost identity":      {spoil: remove(identityFile), want: Want{NodeName: "n1"}, says: "cannot be read"},
		"a lost version":       {spoil: remove(versionFile), want: Want{NodeName: "n1"}, says: "not a raftboard data directory"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			path := t.TempDir()
			d := openDir(t, path, Want{NodeName: "n1"})
			if err := d.SetCluster("c-1", "prod"); err != nil {
				t.Fatal(err)
			}
			s, err := OpenStores(d, nil)
			if err != nil {
				t.Fatal(err)
			}
			s.Close()
			d.Close()
			if c.spoil != nil {
				c.spoil(t, path)
			}
			before := listing(t, path)
			_, err = OpenDir(path, c.want)
			var dir *DirError
			if !errors.As(err, &dir) || !strings.Contains(err.Error(), c.says) || dir.Hint == "" {
				t.Fatalf("answered %v; expected it to say %q and the way back", err, c.says)
			}
			if after := listing(t, path); after != before {
				t.Errorf("the refused directory was changed:\n%s\n%s", before, after)
			}
		})
	}
}

func rewrite(name, content string) func(*testing.T, string) {
	return func(t *testing.T, path string) {
		if err := os.WriteFile(filepath.Join(path, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func remove(name string) func(*testing.T, string) {
	return func(t *testing.T, path string) {
		if err := os.Remove(filepath.Join(path, name)); err != nil {
			t.Fatal(err)
		}
	}
}

func listing(t *testing.T, path string) string {
	t.Helper()
	var out strings.Builder
	err := filepath.Walk(path, func(p string, info os.FileInfo, err error) error {
		if err == nil && !info.IsDir() {
			raw, rerr := os.ReadFile(p)
			out.WriteString(p + ": " + string(raw) + "\n")
			return rerr
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func TestAForeignDirectoryIsRefused(t *testing.T) {
	path := t.TempDir()
	rewrite("letters.txt", "private")(t, path)
	_, err := OpenDir(path, Want{NodeName: "n1"})
	if err == nil || !strings.Contains(err.Error(), "letters.txt") {
		t.Errorf("answered %v; expected it to name the foreign file", err)
	}
}

func TestASecondProcessOnADirectoryIsRefused(t *testing.T) {
	path := t.TempDir()
	openDir(t, path, Want{NodeName: "n1"})
	_, err := OpenDir(path, Want{NodeName: "n1"})
	if err == nil || !strings.Contains(err.Error(), "in use by another raftboard process") {
		t.Errorf("answered %v; expected that it is in use", err)
	}
}

func TestP27AVoterThatForgotIsRefused(t *testing.T) {
	for _, lost := range []string{logFileName, stableFileName} {
		path := t.TempDir()
		d := openDir(t, path, Want{NodeName: "n1"})
		s, err := OpenStores(d, nil)
		if err != nil {
			t.Fatal(err)
		}
		s.Close()
		remove(filepath.Join(raftDirName, lost))(t, path)
		_, err = OpenStores(d, nil)
		var dir *DirError
		if !errors.As(err, &dir) || !strings.Contains(dir.Hint, "node remove "+d.Identity().NodeID) {
			t.Errorf("without %s it answered %v; expected a refusal with the way back", lost, err)
		}
	}
}

func TestP27TwoFreshDirectoriesOfOneNameAreTwoNodes(t *testing.T) {
	a := openDir(t, t.TempDir(), Want{NodeName: "n1"})
	b := openDir(t, t.TempDir(), Want{NodeName: "n1"})
	if a.Identity().NodeID == b.Identity().NodeID || len(a.Identity().NodeID) != 36 {
		t.Errorf("ids %q and %q", a.Identity().NodeID, b.Identity().NodeID)
	}
}

func TestP20P19TheStoresSyncAndAreTuned(t *testing.T) {
	o := boltOptions("x")
	if o.NoSync || o.BoltOptions.NoSync || o.BoltOptions.NoGrowSync {
		t.Error("a store would not sync")
	}
	if !o.BoltOptions.NoFreelistSync || o.BoltOptions.FreelistType != bbolt.FreelistMapType || o.BoltOptions.Timeout != lockTimeout {
		t.Errorf("options %+v", o.BoltOptions)
	}
}

func TestTheSettingsOfTheLibrary(t *testing.T) {
	logger := recordingLogger()
	rc := raftConfig(Config{ID: "x", Logger: logger}.withDefaults())
	if err := raft.ValidateConfig(rc); err != nil {
		t.Fatal(err)
	}
	for what, ok := range map[string]bool{
		"P8 no NotifyCh":             rc.NotifyCh == nil,
		"P10 no BatchApplyCh":        !rc.BatchApplyCh,
		"P15 trailing logs":          rc.TrailingLogs >= minTrailingLogs,
		"P23 pre-vote":               !rc.PreVoteDisabled,
		"P23 shutdown on remove":     rc.ShutdownOnRemove,
		"P32 protocol":               rc.ProtocolVersion == 3,
		"P34 timing":                 rc.HeartbeatTimeout == rc.ElectionTimeout && rc.LeaderLeaseTimeout*2 == rc.HeartbeatTimeout,
		"P1 small appends":           rc.MaxAppendEntries*maxBatchBytes <= 4<<20,
		"P37 our own logger":         rc.Logger != nil && rc.LogOutput == nil,
		"no legacy telemetry":        rc.NoLegacyTelemetry,
		"P28 pipeline depth":         rpcsInFlight == raft.DefaultMaxRPCsInFlight,
		"snapshots come by themself": rc.SnapshotThreshold > 0 && rc.SnapshotInterval > 0,
	} {
		if !ok {
			t.Errorf("%s: not so", what)
		}
	}
	rc.Logger.Error("from raft")
	if !strings.Contains(logger.text(), "from raft") {
		t.Error("P37: raft's lines do not reach the logger of the node")
	}
}
