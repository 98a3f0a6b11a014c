package main

import (
	"errors"
	"io"
	"strconv"

	"raftboard/cmd/raftboard/exitcode"
	"raftboard/cmd/raftboard/render"
	boardpb "raftboard/fsm/pb"
	wirepb "raftboard/transport/pb"
)

// The documented JSON shapes: snake_case, plain numbers, RFC 3339 times, durations in ms. A value
// is embedded byte for byte. What is not known or zero is left out, except what a reader counts on.

// resultObject is the answer to a write.
func resultObject(r *boardpb.Result) render.Object {
	var o render.Object
	if r.GetCode() != boardpb.Code_CODE_UNSPECIFIED {
		o.Add("code", exitcode.Word(r))
	} else {
		o.Add("outcome", exitcode.Word(r))
	}
	o.AddSet("key", r.GetKey())
	o.AddSet("version", r.GetVersion())
	o.AddSet("generation", r.GetGeneration())
	o.AddSet("ttl_ms", r.GetDurationMs())
	o.AddSet("rev", r.GetRev())
	o.AddSet("loop", r.GetLoop())
	o.AddSet("loop_ttl_ms", r.GetTtlMs())
	o.AddSet("replayed", r.GetReplayed())
	o.AddSet("renewed", r.GetRenewed())
	o.AddSet("late", r.GetLate())
	o.AddSet("attempts", r.GetAttempts())
	o.AddSet("value", render.Raw(r.GetValue()))
	o.AddSet("value_gone", r.GetValueGone())
	o.AddSet("author", r.GetAuthor())
	o.AddSet("author_time", render.Time(r.GetAuthorWallMs()))
	o.AddSet("your_version", r.GetYourVersion())
	o.AddSet("your_generation", r.GetYourGeneration())
	o.AddSet("holder", r.GetHolder())
	o.AddSet("holder_loop", r.GetHolderLoop())
	o.AddSet("expires_in_ms", r.GetExpiresInMs())
	o.AddSet("in_the_way", r.GetInTheWay())
	o.AddSet("reason", r.GetReason())
	o.AddSet("result_ref", r.GetResultRef())
	o.AddSet("previous", previousObjects(r.GetPrevious()))
	o.AddSet("counts", countsObject(r.GetCounts()))
	o.AddSet("next", r.GetNext())
	o.AddSet("ended", endedObjects(r.GetEnded()))
	o.AddSet("merged", r.GetMerged())
	o.AddSet("theirs", r.GetTheirs())
	o.AddSet("overlap", r.GetOverlap())
	o.AddSet("missing", r.GetMissing())
	addRefusal(&o, r)
	for _, inner := range r.GetResults() {
		results, _ := o.Get("results").([]render.Object)
		if results == nil {
			o.Add("results", []render.Object{})
		}
		o[len(o)-1].Value = append(results, resultObject(inner))
	}
	return o
}

// addRefusal adds what a refusal carries.
func addRefusal(o *render.Object, r *boardpb.Result) {
	o.AddSet("message", r.GetMessage())
	o.AddSet("hint", r.GetHint())
	o.AddSet("field", r.GetField())
	if r.GetOffset() != 0 || r.GetCode() == boardpb.Code_CODE_BAD_ENCODING {
		o.Add("offset", r.GetOffset())
	}
	o.AddSet("got", r.GetGot())
	o.AddSet("limit", r.GetLimit())
	o.AddSet("oldest_rev", r.GetOldestRev())
	o.AddSet("incarnation", r.GetIncarnation())
	o.AddSet("namespace", r.GetNamespace())
	o.AddSet("retry_after_ms", r.GetRetryAfterMs())
	if r.FailedGuard != nil {
		o.Add("failed_guard", r.GetFailedGuard())
	}
	if r.FailedOp != nil {
		o.Add("failed_op", r.GetFailedOp())
	}
	if r.GetProposed() != boardpb.Proposed_PROPOSED_UNSPECIFIED {
		o.Add("proposed", exitcode.EnumWord(r.GetProposed().String(), "PROPOSED_"))
	}
}

func previousObjects(list []*boardpb.Previous) []render.Object {
	var out []render.Object
	for _, p := range list {
		o := render.Obj("owner", p.GetOwner(), "generation", p.GetGeneration(),
			"ended_by", exitcode.EnumWord(p.GetEndedBy().String(), "ENDED_BY_"))
		o.AddSet("loop", p.GetLoop())
		o.AddSet("reason", p.GetReason())
		o.AddSet("partial_refs", p.GetPartialRefs())
		o.AddSet("ended_at", render.Time(p.GetEndedWallMs()))
		out = append(out, o)
	}
	return out
}

func endedObjects(list []*boardpb.Ended) []render.Object {
	var out []render.Object
	for _, e := range list {
		out = append(out, render.Obj("key", e.GetKey(), "generation", e.GetGeneration(),
			"cause", exitcode.EnumWord(e.GetCause().String(), "ENDED_BY_"), "time", render.Time(e.GetWallMs())))
	}
	return out
}

func countsObject(c *boardpb.NamespaceCounts) render.Object {
	if c == nil {
		return nil
	}
	var o render.Object
	o.AddSet("pattern", c.GetPattern())
	return append(o, render.Obj("entries", c.GetEntries(), "ready", c.GetReady(), "held", c.GetHeld(),
		"delayed", c.GetDelayed(), "parked", c.GetParked(), "done", c.GetDone())...)
}

// entryObject is one version of a key.
func entryObject(e *boardpb.Entry, withValue bool) render.Object {
	o := render.Obj("key", e.GetKey(), "version", e.GetVersion(), "rev", e.GetRev())
	o.AddSet("deleted", e.GetDeleted())
	if withValue && !e.GetDeleted() {
		o.Add("value", render.Raw(e.GetValue()))
	}
	o.Add("bytes", len(e.GetValue()))
	o.Add("author", e.GetAuthor())
	o.AddSet("acting_for", e.GetActingFor())
	o.AddSet("loop", e.GetLoop())
	o.Add("time", render.Time(e.GetWallMs()))
	o.Add("t_ms", e.GetTMs())
	o.AddSet("source", e.GetSource())
	o.AddSet("summary", e.GetSummary())
	if len(e.GetCites()) > 0 {
		o.Add("cites", e.GetCites())
	}
	o.AddSet("generation", e.GetGeneration())
	o.AddSet("late", e.GetLate())
	if c := e.GetForClaim(); c != nil {
		o.Add("for_claim", render.Obj("key", c.GetKey(), "generation", c.GetGeneration()))
	}
	return o
}

// leaseObject is one row of claims.
func leaseObject(row *wirepb.LeaseRow) render.Object {
	l := row.GetLease()
	o := render.Obj("key", l.GetKey(), "state", leaseWord(l), "generation", l.GetGeneration())
	o.AddSet("holder", l.GetOwner())
	o.AddSet("loop", l.GetLoop())
	if l.GetState() == boardpb.LeaseState_LEASE_STATE_HELD {
		o.Add("expires_in_ms", row.GetExpiresInMs())
		o.AddSet("expires_at_estimate", render.Time(row.GetExpiresWallMs()))
		o.Add("missed_keepalives", row.GetMissedKeepalives())
	}
	o.AddSet("ttl_ms", l.GetDurationMs())
	o.AddSet("acquired_at", render.Time(l.GetAcquiredWallMs()))
	o.Add("attempts", l.GetAttempts())
	o.Add("posted", l.GetPosted())
	if l.GetEndedBy() != boardpb.EndedBy_ENDED_BY_UNSPECIFIED {
		o.Add("ended_by", exitcode.EnumWord(l.GetEndedBy().String(), "ENDED_BY_"))
		o.AddSet("ended_at", render.Time(l.GetEndedWallMs()))
	}
	o.AddSet("reason", l.GetReason())
	o.AddSet("result_ref", l.GetResultRef())
	o.AddSet("previous", previousObjects(l.GetPrevious()))
	return o
}

// leaseWord is the state people see: a lease that ran out is "expired", though it is free.
func leaseWord(l *boardpb.Lease) string {
	if l.GetState() == boardpb.LeaseState_LEASE_STATE_FREE && l.GetEndedBy() == boardpb.EndedBy_ENDED_BY_EXPIRED {
		return "expired"
	}
	return exitcode.EnumWord(l.GetState().String(), "LEASE_STATE_")
}

// eventObject is one line of the feed.
func eventObject(e *boardpb.Event) render.Object {
	o := render.Obj("rev", e.GetRev(), "sub", e.GetSub(), "time", render.Time(e.GetWallMs()), "t_ms", e.GetTMs(),
		"kind", kindWord(e.GetKind()))
	o.AddSet("key", e.GetKey())
	o.AddSet("author", e.GetAuthor())
	o.AddSet("acting_for", e.GetActingFor())
	o.AddSet("loop", e.GetLoop())
	o.AddSet("seq", e.GetSeq())
	o.AddSet("idempotency_key", e.GetIdempotencyKey())
	o.AddSet("version", e.GetVersion())
	o.AddSet("prior_version", e.GetPriorVersion())
	o.AddSet("generation", e.GetGeneration())
	o.AddSet("prior_generation", e.GetPriorGeneration())
	o.AddSet("holder", e.GetHolder())
	if e.GetCause() != boardpb.EndedBy_ENDED_BY_UNSPECIFIED {
		o.Add("cause", exitcode.EnumWord(e.GetCause().String(), "ENDED_BY_"))
	}
	if e.GetCode() != boardpb.Code_CODE_UNSPECIFIED {
		o.Add("code", exitcode.EnumWord(e.GetCode().String(), "CODE_"))
	}
	o.AddSet("reason", e.GetReason())
	o.AddSet("to", e.GetTo())
	o.AddSet("call_id", e.GetCallId())
	o.AddSet("label", e.GetLabel())
	o.AddSet("oldest_rev", e.GetOldestRev())
	return o
}

func kindWord(k boardpb.Kind) string { return exitcode.EnumWord(k.String(), "KIND_") }

// printRefusal writes a refusal to stdout for programs; people read it on stderr.
func (a *app) printRefusal(err error) {
	var e *exitcode.Refused
	if !errors.As(err, &e) || !a.out.Machine() || a.out.Form == render.FormName {
		return
	}
	o := resultObject(e.Result)
	if perr := a.out.Print(render.View{Object: o}); perr != nil {
		a.warn("%v", perr)
	}
}

// printResult writes the answer to a write that was accepted.
func (a *app) printResult(r *boardpb.Result, text string) error {
	name := r.GetKey()
	if name == "" {
		name = r.GetLoop()
	}
	for _, e := range r.GetEnded() {
		a.warn("warning: your lease of %s (generation %d) ended: %s", e.GetKey(), e.GetGeneration(),
			exitcode.EnumWord(e.GetCause().String(), "ENDED_BY_"))
	}
	return a.out.Print(render.View{Object: resultObject(r), Names: []string{name}, Text: text})
}

// safeErr is stderr, escaped on a terminal.
func (a *app) safeErr() io.Writer { return render.Document(a.stderr, a.stderrTerminal) }

func num(n uint64) string { return strconv.FormatUint(n, 10) }
