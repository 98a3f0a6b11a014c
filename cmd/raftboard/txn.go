package main

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"raftboard/cmd/raftboard/render"
	boardpb "raftboard/fsm/pb"
)

// The written form of a txn. Values are JSON and are kept byte for byte.
type (
	txnFile struct {
		Guards []txnGuard `json:"guards"`
		Ops    []txnOp    `json:"ops"`
	}
	txnGuard struct {
		Version *struct {
			Key     string `json:"key"`
			Version uint64 `json:"version"`
		} `json:"version"`
		Lease  *txnLease `json:"lease"`
		Exists *string   `json:"exists"`
		Absent *string   `json:"absent"`
	}
	txnLease struct {
		Key        string `json:"key"`
		Generation uint64 `json:"generation"`
	}
	txnOp struct {
		Set      *txnWrite    `json:"set"`
		Append   *txnWrite    `json:"append"`
		Delete   *txnDelete   `json:"delete"`
		Claim    *txnClaim    `json:"claim"`
		Release  *txnLease    `json:"release"`
		Complete *txnComplete `json:"complete"`
		Fail     *txnFail     `json:"fail"`
	}
	txnWrite struct {
		Key        string          `json:"key"`
		Value      json.RawMessage `json:"value"`
		IfVersion  *versionJSON    `json:"if_version"`
		Generation uint64          `json:"generation"`
		Source     string          `json:"source"`
		ForClaim   *txnLease       `json:"for_claim"`
		Cites      []string        `json:"cites"`
		Summary    string          `json:"summary"`
	}
	txnDelete struct {
		Key        string `json:"key"`
		IfVersion  uint64 `json:"if_version"`
		Generation uint64 `json:"generation"`
	}
	txnClaim struct {
		Key      string `json:"key"`
		TTLMS    *int64 `json:"ttl_ms"`
		Takeover bool   `json:"takeover"`
	}
	txnComplete struct {
		Key        string          `json:"key"`
		Generation uint64          `json:"generation"`
		Result     json.RawMessage `json:"result"`
		ResultsKey string          `json:"results_key"`
		Cites      []string        `json:"cites"`
	}
	txnFail struct {
		Key          string `json:"key"`
		Generation   uint64 `json:"generation"`
		Reason       string `json:"reason"`
		RetryAfterMS int64  `json:"retry_after_ms"`
	}
	versionJSON struct{ versionFlag }
)

// UnmarshalJSON reads a version or "*".
func (v *versionJSON) UnmarshalJSON(raw []byte) error {
	if string(raw) == `"*"` {
		v.overwrite = true
		return nil
	}
	return json.Unmarshal(raw, &v.number)
}

func (a *app) txnCommand() *cobra.Command {
	c := leaf(verb{use: "txn FILE|-", short: "Several operations on one board, all or nothing, from a JSON document",
		long: "The document is {\"guards\":[…],\"ops\":[…]}. A guard is one of\n" +
			"  {\"version\":{\"key\":K,\"version\":N}} {\"lease\":{\"key\":K,\"generation\":G}} {\"exists\":K} {\"absent\":K}\n" +
			"an operation one of set, append (key, value, if_version N|\"*\", generation, source, for_claim, cites), delete,\n" +
			"claim (key, ttl_ms), release, complete (key, generation, result, results_key), fail. Unknown members are refused.",
		examples: [2]string{`raftboard txn change.json`,
			`echo '{"guards":[{"absent":"draft"}],"ops":[{"set":{"key":"draft","value":1}}]}' | raftboard txn -`},
		args: cobra.ExactArgs(1),
		run: func(ctx context.Context, args []string) error {
			defer a.close()
			raw, err := a.readInput(args[0])
			if err != nil {
				return err
			}
			txn, err := parseTxn(raw)
			if err != nil {
				return err
			}
			return a.sendTxn(ctx, txn)
		}})
	return c
}

// sendTxn applies a txn, in a loop of its own if it needs one and none is named.
func (a *app) sendTxn(ctx context.Context, txn *boardpb.Txn) error {
	longest, claims, needsLoop := int64(0), false, false
	for _, op := range txn.GetOps() {
		if c := op.GetClaim(); c != nil {
			claims, longest = true, max(longest, c.GetDurationMs())
		}
		needsLoop = needsLoop || op.GetRelease() != nil || op.GetComplete() != nil || op.GetFail() != nil
	}
	for _, g := range txn.GetGuards() {
		needsLoop = needsLoop || g.GetLease() != nil
	}
	cmd := &boardpb.Command{Op: &boardpb.Command_Txn{Txn: txn}}
	send := a.apply
	switch {
	case claims && a.g.loop == "":
		id, err := a.openLoop(ctx, loopTTL(time.Duration(longest)*time.Millisecond), "")
		if err != nil {
			return err
		}
		a.g.loop = id
		send = func(ctx context.Context, cmd *boardpb.Command) (*boardpb.Result, error) {
			r, err := a.apply(ctx, cmd)
			if err != nil {
				a.closeLoop(ctx, id)
			}
			return r, err
		}
	case needsLoop:
		send = a.applyInLoop
	}
	r, err := send(ctx, cmd)
	if err != nil {
		return err
	}
	if claims {
		r.Loop = a.g.loop
		a.warn("loop %s", r.GetLoop())
	}
	table := &render.Table{Columns: render.Cols("OP", "KEY", "VERSION", "GEN"), Title: fmt.Sprintf("rev %d", r.GetRev())}
	for i, inner := range r.GetResults() {
		table.Row(num(uint64(i)), inner.GetKey(), num(inner.GetVersion()), num(inner.GetGeneration()))
	}
	return a.out.Print(render.View{Object: resultObject(r), Names: []string{num(r.GetRev())}, Table: table})
}

// parseTxn reads the written form.
func parseTxn(raw []byte) (*boardpb.Txn, error) {
	var f txnFile
	if err := decodeStrict(raw, &f); err != nil {
		return nil, err
	}
	txn := &boardpb.Txn{}
	for i, g := range f.Guards {
		guard, n := g.proto()
		if n != 1 {
			return nil, refusal(boardpb.Code_CODE_BAD_REQUEST,
				fmt.Sprintf("guards/%d must have exactly one of version, lease, exists, absent", i), "")
		}
		txn.Guards = append(txn.Guards, guard)
	}
	for i, op := range f.Ops {
		out, n := op.proto()
		if n != 1 {
			return nil, refusal(boardpb.Code_CODE_BAD_REQUEST,
				fmt.Sprintf("ops/%d must have exactly one of set, append, delete, claim, release, complete, fail", i), "")
		}
		txn.Ops = append(txn.Ops, out)
	}
	return txn, nil
}

func (l *txnLease) ref() *boardpb.LeaseRef {
	if l == nil {
		return nil
	}
	return &boardpb.LeaseRef{Key: l.Key, Generation: l.Generation}
}

// proto gives the guard and how many tests were written in it.
func (g txnGuard) proto() (out *boardpb.Guard, n int) {
	out = &boardpb.Guard{}
	if g.Version != nil {
		out.Test, n = &boardpb.Guard_Version{Version: &boardpb.VersionIs{Key: g.Version.Key, Version: g.Version.Version}}, n+1
	}
	if g.Lease != nil {
		out.Test, n = &boardpb.Guard_Lease{Lease: g.Lease.ref()}, n+1
	}
	if g.Exists != nil {
		out.Test, n = &boardpb.Guard_Exists{Exists: *g.Exists}, n+1
	}
	if g.Absent != nil {
		out.Test, n = &boardpb.Guard_Absent{Absent: *g.Absent}, n+1
	}
	return out, n
}

// proto gives the operation and how many were written in it.
func (o txnOp) proto() (out *boardpb.TxnOp, n int) {
	out = &boardpb.TxnOp{}
	if w := o.Set; w != nil {
		set := &boardpb.Set{Key: w.Key, Value: w.Value, Generation: w.Generation, Source: w.Source, ForClaim: w.ForClaim.ref(),
			Cites: w.Cites, Summary: w.Summary}
		if w.IfVersion != nil {
			set.IfVersion, set.Overwrite = w.IfVersion.number, w.IfVersion.overwrite
		}
		out.Op, n = &boardpb.TxnOp_Set{Set: set}, n+1
	}
	if w := o.Append; w != nil {
		if w.IfVersion != nil {
			return out, 0
		}
		out.Op, n = &boardpb.TxnOp_Append{Append: &boardpb.Append{Key: w.Key, Value: w.Value, Generation: w.Generation,
			Source: w.Source, ForClaim: w.ForClaim.ref(), Cites: w.Cites, Summary: w.Summary}}, n+1
	}
	if d := o.Delete; d != nil {
		out.Op, n = &boardpb.TxnOp_Delete{Delete: &boardpb.Delete{Key: d.Key, IfVersion: d.IfVersion,
			Generation: d.Generation}}, n+1
	}
	if c := o.Claim; c != nil {
		out.Op, n = &boardpb.TxnOp_Claim{Claim: &boardpb.Claim{Key: c.Key, DurationMs: c.TTLMS, Takeover: c.Takeover}}, n+1
	}
	if l := o.Release; l != nil {
		out.Op, n = &boardpb.TxnOp_Release{Release: &boardpb.Release{Key: l.Key, Generation: l.Generation}}, n+1
	}
	if c := o.Complete; c != nil {
		out.Op, n = &boardpb.TxnOp_Complete{Complete: &boardpb.Complete{Key: c.Key, Generation: c.Generation, Result: c.Result,
			ResultsKey: c.ResultsKey}}, n+1
	}
	if f := o.Fail; f != nil {
		out.Op, n = &boardpb.TxnOp_Fail{Fail: &boardpb.Fail{Key: f.Key, Generation: f.Generation, Reason: f.Reason,
			RetryAfterMs: f.RetryAfterMS}}, n+1
	}
	return out, n
}
