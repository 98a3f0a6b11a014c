package transport

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/hashicorp/go-hclog"
	"google.golang.org/protobuf/proto"

	boardpb "raftboard/fsm/pb"
	"raftboard/node"
)

// maxBookNodes bounds the book; a cluster has a handful of nodes.
const maxBookNodes = 256

// addressBook knows under which host and port each node id is reached (RAFT P27). It is
// a memory, not a truth: the cluster record, every handshake and every Hello refresh it,
// and a file in the data directory carries it over a restart, when nothing else can say
// where the others are.
type addressBook struct {
	path   string
	logger hclog.Logger

	mu    sync.Mutex
	nodes map[string]*boardpb.Node
}

// bookFile is the shape of the file.
type bookFile struct {
	Nodes []bookNode `json:"nodes"`
}

type bookNode struct {
	ID       string `json:"id"`
	Name     string `json:"name"`
	RaftAddr string `json:"raft_addr"`
	GRPCAddr string `json:"grpc_addr"`
}

// openAddressBook reads the book at path. A missing or damaged file is an empty book:
// everything in it can be heard again.
func openAddressBook(path string, logger hclog.Logger) *addressBook {
	b := &addressBook{path: path, logger: logger, nodes: map[string]*boardpb.Node{}}
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return b
	}
	var file bookFile
	if err == nil {
		err = json.Unmarshal(data, &file)
	}
	if err != nil {
		logger.Warn("the address book cannot be read; starting with an empty one", "path", path, "error", err)
		return b
	}
	for _, n := range file.Nodes {
		if len(b.nodes) < maxBookNodes {
			b.nodes[n.ID] = &boardpb.Node{Id: n.ID, Name: n.Name, RaftAddr: n.RaftAddr, GrpcAddr: n.GRPCAddr}
		}
	}
	return b
}

// learn takes down what a node says of itself, or what the cluster record says of it.
func (b *addressBook) learn(n *boardpb.Node) { b.put(n, true) }

// hearsay takes down what a third node says, if nothing better is known.
func (b *addressBook) hearsay(n *boardpb.Node) { b.put(n, false) }

func (b *addressBook) put(n *boardpb.Node, firsthand bool) {
	if n.GetId() == "" || n.GetRaftAddr() == "" || n.Removed {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	old := b.nodes[n.Id]
	if old != nil && (!firsthand || proto.Equal(old, n)) {
		return
	}
	if old == nil && len(b.nodes) >= maxBookNodes {
		return
	}
	b.nodes[n.Id] = proto.Clone(n).(*boardpb.Node)
	if old == nil || !sameNode(old, n) {
		b.save()
	}
}

// forget drops a node that was removed from the cluster.
func (b *addressBook) forget(id string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, known := b.nodes[id]; known {
		delete(b.nodes, id)
		b.save()
	}
}

func (b *addressBook) raftAddr(id string) (string, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := b.nodes[id]
	return n.GetRaftAddr(), n != nil
}

// node answers what is known of a node; nil if nothing is.
func (b *addressBook) node(id string) *boardpb.Node {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.nodes[id]
}

// all lists the book in the order of ids. The nodes are shared: nobody may change them.
func (b *addressBook) all() []*boardpb.Node {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.sorted()
}

func (b *addressBook) sorted() []*boardpb.Node {
	list := make([]*boardpb.Node, 0, len(b.nodes))
	for _, n := range b.nodes {
		list = append(list, n)
	}
	slices.SortFunc(list, func(x, y *boardpb.Node) int { return strings.Compare(x.Id, y.Id) })
	return list
}

// save writes the file. A failure costs only a slower next start, so it is logged.
func (b *addressBook) save() {
	var file bookFile
	for _, n := range b.sorted() {
		file.Nodes = append(file.Nodes, bookNode{ID: n.Id, Name: n.Name, RaftAddr: n.RaftAddr, GRPCAddr: n.GrpcAddr})
	}
	data, err := json.MarshalIndent(file, "", "  ")
	if err == nil {
		err = node.ReplaceFile(b.path, append(data, '\n'))
	}
	if err != nil {
		b.logger.Warn("the address book cannot be written", "path", b.path, "error", err)
	}
}
