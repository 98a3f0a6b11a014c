package node

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	boardpb "raftboard/fsm/pb"
)

// Intent is what a new cluster will be. Every member accepts it durably before one of them
// writes the first log entry, so that no two of them ever start different clusters (RAFT P26).
type Intent struct {
	ClusterID   string   `json:"cluster_id"`
	ClusterName string   `json:"cluster_name"`
	Members     []Member `json:"members"` // by id
}

// Member is one voter of a new cluster.
type Member struct {
	ID       string `json:"id"`
	Name     string `json:"name"`
	RaftAddr string `json:"raft_addr"`
	GRPCAddr string `json:"grpc_addr"`
	Version  string `json:"version"`
	MaxLevel uint32 `json:"max_level"`
}

// NewIntent orders the members, so that equal intents are equal bytes.
func NewIntent(clusterID, clusterName string, nodes []*boardpb.Node) Intent {
	in := Intent{ClusterID: clusterID, ClusterName: clusterName}
	for _, n := range nodes {
		in.Members = append(in.Members, Member{ID: n.Id, Name: n.Name, RaftAddr: n.RaftAddr, GRPCAddr: n.GrpcAddr,
			Version: n.Version, MaxLevel: n.MaxLevel})
	}
	slices.SortFunc(in.Members, func(a, b Member) int { return strings.Compare(a.ID, b.ID) })
	return in
}

func (m Member) node() *boardpb.Node {
	return &boardpb.Node{Id: m.ID, Name: m.Name, RaftAddr: m.RaftAddr, GrpcAddr: m.GRPCAddr,
		Version: m.Version, MaxLevel: m.MaxLevel}
}

// Nodes are the members as records.
func (in Intent) Nodes() []*boardpb.Node {
	var out []*boardpb.Node
	for _, m := range in.Members {
		out = append(out, m.node())
	}
	return out
}

func (in Intent) valid() error {
	ids, names := map[string]bool{}, map[string]bool{}
	for _, m := range in.Members {
		if m.ID == "" || m.Name == "" || ids[m.ID] || names[m.Name] {
			return fmt.Errorf("the members of a new cluster need distinct ids and names (%q, %q)", m.ID, m.Name)
		}
		ids[m.ID], names[m.Name] = true, true
	}
	if in.ClusterID == "" || len(in.Members) == 0 {
		return fmt.Errorf("a new cluster needs an id and members")
	}
	return nil
}

func (in Intent) equal(o Intent) bool {
	return in.ClusterID == o.ClusterID && in.ClusterName == o.ClusterName && slices.Equal(in.Members, o.Members)
}

// Intent is the accepted intent of this directory, if there is one.
func (d *Dir) Intent() (Intent, bool, error) {
	raw, err := os.ReadFile(filepath.Join(d.path, intentFile))
	if errors.Is(err, os.ErrNotExist) {
		return Intent{}, false, nil
	}
	var in Intent
	if err == nil {
		err = json.Unmarshal(raw, &in)
	}
	if err != nil {
		return Intent{}, false, &DirError{Dir: d.path, Cause: err, Hint: lostIdentityHint,
			What: fmt.Sprintf("%s cannot be read: %v", intentFile, err)}
	}
	return in, true, nil
}

// AcceptIntent stores an intent durably: one per directory for ever, and none where a cluster
// is already named. Accepting the same one again is fine.
func (d *Dir) AcceptIntent(in Intent) error {
	if err := in.valid(); err != nil {
		return err
	}
	self := d.Identity()
	if !slices.ContainsFunc(in.Members, func(m Member) bool { return m.ID == self.NodeID && m.Name == self.NodeName }) {
		return fmt.Errorf("node %s (%s) is not among the members of the intended cluster", self.NodeName, self.NodeID)
	}
	if self.ClusterID != "" && self.ClusterID != in.ClusterID {
		return fmt.Errorf("node %s already belongs to cluster %s", self.NodeName, self.ClusterID)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	switch have, ok, err := d.Intent(); {
	case err != nil:
		return err
	case ok && have.equal(in):
		return nil
	case ok:
		return fmt.Errorf("node %s already accepted another cluster, %s", self.NodeName, have.ClusterID)
	}
	raw, err := json.MarshalIndent(in, "", "  ")
	if err != nil {
		return err
	}
	return d.write(intentFile, append(raw, '\n'))
}

// Bootstrap writes the first log entry of a new cluster, whose members have all accepted the
// intent. It may be repeated: state that is already there is left alone, and a bootstrap that
// was cut between its two writes (term 1, empty log) is completed. Call it before Open.
func Bootstrap(nodeID string, s Stores, in Intent) error {
	if err := in.valid(); err != nil {
		return err
	}
	var servers raft.Configuration
	for _, m := range in.Members {
		servers.Servers = append(servers.Servers, raft.Server{ID: raft.ServerID(m.ID), Address: raft.ServerAddress(m.ID)})
	}
	conf := raft.DefaultConfig()
	conf.LocalID = raft.ServerID(nodeID)
	conf.Logger = hclog.NewNullLogger()
	err := raft.BootstrapCluster(conf, s.Log, s.Stable, s.Snapshots, nil, servers) // protocol 3 needs no transport
	if !errors.Is(err, raft.ErrCantBootstrap) {
		if err != nil {
			return storeError(s.Where, err)
		}
		return nil
	}
	half, err := halfBootstrapped(s)
	if err != nil {
		return storeError(s.Where, err)
	}
	if !half {
		return nil // normal: the cluster is there
	}
	first := &raft.Log{Index: 1, Term: 1, Type: raft.LogConfiguration, Data: raft.EncodeConfiguration(servers)}
	if err := s.Log.StoreLog(first); err != nil {
		return storeError(s.Where, err)
	}
	return nil
}

// halfBootstrapped recognises a BootstrapCluster that stored its term and not its entry.
func halfBootstrapped(s Stores) (bool, error) {
	term, err := s.Stable.GetUint64([]byte("CurrentTerm"))
	if err != nil && err.Error() != notFound {
		return false, err
	}
	last, err := s.Log.LastIndex()
	if err != nil {
		return false, err
	}
	snaps, err := s.Snapshots.List()
	if err != nil {
		return false, err
	}
	return term == 1 && last == 0 && len(snaps) == 0, nil
}
