package board

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/reflect/protoreflect"

	boardpb "raftboard/fsm/pb"
	"raftboard/fsm/state"
)

// Check refuses what needs no state to be refused: shape, grammar, encoding and size
// (SPEC F-20, F-21). It is pure, so a node may answer before the log, and applying comes
// to the same answer. It returns nil for a command that is well formed.
func Check(c *boardpb.Command) *boardpb.Result {
	if r := checkEnvelope(c); r != nil {
		return r
	}
	switch o := c.Op.(type) {
	case *boardpb.Command_ClusterSet:
		if g := o.ClusterSet.GraceMs; g != nil && (*g < 0 || *g > state.MaxGraceMs) {
			return bad("grace_ms", "%d ms; 0 to %d", *g, state.MaxGraceMs)
		}
	case *boardpb.Command_BoardCreate:
		return checkBoard(o.BoardCreate.Name, o.BoardCreate.Settings, false)
	case *boardpb.Command_BoardSet:
		return checkBoard(o.BoardSet.Name, o.BoardSet.Settings, true)
	case *boardpb.Command_BoardCompact:
		return checkBoard(o.BoardCompact.Name, nil, false)
	case *boardpb.Command_BoardFork:
		return firstBad(checkNamed("from", o.BoardFork.From), checkBoard(o.BoardFork.Name, nil, false))
	case *boardpb.Command_BoardClose:
		return checkBoard(o.BoardClose.Name, nil, false)
	case *boardpb.Command_BoardDelete:
		return checkBoard(o.BoardDelete.Name, nil, false)
	case *boardpb.Command_LoopOpen:
		return checkOpen(o.LoopOpen)
	case *boardpb.Command_LoopKeepalive:
		return checkKeepalive(o.LoopKeepalive)
	case *boardpb.Command_Txn:
		return checkTxn(o.Txn)
	case *boardpb.Command_ReportConflict:
		return checkKey(o.ReportConflict.Key)
	case *boardpb.Command_ClaimNext:
		if _, why := state.ParsePattern(o.ClaimNext.Pattern); why != "" {
			return bad("pattern", "pattern %+q: %s", o.ClaimNext.Pattern, why)
		}
		return checkDuration("duration_ms", o.ClaimNext.DurationMs)
	case *boardpb.Command_Invalidate:
		_, r := parseRef("ref", o.Invalidate.Ref)
		return firstBad(r, checkText("reason", o.Invalidate.Reason, state.MaxText))
	case *boardpb.Command_Receipts:
		return checkReceipts(o.Receipts)
	case *boardpb.Command_Reopen:
		return checkKey(o.Reopen.Key)
	case *boardpb.Command_Unpark:
		return checkKey(o.Unpark.Key)
	case *boardpb.Command_ForceRelease:
		return firstBad(checkKey(o.ForceRelease.Key), checkText("reason", o.ForceRelease.Reason, state.MaxText))
	case *boardpb.Command_Heartbeat:
		return firstBad(checkKey(o.Heartbeat.Key), checkDuration("extend_ms", o.Heartbeat.ExtendMs))
	default:
		return firstBad(checkPhaseOp(c), checkOp(plainOp(c)))
	}
	return nil
}

// plainOp returns the operations that may also stand in a txn, or nil.
func plainOp(c *boardpb.Command) any {
	switch o := c.Op.(type) {
	case *boardpb.Command_Set:
		return o.Set
	case *boardpb.Command_Append:
		return o.Append
	case *boardpb.Command_Delete:
		return o.Delete
	case *boardpb.Command_Claim:
		return o.Claim
	case *boardpb.Command_Release:
		return o.Release
	case *boardpb.Command_Complete:
		return o.Complete
	case *boardpb.Command_Fail:
		return o.Fail
	}
	return nil
}

func txnOp(o *boardpb.TxnOp) any {
	switch o := o.GetOp().(type) {
	case *boardpb.TxnOp_Set:
		return o.Set
	case *boardpb.TxnOp_Append:
		return o.Append
	case *boardpb.TxnOp_Delete:
		return o.Delete
	case *boardpb.TxnOp_Claim:
		return o.Claim
	case *boardpb.TxnOp_Release:
		return o.Release
	case *boardpb.TxnOp_Complete:
		return o.Complete
	case *boardpb.TxnOp_Fail:
		return o.Fail
	}
	return nil
}

func checkOp(op any) *boardpb.Result {
	switch o := op.(type) {
	case *boardpb.Set:
		if o.Overwrite && o.IfVersion != 0 {
			return bad("if_version", "either a version or overwrite")
		}
		return firstBad(checkKey(o.Key), checkValue("value", o.Value), checkText("source", o.Source, state.MaxText), checkSummary(o.Summary),
			checkRef("for_claim", o.ForClaim), checkRef("fence", o.Fence), checkCites(o.Cites))
	case *boardpb.Append:
		return firstBad(checkKey(o.Key), checkValue("value", o.Value), checkText("source", o.Source, state.MaxText), checkSummary(o.Summary),
			checkRef("for_claim", o.ForClaim), checkRef("fence", o.Fence), checkCites(o.Cites))
	case *boardpb.Delete:
		return checkKey(o.Key)
	case *boardpb.Claim:
		return firstBad(checkKeys(o), checkDuration("duration_ms", o.DurationMs))
	case *boardpb.Release:
		return checkKey(o.Key)
	case *boardpb.Complete:
		return checkComplete(o)
	case *boardpb.Fail:
		if o.RetryAfterMs < 0 || o.RetryAfterMs > state.MaxLeaseMs {
			return bad("retry_after_ms", "%d ms; 0 to %d", o.RetryAfterMs, state.MaxLeaseMs)
		}
		return firstBad(checkKey(o.Key), checkText("reason", o.Reason, state.MaxText))
	}
	return nil
}

// checkKeys: a claim is of one key, or of a list without repetitions.
func checkKeys(o *boardpb.Claim) *boardpb.Result {
	switch n := len(o.Keys); {
	case n == 0:
		return checkKey(o.Key)
	case o.Key != "":
		return bad("keys", "either one key or a list of keys")
	case n > state.MaxTxn:
		return &boardpb.Result{Code: boardpb.Code_CODE_LIMIT_TXN, Field: "keys", Got: uint64(n), Limit: state.MaxTxn}
	}
	seen := make(map[string]bool, len(o.Keys))
	for i, key := range o.Keys {
		if r := checkKey(key); r != nil {
			r.Field = fmt.Sprintf("keys/%d", i)
			return r
		}
		if seen[key] {
			return bad(fmt.Sprintf("keys/%d", i), "%s is named twice", key)
		}
		seen[key] = true
	}
	return nil
}

func checkComplete(o *boardpb.Complete) *boardpb.Result {
	if r := checkKey(o.Key); r != nil {
		return r
	}
	if o.ResultsKey != "" {
		if o.Result == nil {
			return bad("result", "results_key without a result to store")
		}
		if r := checkKey(o.ResultsKey); r != nil {
			return r
		}
	}
	if o.Result != nil {
		return firstBad(checkValue("result", o.Result), checkCites(o.Cites))
	}
	if len(o.Cites) > 0 {
		return bad("cites", "cites without a result that could cite")
	}
	return nil
}

func checkEnvelope(c *boardpb.Command) *boardpb.Result {
	switch {
	case c.Actor.GetPrincipal() == "":
		return &boardpb.Result{Code: boardpb.Code_CODE_UNAUTHENTICATED, Message: "the command has no author"}
	case len(c.IdempotencyKey) > state.MaxIdemKey:
		return bad("idempotency_key", "%d bytes, at most %d", len(c.IdempotencyKey), state.MaxIdemKey)
	case c.Seq > 0 && c.Loop == "":
		return bad("loop", "a seq belongs to a loop, and none was named")
	case c.Seq > 0 && c.IdempotencyKey != "":
		return bad("idempotency_key", "either a seq or an idempotency key")
	case c.Seq > 0 && c.Floor > c.Seq:
		return &boardpb.Result{Code: boardpb.Code_CODE_EXPIRED_REQUEST, Got: c.Seq, Limit: c.Floor}
	case len(c.Loop) > state.MaxOpaque || len(c.Incarnation) > state.MaxOpaque:
		return bad("loop", "longer than any id")
	}
	cluster := isClusterOp(c)
	switch {
	case cluster && c.Board != state.ClusterBoard:
		return bad("board", "this operation belongs to the cluster, not to a board")
	case cluster && (c.Loop != "" || c.Seq > 0):
		return bad("loop", "a command of the cluster has no loop; use an idempotency key")
	case !cluster && c.Board == state.ClusterBoard:
		return bad("board", "no board was named")
	case !cluster && needsLoop(c) && c.Loop == "":
		return bad("loop", "a claim belongs to a loop: open one first")
	}
	if !cluster {
		if why := state.CheckBoardName(c.Board); why != "" {
			return bad("board", "board %+q: the name %s", c.Board, why)
		}
	}
	return checkText("call_id", c.CallId, state.MaxOpaque)
}

func isClusterOp(c *boardpb.Command) bool {
	switch c.Op.(type) {
	case *boardpb.Command_Lead, *boardpb.Command_Tick, *boardpb.Command_Level, *boardpb.Command_NodePut,
		*boardpb.Command_NodeDrop, *boardpb.Command_ClusterSet, *boardpb.Command_BoardCreate,
		*boardpb.Command_BoardSet, *boardpb.Command_BoardCompact, *boardpb.Command_BoardDelete,
		*boardpb.Command_BoardClose, *boardpb.Command_BoardFork:
		return true
	}
	return false
}

// needsLoop: whatever makes or uses a lease has a holder, and a holder is a loop.
func needsLoop(c *boardpb.Command) bool {
	switch o := c.Op.(type) {
	case *boardpb.Command_Claim, *boardpb.Command_ClaimNext, *boardpb.Command_Heartbeat,
		*boardpb.Command_Release, *boardpb.Command_Complete, *boardpb.Command_Fail,
		*boardpb.Command_PhaseLock, *boardpb.Command_PhaseRenew, *boardpb.Command_PhaseUnlock:
		return true
	case *boardpb.Command_Txn:
		for _, op := range o.Txn.Ops {
			if _, claims := op.Op.(*boardpb.TxnOp_Claim); claims {
				return true
			}
		}
	}
	return false
}

func checkBoard(name string, settings *boardpb.BoardSettings, required bool) *boardpb.Result {
	if r := checkNamed("name", name); r != nil {
		return r
	}
	if settings == nil {
		if required {
			return bad("settings", "none given")
		}
		return nil
	}
	switch {
	case settings.MaxValueBytes > state.MaxValueBytes:
		return bad("max_value_bytes", "%d, at most %d", settings.MaxValueBytes, state.MaxValueBytes)
	case settings.MaxBoardBytes > state.MaxBoardBytes:
		return bad("max_board_bytes", "%d, at most %d", settings.MaxBoardBytes, state.MaxBoardBytes)
	case settings.HistoryVersions > state.MaxHistoryVersions:
		return bad("history_versions", "%d, at most %d", settings.HistoryVersions, state.MaxHistoryVersions)
	}
	if len(settings.Namespaces) == 0 {
		return nil // the table stays as it is, or is the default one
	}
	_, r := state.CompileSchema(settings.Namespaces)
	return r
}

func checkNamed(field, name string) *boardpb.Result {
	if why := state.CheckBoardName(name); why != "" {
		return bad(field, "board %+q: the name %s", name, why)
	}
	return nil
}

func checkOpen(o *boardpb.LoopOpen) *boardpb.Result {
	if o.TtlMs < 0 || o.TtlMs > state.MaxLoopTTLMs {
		return bad("ttl_ms", "%d ms; 1 to %d, 0 is the default", o.TtlMs, state.MaxLoopTTLMs)
	}
	return firstBad(checkText("nonce", o.Nonce, state.MaxNonce), checkText("label", o.Label, state.MaxOpaque),
		checkText("parent_loop", o.ParentLoop, state.MaxOpaque))
}

func checkKeepalive(o *boardpb.LoopKeepalive) *boardpb.Result {
	if len(o.Loops) == 0 || len(o.Loops) > maxRenewals || len(o.LetGo) > state.MaxLeases {
		return bad("loops", "%d loops and %d leases; 1 to %d and at most %d", len(o.Loops), len(o.LetGo), maxRenewals, state.MaxLeases)
	}
	for _, l := range o.LetGo {
		if r := checkKey(l.Key); r != nil {
			return r
		}
	}
	return nil
}

// maxRenewals bounds the loops of one keepalive; a client with more sends several.
const maxRenewals = 256

func checkTxn(o *boardpb.Txn) *boardpb.Result {
	if n := max(len(o.Ops), len(o.Guards)); n > state.MaxTxn {
		return &boardpb.Result{Code: boardpb.Code_CODE_LIMIT_TXN, Got: uint64(n), Limit: state.MaxTxn}
	}
	if len(o.Ops) == 0 {
		return bad("ops", "a txn has at least one operation")
	}
	for i, g := range o.Guards {
		key, ok := guardKey(g)
		if !ok {
			return bad(fmt.Sprintf("guards/%d", i), "tests nothing")
		}
		if r := checkKey(key); r != nil {
			r.Field = fmt.Sprintf("guards/%d/%s", i, r.Field)
			return r
		}
	}
	for i, o := range o.Ops {
		op := txnOp(o)
		if op == nil {
			return bad(fmt.Sprintf("ops/%d", i), "names no operation")
		}
		if len(o.GetClaim().GetKeys()) > 0 {
			return bad(fmt.Sprintf("ops/%d/keys", i), "a txn is all or nothing already: name one key in each claim")
		}
		if o.GetAppend().GetUnique() {
			return bad(fmt.Sprintf("ops/%d/unique", i), "only an append by itself can be unique")
		}
		if r := checkOp(op); r != nil {
			r.Field = fmt.Sprintf("ops/%d/%s", i, r.Field)
			return r
		}
	}
	return nil
}

func guardKey(g *boardpb.Guard) (string, bool) {
	switch t := g.GetTest().(type) {
	case *boardpb.Guard_Version:
		return t.Version.GetKey(), true
	case *boardpb.Guard_Lease:
		return t.Lease.GetKey(), true
	case *boardpb.Guard_Exists:
		return t.Exists, true
	case *boardpb.Guard_Absent:
		return t.Absent, true
	}
	return "", false
}

func checkKey(key string) *boardpb.Result {
	if why := state.CheckKey(key); why != "" {
		return &boardpb.Result{Code: boardpb.Code_CODE_BAD_KEY, Field: "key", Message: fmt.Sprintf("key %+q: %s", clip(key), why),
			Hint: "a key is 1 to 8 segments of A-Z a-z 0-9 . _ - joined by /"}
	}
	return nil
}

func checkRef(field string, ref *boardpb.LeaseRef) *boardpb.Result {
	if ref == nil {
		return nil
	}
	if why := state.CheckKey(ref.Key); why != "" {
		return bad(field, "key %+q: %s", clip(ref.Key), why)
	}
	if ref.Generation == 0 {
		return bad(field, "no generation was named")
	}
	return nil
}

func checkDuration(field string, ms *int64) *boardpb.Result {
	if ms != nil && (*ms <= 0 || *ms > state.MaxLeaseMs) {
		return bad(field, "%d ms; 1 to %d", *ms, state.MaxLeaseMs)
	}
	return nil
}

// checkSummary: a summary is one line, which whoever lists keys can show as one.
func checkSummary(s string) *boardpb.Result {
	if r := checkText("summary", s, 4*state.MaxSummary); r != nil {
		return r
	}
	if n := utf8.RuneCountInString(s); n > state.MaxSummary {
		return bad("summary", "%d characters, at most %d", n, state.MaxSummary)
	}
	for i, c := range s {
		if lineBreak(c) {
			return bad("summary", "a line break at byte %d: a summary is one line", i)
		}
	}
	return nil
}

func checkText(field, s string, most int) *boardpb.Result {
	if len(s) > most {
		return bad(field, "%d bytes, at most %d", len(s), most)
	}
	for i := 0; i < len(s); i++ {
		if s[i] == 0 {
			return badEncoding(field, i, "holds a NUL")
		}
	}
	if !utf8.ValidString(s) {
		return badEncoding(field, 0, "is not UTF-8")
	}
	return nil
}

func checkValue(field string, v []byte) *boardpb.Result {
	if len(v) > state.MaxValueBytes {
		return &boardpb.Result{Code: boardpb.Code_CODE_TOO_LARGE, Field: field, Got: uint64(len(v)), Limit: state.MaxValueBytes}
	}
	if code, offset, why := CheckJSON(v); code != boardpb.Code_CODE_UNSPECIFIED {
		return &boardpb.Result{Code: code, Field: field, Offset: uint64(offset),
			Message: fmt.Sprintf("%s is no JSON document: %s at byte %d", field, why, offset),
			Hint:    "a value is one JSON document; plain text is a JSON string"}
	}
	return nil
}

func badEncoding(field string, offset int, why string) *boardpb.Result {
	return &boardpb.Result{Code: boardpb.Code_CODE_BAD_ENCODING, Field: field, Offset: uint64(offset),
		Message: fmt.Sprintf("%s %s", field, why), Hint: "text is UTF-8 without NUL"}
}

func bad(field, format string, args ...any) *boardpb.Result {
	return &boardpb.Result{Code: boardpb.Code_CODE_BAD_REQUEST, Field: field, Message: field + ": " + fmt.Sprintf(format, args...)}
}

func firstBad(results ...*boardpb.Result) *boardpb.Result {
	for _, r := range results {
		if r != nil {
			return r
		}
	}
	return nil
}

// clip keeps a broken key from filling an answer.
func clip(s string) string {
	if len(s) > 80 {
		return strings.ToValidUTF8(s[:80], "") + "…"
	}
	return s
}

// Unknown names the first field this binary does not know, at any depth, or "". A
// command with one must not be proposed: an older node would apply it differently.
func Unknown(c *boardpb.Command) string {
	if c.Op == nil && len(c.ProtoReflect().GetUnknown()) == 0 {
		return "op"
	}
	return unknownIn(c.ProtoReflect(), "command")
}

func unknownIn(m protoreflect.Message, at string) (found string) {
	if len(m.GetUnknown()) > 0 {
		return at
	}
	m.Range(func(d protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		if d.Kind() != protoreflect.MessageKind {
			return true
		}
		name := at + "/" + string(d.Name())
		if !d.IsList() {
			found = unknownIn(v.Message(), name)
			return found == ""
		}
		for i := range v.List().Len() {
			if found = unknownIn(v.List().Get(i).Message(), name); found != "" {
				return false
			}
		}
		return true
	})
	return found
}
