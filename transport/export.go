package transport

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"

	"raftboard/fsm/board"
	boardpb "raftboard/fsm/pb"
	"raftboard/fsm/state"
	"raftboard/node"
	wirepb "raftboard/transport/pb"
)

const (
	exportBytes  = 256 << 10       // of one message, more only if one record is larger
	exportPinned = 5 * time.Minute // how long an export may hold its View
	maxExports   = 4               // at once on one node
)

// serveExport streams one board as a View shows it: the head first, then every record. The
// View does not change under it, so all of them are of one rev, and no more is in memory
// than one message besides what the board holds anyway.
func (s *service) serveExport(ctx context.Context, actor *boardpb.Actor, request *wirepb.ExportRequest,
	send func(*wirepb.ExportResponse) error) *boardpb.Result {
	if refused := checkExport(actor, request); refused != nil {
		return refused
	}
	if refused := s.notDraining(); refused != nil {
		return refused
	}
	if refused := s.exports.enter(); refused != nil {
		return refused
	}
	defer s.exports.leave()
	n := s.node.Load()
	if n == nil {
		return s.noMember()
	}
	view, refused := s.view(ctx, n, node.Consistency{Board: request.Board})
	if refused != nil {
		return refused
	}
	b, refused := boardOf(view, request.Board, request.Incarnation)
	if refused != nil {
		return refused
	}
	if b.Implicit() {
		return refuse(boardpb.Code_CODE_NOT_FOUND, fmt.Sprintf("board %q holds nothing yet", b.Name()), "write to it first")
	}
	return s.export(b, send)
}

func checkExport(actor *boardpb.Actor, request *wirepb.ExportRequest) *boardpb.Result {
	if !state.HasRole(actor, boardpb.Role_ROLE_OPERATOR) {
		r := refuse(boardpb.Code_CODE_FORBIDDEN, "an export takes the role operator", "use a credential of an operator")
		r.Field = "operator"
		return r
	}
	if where := board.UnknownIn(request); where != "" {
		return badField(where, "the request has fields this server does not know: it is older than the caller",
			"upgrade the servers first")
	}
	if request.Board == "" {
		return badField("board", "the request names no board", `name one; "default" exists by itself`)
	}
	return nil
}

// exporter cuts the records of one export into messages.
type exporter struct {
	s     *service
	send  func(*wirepb.ExportResponse) error
	over  time.Time
	cut   *boardpb.Result // why it goes no further
	page  []*boardpb.SnapshotRecord
	size  int
	count uint64
}

// errCut ends the walk over the board; the reason is in the exporter.
var errCut = errors.New("the export goes no further")

func (s *service) export(b *state.Board, send func(*wirepb.ExportResponse) error) *boardpb.Result {
	x := &exporter{s: s, send: send, over: time.Now().Add(exportPinned)}
	digest := b.Digest()
	err := x.put(&wirepb.ExportResponse{Message: &wirepb.ExportResponse_Header{Header: &wirepb.ExportHeader{
		Board: b.Name(), Incarnation: b.Incarnation(), Rev: b.Rev(), Digest: digest[:], TMs: b.T(), WallMs: b.Wall(), NodeId: s.self.Id}}})
	if err == nil {
		err = b.Export(x.add)
	}
	if err == nil {
		err = x.flush()
	}
	if err == nil {
		err = x.put(&wirepb.ExportResponse{Message: &wirepb.ExportResponse_End{End: &wirepb.ExportEnd{Records: x.count}}})
	}
	switch {
	case x.cut != nil:
		return x.cut
	case err != nil:
		return notDone("the caller went away: "+err.Error(), "begin anew")
	}
	return nil
}

func (x *exporter) add(r *boardpb.SnapshotRecord) error {
	n := proto.Size(r)
	if x.size+n > exportBytes {
		if err := x.flush(); err != nil {
			return err
		}
	}
	x.page, x.size = append(x.page, r), x.size+n
	x.count++
	return nil
}

func (x *exporter) flush() error {
	if len(x.page) == 0 {
		return nil
	}
	full := &wirepb.ExportRecords{Records: x.page}
	x.page, x.size = nil, 0
	return x.put(&wirepb.ExportResponse{Message: &wirepb.ExportResponse_Records{Records: full}})
}

func (x *exporter) put(m *wirepb.ExportResponse) error {
	select {
	case <-x.s.draining:
		x.cut = notDone("this node is stopping", "begin anew at another node")
		return errCut
	default:
	}
	if time.Now().After(x.over) {
		x.cut = refuse(boardpb.Code_CODE_SLOW_READER, fmt.Sprintf("the export was not taken within %v", exportPinned),
			"write it to a faster disk, or nearer to the node")
		return errCut
	}
	return x.send(m)
}

// digestOf is what describe tells; nothing before the first write.
func digestOf(b *state.Board) []byte {
	if b.Implicit() {
		return nil
	}
	sum := b.Digest()
	return sum[:]
}
