package board

import (
	"fmt"

	boardpb "raftboard/fsm/pb"
	"raftboard/fsm/state"
)

// checkCites looks at the shape of citations (SPEC F-29).
func checkCites(cites []string) *boardpb.Result {
	if n := len(cites); n > state.MaxCites {
		return &boardpb.Result{Code: boardpb.Code_CODE_LIMIT_CITES, Field: "cites", Got: uint64(n), Limit: state.MaxCites}
	}
	for i, text := range cites {
		if _, r := parseRef(fmt.Sprintf("cites/%d", i), text); r != nil {
			return r
		}
	}
	return nil
}

func parseRef(field, text string) (state.Ref, *boardpb.Result) {
	ref, why := state.ParseRef(text)
	if why != "" {
		return ref, &boardpb.Result{Code: boardpb.Code_CODE_BAD_REQUEST, Field: field,
			Message: fmt.Sprintf("%s: %+q is no ref: %s", field, clip(text), why),
			Hint:    "a ref is a key, a version of it (facts/a@3) or a grant (lease:claims/a#2)"}
	}
	return ref, nil
}

// resolveCites turns citations into the form they are stored in: each with the version or
// generation that is current before this commit if none was named. What was never there is
// not_found, and then nothing is written.
func resolveCites(x *state.Txn, cites []string) ([]string, *boardpb.Result) {
	if len(cites) == 0 {
		return nil, nil
	}
	out := make([]string, len(cites))
	for i, text := range cites {
		ref, r := parseRef(fmt.Sprintf("cites/%d", i), text)
		if r != nil {
			return nil, r
		}
		newest, live := newestOf(x, ref)
		if ref.Number == 0 && live {
			ref.Number = newest
		}
		if ref.Number == 0 || ref.Number > newest {
			return nil, &boardpb.Result{Code: boardpb.Code_CODE_NOT_FOUND, Field: fmt.Sprintf("cites/%d", i), Key: ref.String(), Version: newest}
		}
		out[i] = ref.String()
	}
	return out, nil
}

// newestOf is the newest version or generation a ref could mean, and whether one is current.
func newestOf(x *state.Txn, ref state.Ref) (newest uint64, current bool) {
	if ref.Kind == state.RefLease {
		l := x.LeaseBefore(ref.Key)
		return l.GetGeneration(), l.GetGeneration() > 0
	}
	k := x.Before(ref.Key)
	if k == nil {
		return 0, false
	}
	return k.Newest().Version, !k.Newest().Deleted
}

// Invalidate marks a version of a key as disputed (SPEC F-18). Its author may, and whoever
// leads the work. The record and what cites it stay as they are. A repeat changes nothing;
// the first reason stays.
func Invalidate(x *state.Txn, o *boardpb.Invalidate) *boardpb.Result {
	ref, r := parseRef("ref", o.Ref)
	if r != nil {
		return r
	}
	if ref.Kind != state.RefKey {
		return bad("ref", "a grant is no record that could be wrong; name a version of a key")
	}
	e, r := disputed(x, ref)
	if r != nil {
		return r
	}
	if !mayDispute(x.Command().Actor, e) {
		return &boardpb.Result{Code: boardpb.Code_CODE_FORBIDDEN, Key: e.Key, Field: fieldAuthor, Holder: e.Author}
	}
	text := state.EntryRef(e)
	done := &boardpb.Result{Outcome: boardpb.Outcome_OUTCOME_OK, Key: e.Key, Version: e.Version}
	if x.Invalidation(text) != nil {
		return done
	}
	v := &boardpb.Invalidation{Ref: text, Reason: o.Reason}
	need := state.MarkBytes(v) + uint64(len(state.Principal(x.Command().Actor)))
	// A full board must be repairable too: the reserve above the cap is for this as well.
	if !x.MakeRoom(e.Key, need) && x.LiveBytes()+need > boardLimit(x)+boardLimit(x)/state.ResultsReserve {
		return fullBoard(x, e.Key, need)
	}
	x.PutInvalidation(v)
	x.Emit(&boardpb.Event{Kind: boardpb.Kind_KIND_INVALIDATE, Surface: boardpb.Surface_SURFACE_KV, Key: e.Key, Version: e.Version, Holder: e.Author})
	return done
}

// disputed finds the version a ref means: the current one if it names none.
func disputed(x *state.Txn, ref state.Ref) (*boardpb.Entry, *boardpb.Result) {
	k := x.Key(ref.Key)
	if k == nil {
		return nil, &boardpb.Result{Code: boardpb.Code_CODE_NOT_FOUND, Key: ref.Key}
	}
	e := k.Newest()
	if ref.Number > 0 {
		e = k.Version(ref.Number)
	}
	switch {
	case e == nil && ref.Number < k.Versions()[0].Version:
		return nil, tooOld(ref, k.Versions()[0].Version)
	case e == nil, e.Deleted:
		return nil, &boardpb.Result{Code: boardpb.Code_CODE_NOT_FOUND, Key: ref.String(), Version: k.Newest().Version}
	}
	return e, nil
}

func tooOld(ref state.Ref, oldest uint64) *boardpb.Result {
	return &boardpb.Result{Code: boardpb.Code_CODE_COMPACTED, Key: ref.Key, Got: ref.Number, Version: oldest,
		Message: fmt.Sprintf("version %d of %s is no longer kept; the oldest that is: %d", ref.Number, ref.Key, oldest),
		Hint:    "what cites it is still there: raftboard trace of a newer version"}
}

func mayDispute(a *boardpb.Actor, e *boardpb.Entry) bool {
	return state.Principal(a) == e.Author || orchestrates(a) ||
		state.HasRole(a, boardpb.Role_ROLE_SUPERVISOR) || state.HasRole(a, boardpb.Role_ROLE_OPERATOR)
}
