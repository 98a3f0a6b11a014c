package client

import (
	"context"
	"time"

	boardpb "raftboard/fsm/pb"
)

// ClaimOptions of Claim and ClaimNext.
type ClaimOptions struct {
	Duration time.Duration // of the lease; 0: the namespace's default
	Takeover bool          // Claim: end the lease of another loop of this principal
	After    uint64        // ClaimNext: continue behind this queue position
	Timeout  time.Duration // bounds the call; 0: Config.Timeout, or the deadline of ctx
}

// Claim asks for the lease of a key. Granted, it returns a *Lease that is kept alive;
// held, done and not_ready are outcomes in the Result, with a nil Lease.
//
// ctx is the context of the work and not of the call alone: when it ends, the lease is
// let go and runs out. So derive it, and cancel it when the work function returns. If
// ctx ends while the claim's outcome is unknown, the client finds out and gives a grant
// back that nobody awaits.
func (l *Loop) Claim(ctx context.Context, key string, opts ClaimOptions) (*Lease, *boardpb.Result, error) {
	op := &boardpb.Claim{Key: key, DurationMs: millis(opts.Duration), Takeover: opts.Takeover}
	return l.claim(ctx, ctx, opts, &boardpb.Command{Op: &boardpb.Command_Claim{Claim: op}})
}

// ClaimAll asks for the leases of several keys, all or none: granted, there is one Lease for
// each, in their order. Otherwise the Result is the outcome of the first key that could not
// be granted, and InTheWay names them all. The rest is as in Claim; no keys are bad_request.
func (l *Loop) ClaimAll(ctx context.Context, keys []string, opts ClaimOptions) ([]*Lease, *boardpb.Result, error) {
	if len(keys) == 0 {
		return nil, nil, &Error{Result: &boardpb.Result{Code: boardpb.Code_CODE_BAD_REQUEST, Field: "keys",
			Message: "keys: an empty list claims nothing", Hint: "name the keys to claim"}}
	}
	op := &boardpb.Claim{Keys: keys, DurationMs: millis(opts.Duration), Takeover: opts.Takeover}
	return l.claimAny(ctx, ctx, opts, &boardpb.Command{Op: &boardpb.Command_Claim{Claim: op}})
}

// ClaimNext asks for the first claimable posted item that matches pattern; none is the
// outcome timeout, with the namespace's counts. The rest is as in Claim.
func (l *Loop) ClaimNext(ctx context.Context, pattern string, opts ClaimOptions) (*Lease, *boardpb.Result, error) {
	op := &boardpb.ClaimNext{Pattern: pattern, DurationMs: millis(opts.Duration), After: opts.After}
	return l.claim(ctx, ctx, opts, &boardpb.Command{Op: &boardpb.Command_ClaimNext{ClaimNext: op}})
}

// millis leaves out a zero duration and sends any other as it is: the server judges it.
func millis(d time.Duration) *int64 {
	if d == 0 {
		return nil
	}
	ms := d.Milliseconds()
	if ms == 0 && d > 0 {
		ms = 1
	}
	return &ms
}

func (l *Loop) claim(ctx, work context.Context, opts ClaimOptions, cmd *boardpb.Command) (*Lease, *boardpb.Result, error) {
	leases, res, err := l.claimAny(ctx, work, opts, cmd)
	if len(leases) == 0 {
		return nil, res, err
	}
	return leases[0], res, err
}

func (l *Loop) claimAny(ctx, work context.Context, opts ClaimOptions, cmd *boardpb.Command) ([]*Lease, *boardpb.Result, error) {
	if opts.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, opts.Timeout)
		defer cancel()
	}
	ans, err := l.submit(ctx, work, cmd)
	if err != nil {
		return nil, nil, err
	}
	res, err := refusal(ans.result)
	if err != nil || res.Outcome != boardpb.Outcome_OUTCOME_OK {
		return nil, res, err
	}
	return ans.leases, res, nil
}

// Txn applies several operations at once, or none. A failing guard is the outcome
// conflict, with FailedGuard; a refused operation an *Error with FailedOp. What it claims
// is kept alive while ctx lives: Held finds the Lease.
func (l *Loop) Txn(ctx context.Context, guards []*boardpb.Guard, ops []*boardpb.TxnOp) (*boardpb.Result, error) {
	return l.apply(ctx, &boardpb.Command{Op: &boardpb.Command_Txn{Txn: &boardpb.Txn{Guards: guards, Ops: ops}}})
}

// Txn is Loop.Txn without a loop: it cannot claim.
func (b *Board) Txn(ctx context.Context, guards []*boardpb.Guard, ops []*boardpb.TxnOp) (*boardpb.Result, error) {
	return b.applyOnce(ctx, &boardpb.Command{Op: &boardpb.Command_Txn{Txn: &boardpb.Txn{Guards: guards, Ops: ops}}})
}

// Held finds the lease this client holds by key and generation, or nil.
func (l *Loop) Held(key string, generation uint64) *Lease {
	if lease := l.b.lease(leaseID{key, generation}); lease != nil && lease.loop == l {
		return lease
	}
	return nil
}

// maxLeases is how many leases a loop can hold (SPEC F-13).
const maxLeases = 1024

// grant is one lease that a Result grants.
type grant struct {
	key string
	res *boardpb.Result
}

// grants says whether a command can be granted a lease.
func grants(cmd *boardpb.Command) bool {
	switch op := cmd.Op.(type) {
	case *boardpb.Command_Claim, *boardpb.Command_ClaimNext:
		return true
	case *boardpb.Command_Txn:
		for _, o := range op.Txn.Ops {
			if o.GetClaim() != nil {
				return true
			}
		}
	}
	return false
}

// granted lists what a Result grants.
func granted(cmd *boardpb.Command, res *boardpb.Result) []grant {
	if res.Outcome != boardpb.Outcome_OUTCOME_OK {
		return nil
	}
	switch op := cmd.Op.(type) {
	case *boardpb.Command_Claim, *boardpb.Command_ClaimNext:
		if keys := cmd.GetClaim().GetKeys(); len(keys) > 0 {
			var out []grant
			for i, one := range res.Results {
				out = append(out, grant{keys[i], one})
			}
			return out
		}
		return []grant{{grantedKey(cmd, res), res}}
	case *boardpb.Command_Txn:
		var out []grant
		for i, o := range op.Txn.Ops {
			if claim := o.GetClaim(); claim != nil && i < len(res.Results) && res.Results[i].Generation != 0 {
				out = append(out, grant{claim.Key, res.Results[i]})
			}
		}
		return out
	}
	return nil
}

func grantedKey(cmd *boardpb.Command, res *boardpb.Result) string {
	if claim := cmd.GetClaim(); claim != nil {
		return claim.Key
	}
	return res.Key
}

// adopt makes the leases of what an answer grants, in the care of the keeper.
func (l *Loop) adopt(work context.Context, cmd *boardpb.Command, ans answer) (leases []*Lease) {
	for _, g := range granted(cmd, ans.result) {
		leases = append(leases, l.grant(work, cmd.Seq, g, ans.sentAt))
	}
	return leases
}

// disown finds out what became of a claim whose caller left, under the same identity,
// and gives back what it was granted. It owns the claim's seq until it knows: a floor
// above it would tell the server that the grant was acknowledged, and keepalives would
// then hold it for ever. It ends with an answer or with the client.
func (l *Loop) disown(cmd *boardpb.Command) {
	defer l.win.finish(cmd.Seq)
	for n := 0; ; n++ {
		ans, err := l.b.resubmit(l.c.ctx, cmd)
		if err == nil {
			l.check(ans.result)
			for _, g := range granted(cmd, ans.result) {
				l.giveBack(g.key, g.res.Generation)
			}
			return
		}
		select {
		case <-l.ended:
			return
		default:
		}
		if CodeOf(err) != boardpb.Code_CODE_UNAVAILABLE || l.c.rest(l.c.ctx, backoff(n, 100*time.Millisecond, time.Second)) != nil {
			return
		}
	}
}

// giveBack releases a grant that nobody awaits; if even that gets no answer, the lease is
// let go and runs out.
func (l *Loop) giveBack(key string, generation uint64) {
	op := &boardpb.Release{Key: key, Generation: generation}
	if _, err := l.submit(l.c.ctx, l.c.ctx, &boardpb.Command{Op: &boardpb.Command_Release{Release: op}}); err != nil {
		l.addLetGo(&boardpb.LeaseRef{Key: key, Generation: generation})
	}
}

// addLetGo queues a lease that the next keepalive must not renew. A loop holds at most
// maxLeases, so of more the oldest have run out.
func (l *Loop) addLetGo(ref *boardpb.LeaseRef) {
	l.mu.Lock()
	if !l.over && !l.attached {
		l.letGo = append(l.letGo, ref)
		l.letGo = l.letGo[max(0, len(l.letGo)-maxLeases):]
	}
	l.mu.Unlock()
	l.c.keeper.hurry(l)
}
