package transport_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	boardpb "raftboard/fsm/pb"
	"raftboard/transport"
	"raftboard/transport/clustertest"
	wirepb "raftboard/transport/pb"
)

// freeAddrs reserves loopback ports and lets them go.
func freeAddrs(t *testing.T, n int) []string {
	t.Helper()
	var addrs []string
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		addrs = append(addrs, l.Addr().String())
	}
	return addrs
}

func TestThreeServersOnTCPFoundACluster(t *testing.T) {
	addrs := freeAddrs(t, 9)
	var servers []*transport.Server
	for i := range 3 {
		cfg := transport.DefaultConfig()
		cfg.Name, cfg.DataDir, cfg.Auth, cfg.BootstrapExpect = fmt.Sprintf("n%d", i+1), t.TempDir(), transport.AuthOff, 3
		cfg.GRPCAddr, cfg.RaftAddr, cfg.AdminAddr = addrs[i], addrs[3+i], addrs[6+i]
		cfg.Join = addrs[:3]
		cfg.Logger = hclog.New(&hclog.LoggerOptions{Level: hclog.Info, Output: testWriter{t}})
		s, err := transport.Start(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		servers = append(servers, s)
		t.Cleanup(func() { s.Stop(context.Background()) })
	}
	conn, err := grpc.NewClient(addrs[0], grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(clustertest.As(t.Context(), "worker-1"), 30*time.Second)
	defer cancel()
	board := wirepb.NewBoardClient(conn)
	var answer *wirepb.ApplyResponse
	began := time.Now()
	for answer == nil {
		if ctx.Err() != nil {
			t.Fatal("no write within 30 s: ", err)
		}
		answer, err = board.Apply(ctx, &wirepb.ApplyRequest{Command: set("results/worker-1/a", "1")})
	}
	t.Logf("first write after %v at %s", time.Since(began), answer.Leader.GetName())
	if answer.Result.Outcome != boardpb.Outcome_OUTCOME_OK {
		t.Fatalf("got %v", answer.Result)
	}
	for _, s := range servers {
		response, err := http.Get("http://" + s.AdminAddr() + "/readyz")
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		t.Log(response.Status)
	}
	began = time.Now()
	for _, s := range servers {
		if err := s.Stop(context.Background()); err != nil {
			t.Error(err)
		}
		t.Logf("stopped after %v", time.Since(began))
	}
}

type testWriter struct{ t *testing.T }

func (w testWriter) Write(b []byte) (int, error) {
	w.t.Logf("%s", b)
	return len(b), nil
}
