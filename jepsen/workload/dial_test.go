package workload

import (
	"context"
	"errors"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"raftboard/client"
	"raftboard/jepsen/history"
	wirepb "raftboard/transport/pb"
)

var errNobody = errors.New("nobody is there")

func nobody(context.Context, string) (net.Conn, error) { return nil, errNobody }

// deserted is a cluster that nobody answers for, and to which at most so many clients are made.
type deserted struct {
	Cluster
	clients int
	conn    *grpc.ClientConn
}

func (d *deserted) Nodes() []string                    { return []string{"n1", "n2", "n3"} }
func (d *deserted) Ask(string, int) wirepb.BoardClient { return wirepb.NewBoardClient(d.conn) }
func (d *deserted) Dial(name string, _ int) (*client.Client, error) {
	time.Sleep(time.Second)
	if d.clients--; d.clients < 0 {
		return nil, errNobody
	}
	return client.Dial(client.Config{Endpoints: []string{"n1:1"}, As: name, Dialer: nobody})
}

// A load that cannot be made leaves nothing running behind it.
func TestALoadThatCannotBeMadeWaitsForWhatIsOut(t *testing.T) {
	for _, w := range []Workload{Register{Clients: 5, Keys: 3}, Append{Clients: 6, Keys: 3}, Txn{Clients: 5, Groups: 2}} {
		t.Run(w.Name(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				conn, err := grpc.NewClient("passthrough:///n1", grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithContextDialer(nobody))
				if err != nil {
					t.Fatal(err)
				}
				defer conn.Close()
				log := history.NewLog(history.Run{})
				if err := w.Run(t.Context(), Env{Cluster: &deserted{clients: 3, conn: conn}, Log: log, Board: "b", Seed: 1}); !errors.Is(err, errNobody) {
					t.Fatalf("the load was made: %v", err)
				}
				ops := log.History().Ops
				for _, op := range ops {
					if op.Ended == 0 {
						t.Errorf("a %s of %s is still out", op.Kind, op.Client)
					}
				}
				if len(ops) == 0 {
					t.Error("nothing was tried")
				}
			})
		})
	}
}
