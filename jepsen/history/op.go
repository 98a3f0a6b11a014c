package history

import (
	"crypto/sha256"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	boardpb "raftboard/fsm/pb"
)

// Kind is what an operation asks for.
type Kind string

// The kinds of operation that workloads record.
const (
	Get       Kind = "get"
	Set       Kind = "set"
	Delete    Kind = "delete"
	Mutate    Kind = "mutate" // read, compute, set, at most four times
	Post      Kind = "post"
	ClaimNext Kind = "claim_next"
	Complete  Kind = "complete"
	Fail      Kind = "fail"
	Partial   Kind = "partial" // a set of partial work under a claim
	Append    Kind = "append"
	Txn       Kind = "txn"
	LoopClose Kind = "loop_close"
	Compact   Kind = "compact" // by an operator
	Forged    Kind = "forged"  // what claims to be another's, or is malformed: it must be refused
	View      Kind = "view"    // what others wrote, as text
	Dump      Kind = "dump"    // all that some keys hold, in one read

	Claim     Kind = "claim"     // of a key by its name
	Renew     Kind = "renew"     // of one lease
	Keepalive Kind = "keepalive" // of a loop and its leases
	Guarded   Kind = "guarded"   // a set of a leased key under its lease
	Fenced    Kind = "fenced"    // a write elsewhere that depends on a lease
	Release   Kind = "release"
	Force     Kind = "force_release" // by an operator
	Unpark    Kind = "unpark"

	GetAtLeast Kind = "get_at_least" // of any node, once it shows a rev
	GetStale   Kind = "get_stale"    // of any node, at once
)

// Reads says that an operation leaves nothing behind.
func (k Kind) Reads() bool {
	return k == Get || k == GetAtLeast || k == GetStale || k == Dump || k == View
}

// Outcome is what a client may conclude from what it was told.
type Outcome string

// The outcomes. Fail is only for what is proved not done: a refusal that is a Result, a
// conflict, or "not done". Everything else that is no success is Info: perhaps done.
const (
	OK        Outcome = "ok"
	Failed    Outcome = "fail"
	Info      Outcome = "info"
	undecided Outcome = ""
)

// Op is one operation of a client, from its call to its return.
type Op struct {
	ID       uint64 `json:"id"`
	Client   string `json:"client"`
	Loop     string `json:"loop,omitempty"`
	Seq      uint64 `json:"seq,omitempty"` // known only where the trace shows the command
	Kind     Kind   `json:"kind"`
	Board    string `json:"board"`
	Key      string `json:"key,omitempty"`
	Args     Args   `json:"args"`
	Asked    string `json:"asked,omitempty"`    // the node, where the client chose one
	Answered string `json:"answered,omitempty"` // the node, where the answer names it

	Began    uint64        `json:"began"` // place in the count of beginnings and ends
	Ended    uint64        `json:"ended"` // 0: never returned
	Invoke   time.Duration `json:"t_invoke"`
	Return   time.Duration `json:"t_return"`
	Outcome  Outcome       `json:"outcome"`
	Result   Result        `json:"result"`
	Attempts int           `json:"attempts,omitempty"` // of a mutate
}

// Args are what an operation named; which of them count depends on its kind.
type Args struct {
	Value      string `json:"value,omitempty"`
	IfVersion  uint64 `json:"if_version,omitempty"`
	Generation uint64 `json:"generation,omitempty"`
	ForClaim   string `json:"for_claim,omitempty"` // the claimed key
	ResultsKey string `json:"results_key,omitempty"`
	Pattern    string `json:"pattern,omitempty"`
	Reason     string `json:"reason,omitempty"`
	AtLeast    uint64 `json:"at_least,omitempty"` // the rev that a read must show
	Limit      uint64 `json:"limit,omitempty"`    // the tokens that a view may take

	// Of a caller that gives its own identities: beside Op.Loop and Op.Seq the floor it stated,
	// or its idempotency key.
	Floor    uint64 `json:"floor,omitempty"`
	Identity string `json:"identity,omitempty"`

	Parts    []Part `json:"parts,omitempty"` // of a txn
	Takeover bool   `json:"takeover,omitempty"`

	As    string `json:"as,omitempty"`    // the name that the caller stated at the edge, if it was to be believed
	Trick string `json:"trick,omitempty"` // what was tried to be taken for more than that
}

// Part is one guard or one operation of a txn, in the order in which it was sent.
type Part struct {
	Do      Kind   `json:"do"` // Get: a guard that names the version that was read; Append, Set
	Key     string `json:"key"`
	Value   string `json:"value,omitempty"`
	Version uint64 `json:"version,omitempty"` // that a guard or a set names
}

// Seen is what a read saw of a key: an append key whole, of another key the newest version.
// Keys that hold nothing are listed without items.
type Seen struct {
	Key      string   `json:"key"`
	Items    []string `json:"items,omitempty"`
	Versions []uint64 `json:"versions,omitempty"` // of the items; left out where they are 1, 2, 3 …
	Revs     []uint64 `json:"revs,omitempty"`     // at which the items were written, where they matter
}

// Result is what the client was told, reduced to what checkers compare.
type Result struct {
	Answer     string `json:"answer,omitempty"` // outcome or code: "ok", "conflict", "stale_lease" …
	Proposed   string `json:"proposed,omitempty"`
	Rev        uint64 `json:"rev,omitempty"`
	Key        string `json:"key,omitempty"` // where the operation did not name it
	Version    uint64 `json:"version,omitempty"`
	Generation uint64 `json:"generation,omitempty"`
	Value      string `json:"value,omitempty"`
	Replayed   bool   `json:"replayed,omitempty"`
	Leader     string `json:"leader,omitempty"` // the id of the node that led, where the answer names it
	Seen       []Seen `json:"seen,omitempty"`   // by a dump
	Error      string `json:"error,omitempty"`  // text, for people
}

// mostText is how much of a text is kept as it is.
const mostText = 512

// Text is a value as it is recorded where it may be anything: short valid text as it is, the
// rest by its length and hash, which survive a file of JSON.
func Text(value []byte) string {
	if len(value) <= mostText && utf8.Valid(value) {
		return string(value)
	}
	sum := sha256.Sum256(value)
	return fmt.Sprintf("%d bytes, sha256 %x", len(value), sum[:])
}

// callPrefix marks the call_ids of operations of a Log.
const callPrefix = "op-"

// CallID is what ties an operation to its commands.
func (o *Op) CallID() string { return CallID(o.ID) }

// CallID is the call_id of an operation.
func CallID(op uint64) string { return callPrefix + strconv.FormatUint(op, 10) }

// OpOf reads a call_id; 0 if it is not one of a Log.
func OpOf(callID string) uint64 {
	digits, ours := strings.CutPrefix(callID, callPrefix)
	if !ours {
		return 0
	}
	id, err := strconv.ParseUint(digits, 10, 64)
	if err != nil {
		return 0
	}
	return id
}

// NoMajority is the name of a record that says that what was done, alone or with what was there
// already, leaves no majority connected: nothing can be served.
const NoMajority = "no-majority"

// Fault is something done to the cluster or to a client, and the proof that it was done.
type Fault struct {
	Name    string        `json:"name"`    // "kill", "isolate", "crash", "pause"
	Nemesis string        `json:"nemesis"` // N7, N1 …; "" for what a workload does to its own clients
	Targets []string      `json:"targets"`
	Start   time.Duration `json:"start"`
	End     time.Duration `json:"end"`
	Witness string        `json:"witness"`         // "" : nothing shows that it happened
	Error   string        `json:"error,omitempty"` // why it could not be done or undone
}

// Answer names the outcome or the code of a Result: "ok", "conflict", "stale_lease".
func Answer(r *boardpb.Result) string {
	if r.GetCode() != boardpb.Code_CODE_UNSPECIFIED {
		return strings.ToLower(strings.TrimPrefix(r.Code.String(), "CODE_"))
	}
	return strings.ToLower(strings.TrimPrefix(r.GetOutcome().String(), "OUTCOME_"))
}
