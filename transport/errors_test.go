package transport

import (
	"testing"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	boardpb "raftboard/fsm/pb"
	wirepb "raftboard/transport/pb"
)

func TestEveryCodeHasItsPlaceInTheErrorTable(t *testing.T) {
	for number, name := range boardpb.Code_name {
		code := boardpb.Code(number)
		if code == boardpb.Code_CODE_UNSPECIFIED {
			continue
		}
		if got := grpcCode(code); got == codes.Unknown || got == codes.OK {
			t.Errorf("%s has no gRPC code: the table in errors.go misses it", name)
		}
		r := &boardpb.Result{Code: code, Message: "m", Hint: "h", RetryAfterMs: 7, Field: "f", Reason: "untrusted", Value: []byte("untrusted")}
		err := statusOf(r, &wirepb.Leader{NodeId: "id", Term: 3})
		var infos []*errdetails.ErrorInfo
		for _, d := range status.Convert(err).Details() {
			if info, ok := d.(*errdetails.ErrorInfo); ok {
				infos = append(infos, info)
			}
		}
		if len(infos) != 1 {
			t.Fatalf("%s carries %d ErrorInfo, want exactly one", name, len(infos))
		}
		if info := infos[0]; "CODE_"+info.Reason != name || info.Domain != "raftboard" {
			t.Errorf("%s has reason %q in domain %q", name, info.Reason, info.Domain)
		}
		for key, value := range infos[0].Metadata {
			if value == "untrusted" {
				t.Errorf("%s shows what an agent wrote, in %q (SPEC F-16)", name, key)
			}
		}
		if back := resultFromError(err); !proto.Equal(back, r) {
			t.Errorf("%s loses its Result on the unary road: %v", name, back)
		}
	}
}

func TestUnavailableSaysWhetherItWasProposed(t *testing.T) {
	for want, r := range map[string]*boardpb.Result{"no": notDone("m", ""), "unknown": unknown("m")} {
		st := status.Convert(statusOf(r, nil))
		if st.Code() != codes.Unavailable {
			t.Errorf("got %v", st.Code())
		}
		if got := st.Details()[0].(*errdetails.ErrorInfo).Metadata["proposed"]; got != want {
			t.Errorf("proposed is %q, want %q", got, want)
		}
		if _, ok := st.Details()[1].(*errdetails.RetryInfo); !ok {
			t.Errorf("no RetryInfo with unavailable: %v", st.Details())
		}
	}
}

func TestAnOutcomeIsNoError(t *testing.T) {
	for number := range boardpb.Outcome_name {
		if err := statusOf(&boardpb.Result{Outcome: boardpb.Outcome(number)}, nil); err != nil {
			t.Errorf("outcome %v became the error %v", boardpb.Outcome(number), err)
		}
	}
	if err := statusOf(nil, nil); err != nil {
		t.Errorf("no Result became the error %v", err)
	}
}
