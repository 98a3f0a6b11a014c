package transport

import (
	"context"
	"runtime/debug"

	"google.golang.org/grpc"

	"raftboard/fsm/board"
	boardpb "raftboard/fsm/pb"
	"raftboard/jepsen/planted"
	wirepb "raftboard/transport/pb"
)

// boardFace is the gRPC face for workers: the session stream and its unary doubles, which
// are the same calls with a refusal as an error.
type boardFace struct {
	wirepb.UnimplementedBoardServer
	service *service
}

func (f boardFace) Session(stream grpc.BidiStreamingServer[wirepb.SessionRequest, wirepb.SessionResponse]) error {
	return f.service.serveSession(stream)
}

func (f boardFace) Apply(ctx context.Context, request *wirepb.ApplyRequest) (*wirepb.ApplyResponse, error) {
	actor, refused := resolveActor(ctx, f.service.auth)
	if refused != nil {
		return nil, statusOf(refused, f.service.leader())
	}
	answer := f.service.apply(ctx, actor, request)
	planted.Point("answer-send")
	if err := statusOf(answer.Result, answer.Leader); err != nil {
		return nil, err
	}
	return answer, nil
}

func (f boardFace) Read(ctx context.Context, request *wirepb.ReadRequest) (*wirepb.ReadResponse, error) {
	actor, refused := resolveActor(ctx, f.service.auth)
	if refused != nil {
		return nil, statusOf(refused, f.service.leader())
	}
	answer := f.service.read(ctx, actor, request)
	if err := statusOf(answer.Failure, answer.Leader); err != nil {
		return nil, err
	}
	return answer, nil
}

// Watch ends with a status that carries why, and before it, if the reader keeps up, the
// same as a message.
func (f boardFace) Watch(request *wirepb.WatchRequest, stream grpc.ServerStreamingServer[wirepb.WatchResponse]) error {
	ctx := stream.Context()
	actor, refused := resolveActor(ctx, f.service.auth)
	if refused != nil {
		return statusOf(refused, f.service.leader())
	}
	if where := board.UnknownIn(request); where != "" {
		return statusOf(badField(where, "the request has fields this server does not know: it is older than the caller",
			"upgrade the servers first"), nil)
	}
	if err := statusOf(f.service.serveWatch(ctx, actor, request, stream.Send), f.service.leader()); err != nil {
		return err
	}
	return ctx.Err()
}

// Export is for operators: it holds what no other read shows, such as the windows of loops.
func (f boardFace) Export(request *wirepb.ExportRequest, stream grpc.ServerStreamingServer[wirepb.ExportResponse]) error {
	actor, refused := resolveActor(stream.Context(), f.service.auth)
	if refused == nil {
		refused = f.service.serveExport(stream.Context(), actor, request, stream.Send)
	}
	return statusOf(refused, f.service.leader())
}

// recoverUnary keeps a panic in one call from ending the process.
func (s *service) recoverUnary(ctx context.Context, request any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (answer any, err error) {
	defer func() {
		if p := recover(); p != nil {
			answer, err = nil, statusOf(s.panicked(p, debug.Stack()), s.leader())
		}
	}()
	return next(ctx, request)
}

// recoverStream does the same for streams.
func (s *service) recoverStream(server any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = statusOf(s.panicked(p, debug.Stack()), s.leader())
		}
	}()
	return next(server, stream)
}

// failedRead wraps a refusal as the answer to a query.
func (s *service) failedRead(r *boardpb.Result) *wirepb.ReadResponse {
	return &wirepb.ReadResponse{Failure: r, Leader: s.leader(), NodeId: s.self.Id}
}
