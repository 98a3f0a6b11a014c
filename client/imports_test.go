package client_test

import (
	"os/exec"
	"strings"
	"testing"
)

// The client of a library's users must not drag the server in: gRPC, protobuf, the error
// details and our messages are all it may need (DESIGN 14).
func TestTheClientImportsNothingButGRPCProtobufAndOurMessages(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", "raftboard/client").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	allowed := []string{
		"google.golang.org/grpc", "google.golang.org/protobuf", "google.golang.org/genproto/googleapis/rpc",
		"golang.org/x/net", "golang.org/x/sys", "golang.org/x/text", // of gRPC itself
	}
	own := map[string]bool{"raftboard/client": true, "raftboard/fsm/pb": true, "raftboard/transport/pb": true,
		"raftboard/jepsen/planted": true} // of the fault tests: empty without their build tag
	seen := 0
	for path := range strings.FieldsSeq(string(out)) {
		if own[path] {
			seen++
			continue
		}
		fine := false
		for _, prefix := range allowed {
			fine = fine || path == prefix || strings.HasPrefix(path, prefix+"/")
		}
		if !fine {
			t.Errorf("client depends on %s", path)
		}
	}
	if seen != len(own) {
		t.Errorf("%d of our packages listed, want %d: is the list right?", seen, len(own))
	}
}
