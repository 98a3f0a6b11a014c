package node

import (
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// Raft's pipeline can block itself for ever (hashicorp/raft#612). With two requests in flight
// its channels hold nothing; when a follower refuses an append, the reader of answers ends,
// and one more request that is sent then waits for the reader of the connection, who waits to
// hand over an answer nobody takes. The follower gets heartbeats and never another entry, and
// a leader in that state cannot shut down. A buffer between the two is enough to let both go on.
const pipelineAnswers = 16

// AppendEntriesPipeline answers a pipeline whose answers wait in a buffer.
func (g *guardedTransport) AppendEntriesPipeline(id raft.ServerID, to raft.ServerAddress) (raft.AppendPipeline, error) {
	if g.muted.Load() {
		return nil, errMuted
	}
	inner, err := g.Transport.AppendEntriesPipeline(id, to)
	if err != nil {
		return nil, err
	}
	p := &bufferedPipeline{AppendPipeline: inner, g: g, answers: make(chan raft.AppendFuture, pipelineAnswers),
		closed: make(chan struct{})}
	go p.run()
	return p, nil
}

// bufferedPipeline keeps answers for a reader that may be gone. Its goroutine ends with Close,
// which raft calls when the sender stops.
type bufferedPipeline struct {
	raft.AppendPipeline
	g       *guardedTransport
	answers chan raft.AppendFuture
	closed  chan struct{}
	once    sync.Once
}

func (p *bufferedPipeline) run() {
	for {
		select {
		case answer := <-p.AppendPipeline.Consumer():
			select {
			case p.answers <- answer:
				continue
			case <-p.closed:
				return
			default:
			}
			full := time.NewTimer(rpcTimeout)
			select {
			case p.answers <- answer:
				full.Stop()
			case <-p.closed:
				full.Stop()
				return
			case <-full.C: // nobody reads: let the sender go too
				p.Close()
				return
			}
		case <-p.closed:
			return
		}
	}
}

// AppendEntries sends, unless the node has stopped.
func (p *bufferedPipeline) AppendEntries(req *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) (raft.AppendFuture, error) {
	if p.g.muted.Load() {
		return nil, errMuted
	}
	return p.AppendPipeline.AppendEntries(req, resp)
}

// Consumer is where raft reads answers.
func (p *bufferedPipeline) Consumer() <-chan raft.AppendFuture { return p.answers }

// Close ends the pipeline.
func (p *bufferedPipeline) Close() error {
	var err error
	p.once.Do(func() {
		close(p.closed)
		err = p.AppendPipeline.Close()
	})
	return err
}
