package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	"raftboard/client"
	"raftboard/cmd/raftboard/exitcode"
	boardpb "raftboard/fsm/pb"
)

// conn is a command's way to the cluster.
type conn struct {
	*client.Client
	as string
}

// connectWithin bounds the search for a node that accepts a connection.
const connectWithin = 3 * time.Second

// noLeader is how long a command waits for somebody to lead: longer than an election, and an answer
// of the kind "nobody leads" is out within five seconds.
const noLeader = 4 * time.Second

// connect finds out who calls and whether any node can be reached at all: a command that can go
// nowhere says so at once, with the cause for each address, instead of trying until its timeout.
func (a *app) connect(ctx context.Context) (*conn, error) {
	if a.conn != nil {
		return a.conn, nil
	}
	name, err := a.whoAmI()
	if err != nil {
		return nil, err
	}
	cfg := client.DefaultConfig()
	cfg.Endpoints, cfg.As, cfg.Timeout = a.g.endpoints, name, a.g.timeout
	cfg.NoLeader = min(noLeader, cfg.Timeout)
	if err := cfg.Validate(); err != nil {
		return nil, exitcode.Usagef("--endpoints 127.0.0.1:8970", "%v", err)
	}
	if err := reach(ctx, a.g.endpoints); err != nil {
		return nil, err
	}
	cfg.Name = "raftboard-cli/" + version()
	if a.g.verbose {
		cfg.OnState = func(s client.State) {
			if s.Err != nil {
				a.warn("%s %s: %v", s.Kind, s.Endpoint, s.Err)
				return
			}
			a.warn("%s to %s as %s", s.Kind, s.Endpoint, name)
		}
	}
	c, err := client.Dial(cfg)
	if err != nil {
		return nil, err
	}
	a.conn = &conn{Client: c, as: name}
	return a.conn, nil
}

// reach tries every endpoint at once and is content with one.
func reach(ctx context.Context, endpoints []string) error {
	ctx, cancel := context.WithTimeout(ctx, connectWithin)
	defer cancel()
	causes := make([]error, len(endpoints))
	var tries sync.WaitGroup
	for i, addr := range endpoints {
		tries.Go(func() {
			c, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
			if err == nil {
				c.Close()
				cancel() // one is enough
			}
			causes[i] = err
		})
	}
	tries.Wait()
	var list []string
	for i, err := range causes {
		if err == nil {
			return nil
		}
		list = append(list, endpoints[i]+": "+cause(err))
	}
	return &exitcode.Error{Status: exitcode.Unavailable, Msg: "no node can be reached: " + strings.Join(list, "; "),
		Hint: "start one with raftboard dev, or name one with --endpoints HOST:PORT (RAFTBOARD_ENDPOINTS)"}
}

// cause shortens what the network said to what differs.
func cause(err error) string {
	var op *net.OpError
	if errors.Is(err, context.DeadlineExceeded) || errors.As(err, &op) && op.Timeout() {
		return fmt.Sprintf("no answer within %v", connectWithin)
	}
	if errors.As(err, &op) {
		err = op.Err
	}
	return strings.TrimPrefix(err.Error(), "connect: ")
}

// close ends the connection, if there is one.
func (a *app) close() {
	if a.conn != nil {
		a.conn.Close()
		a.conn = nil
	}
}

// board is the board of -b.
func (a *app) board(ctx context.Context) (*client.Board, error) {
	c, err := a.connect(ctx)
	if err != nil {
		return nil, err
	}
	return c.Board(a.g.board), nil
}

// apply sends one command under an idempotency key, in the loop of --loop if there is one. A
// refusal and every outcome but ok come back as an error that carries the Result.
func (a *app) apply(ctx context.Context, cmd *boardpb.Command) (*boardpb.Result, error) {
	b, err := a.board(ctx)
	if err != nil {
		return nil, err
	}
	send := b.Do
	if a.g.loop != "" {
		send = b.AttachLoop(a.g.loop).Do
	}
	return settled(send(ctx, cmd))
}

// settled makes an error of everything that is not ok.
func settled(r *boardpb.Result, err error) (*boardpb.Result, error) {
	if err != nil {
		return nil, refused(err)
	}
	if exitcode.OfResult(r) != exitcode.OK {
		return r, &exitcode.Refused{Result: inWords(r)}
	}
	return r, nil
}

// refused gives an error of the client the form that has a status.
func refused(err error) error {
	var e *client.Error
	if errors.As(err, &e) && e.Result != nil && !errors.Is(err, context.Canceled) {
		return &exitcode.Refused{Result: inWords(e.Result)}
	}
	return err
}

// reading gives the options of a read.
func (a *app) reading() client.ReadOptions {
	mode, _ := a.g.readMode() // checked by prepare
	return client.ReadOptions{Consistency: mode, AtLeast: a.g.atLeast}
}

// readingAt is a read of what was there right after a rev; 0 is now.
func (a *app) readingAt(rev uint64) client.ReadOptions {
	opts := a.reading()
	opts.AtRev = rev
	return opts
}

// cluster is the operators' face.
func (a *app) cluster(ctx context.Context) (*client.Cluster, error) {
	c, err := a.connect(ctx)
	if err != nil {
		return nil, err
	}
	return c.Cluster(), nil
}

// warn says something on stderr that is no error.
func (a *app) warn(format string, args ...any) {
	if !a.g.quiet {
		fmt.Fprintln(a.safeErr(), fmt.Sprintf(format, args...))
	}
}
