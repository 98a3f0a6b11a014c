package board

import (
	boardpb "raftboard/fsm/pb"
	"raftboard/fsm/state"
	"raftboard/jepsen/planted"
)

// write is a set or an append on its way through the checks of SPEC F-20.
type write struct {
	key        string
	value      []byte
	append     bool
	ifVersion  uint64
	overwrite  bool
	generation uint64
	source     string
	forClaim   *boardpb.LeaseRef
	fence      *boardpb.LeaseRef
	cites      []string
	summary    string
	unique     bool // an item that is there already is not added again, where the namespace says so
	always     bool // the result of a finished item: may use the reserve above the cap
}

// Set stores one value at a version the caller knows (SPEC KV-3). Under a leased
// namespace the first version posts the item (LS-13), every later one is fenced (LS-6).
func Set(x *state.Txn, o *boardpb.Set) *boardpb.Result {
	return put(x, write{key: o.Key, value: o.Value, ifVersion: o.IfVersion, overwrite: o.Overwrite,
		generation: o.Generation, source: o.Source, forClaim: o.ForClaim, fence: o.Fence, cites: o.Cites, summary: o.Summary})
}

// Append adds one item to a key. It never conflicts (SPEC KV-6).
func Append(x *state.Txn, o *boardpb.Append) *boardpb.Result {
	return put(x, write{key: o.Key, value: o.Value, append: true, unique: o.Unique,
		generation: o.Generation, source: o.Source, forClaim: o.ForClaim, fence: o.Fence, cites: o.Cites, summary: o.Summary})
}

func put(x *state.Txn, w write) *boardpb.Result {
	space, r := spaceOf(x, w.key)
	if r != nil {
		return r
	}
	if r := modeAllows(x, space, w); r != nil {
		return r
	}
	lease, posts, r := writerAllowed(x, space, w)
	if r != nil {
		return r
	}
	if r := firstBad(otherFence(x, w.fence), checkPartial(x, w.forClaim)); r != nil {
		return r
	}
	if !w.append {
		if r := checkVersion(x, w.key, w.ifVersion, w.overwrite); r != nil {
			return r
		}
	}
	return store(x, space, w, lease, posts)
}

// modeAllows is the table of SPEC §2.2.
func modeAllows(x *state.Txn, space *state.Space, w write) *boardpb.Result {
	switch space.Mode {
	case boardpb.Mode_MODE_APPEND:
		if !w.append {
			return wrongMode(space, w.key)
		}
	case boardpb.Mode_MODE_SINGLE, boardpb.Mode_MODE_ONCE:
		if w.append {
			return wrongMode(space, w.key)
		}
	case boardpb.Mode_MODE_SHARED:
		if w.append {
			return wrongMode(space, w.key)
		}
		if w.overwrite {
			return bad("if_version", "a write to %s names the version it read", space.Pattern)
		}
	}
	if space.Mode != boardpb.Mode_MODE_LEASED && w.generation > 0 {
		return noGeneration(space)
	}
	if space.Mode == boardpb.Mode_MODE_ONCE && w.overwrite {
		return bad("if_version", "%s is written once", space.Pattern)
	}
	return nil
}

// noGeneration: a fence that guards nothing would be believed.
func noGeneration(space *state.Space) *boardpb.Result {
	r := bad("gen", "%s has no leases; to make the write depend on a lease of another key, use fence", space.Pattern)
	r.Namespace = space.Pattern.String()
	return r
}

// writerAllowed checks permission and the lease of the key itself. It answers the
// caller's live lease, and whether this write posts an item.
func writerAllowed(x *state.Txn, space *state.Space, w write) (lease *boardpb.Lease, posts bool, r *boardpb.Result) {
	actor := x.Command().Actor
	switch space.Mode {
	case boardpb.Mode_MODE_OWNED:
		return nil, false, ownerOnly(space, w.key, actor)
	case boardpb.Mode_MODE_SINGLE:
		return nil, false, writerOnly(space, w.key, actor)
	case boardpb.Mode_MODE_ONCE:
		if r := writerOnly(space, w.key, actor); r != nil {
			return nil, false, r
		}
		if e := x.Entry(w.key); e != nil && w.ifVersion != 0 {
			return nil, false, &boardpb.Result{Code: boardpb.Code_CODE_FORBIDDEN, Key: w.key, Field: fieldOnce}
		}
		return nil, false, nil
	case boardpb.Mode_MODE_LEASED:
		exists := live(x.Entry(w.key))
		heldNow := x.Lease(w.key).GetState() == held
		if !exists && !heldNow && w.generation == 0 {
			if space.Writer != "" {
				r = writerOnly(space, w.key, actor)
			}
			return nil, true, r
		}
		lease, r = fence(x, w.key, w.generation)
		return lease, !exists, r
	}
	return nil, false, nil
}

func live(e *boardpb.Entry) bool { return e != nil && !e.Deleted }

func ownerOnly(space *state.Space, key string, actor *boardpb.Actor) *boardpb.Result {
	if owner := space.Owner(key); owner != state.Principal(actor) {
		return &boardpb.Result{Code: boardpb.Code_CODE_FORBIDDEN, Key: key, Field: fieldOwner, Holder: owner}
	}
	return nil
}

func writerOnly(space *state.Space, key string, actor *boardpb.Actor) *boardpb.Result {
	if !state.MayWrite(space.Writer, actor) {
		return &boardpb.Result{Code: boardpb.Code_CODE_FORBIDDEN, Key: key, Field: fieldWriter, Holder: space.Writer}
	}
	return nil
}

// checkVersion is compare-and-set. No version named means that the key must not exist
// now; a deleted key may be named by its last version (SPEC KV-3).
func checkVersion(x *state.Txn, key string, ifVersion uint64, overwrite bool) *boardpb.Result {
	cur := x.Entry(key)
	if overwrite || planted.Bug("M32") || ifVersion == 0 && !live(cur) || cur != nil && cur.Version == ifVersion {
		return nil
	}
	r := &boardpb.Result{Outcome: boardpb.Outcome_OUTCOME_CONFLICT, Key: key, YourVersion: ifVersion}
	describe(r, cur)
	return r
}

// describe puts what is at a key now into an answer.
func describe(r *boardpb.Result, cur *boardpb.Entry) {
	if cur == nil {
		return
	}
	r.Version, r.Author, r.AuthorWallMs = cur.Version, cur.Author, cur.WallMs
	if cur.Deleted {
		r.Field = fieldDeleted
	} else {
		r.Value = cur.Value
	}
}

// store applies a write that passed every check but size.
func store(x *state.Txn, space *state.Space, w write, lease *boardpb.Lease, posts bool) *boardpb.Result {
	if r := firstBad(checkSize(x, space, w.key, w.value), checkLine(space, w)); r != nil {
		return r
	}
	cites, r := resolveCites(x, w.cites)
	if r != nil {
		return r
	}
	if w.unique && space.Unique {
		if same := x.SameItem(w.key, w.value); same != nil {
			return &boardpb.Result{Outcome: boardpb.Outcome_OUTCOME_OK, Key: w.key, Version: same.Version, DuplicateOf: refOf(w.key, same.Version)}
		}
	}
	cur := x.Entry(w.key)
	e := &boardpb.Entry{Key: w.key, Value: w.value, Summary: w.summary, Source: w.source, Generation: w.generation, ForClaim: w.forClaim, Cites: cites}
	need := state.EntryBytes(e) + uint64(len(state.Principal(x.Command().Actor)))
	if space.Mode == boardpb.Mode_MODE_LEASED && x.Lease(w.key) == nil {
		need += state.LeaseBytes
	}
	fits := x.MakeRoom(w.key, need) || w.always && x.LiveBytes()+need <= boardLimit(x)+boardLimit(x)/state.ResultsReserve
	// A full board takes a write that does not grow it: the version it replaces goes.
	replaces := !fits && !w.append && live(cur) && len(w.value) <= len(cur.Value) && len(w.source) <= len(cur.Source) &&
		len(w.summary) <= len(cur.Summary) && len(cites) <= len(cur.Cites)
	if !fits && !replaces {
		return fullBoard(x, w.key, need)
	}
	if w.forClaim != nil {
		e.Late = addPartial(x, w.forClaim, refOf(w.key, x.NextVersion(w.key)))
	}
	x.PutEntry(e, space.Mode == boardpb.Mode_MODE_APPEND)
	if replaces {
		x.KeepOnlyNewest(w.key)
	}
	if space.Mode == boardpb.Mode_MODE_LEASED {
		followPost(x, w.key, lease)
	}
	succeeded(x, w.key)
	kind, n := boardpb.Kind_KIND_SET, x.Counters()
	if w.append {
		kind = boardpb.Kind_KIND_APPEND
		n.Appends++
	} else {
		n.Sets++
	}
	if posts {
		kind = boardpb.Kind_KIND_POST
	}
	x.Emit(&boardpb.Event{Kind: kind, Surface: boardpb.Surface_SURFACE_KV, Key: w.key, Version: e.Version,
		PriorVersion: cur.GetVersion(), Generation: w.generation})
	return &boardpb.Result{Outcome: boardpb.Outcome_OUTCOME_OK, Key: w.key, Version: e.Version, Generation: w.generation, Late: e.Late}
}

// fullBoard refuses what does not fit under the board's cap.
func fullBoard(x *state.Txn, key string, need uint64) *boardpb.Result {
	return &boardpb.Result{Code: boardpb.Code_CODE_LIMIT_BOARD_BYTES, Key: key, Got: x.LiveBytes() + need, Limit: boardLimit(x)}
}

func boardLimit(x *state.Txn) uint64 {
	if limit := x.Settings().GetMaxBoardBytes(); limit > 0 {
		return limit
	}
	return state.DefaultBoardBytes
}

func checkSize(x *state.Txn, space *state.Space, key string, value []byte) *boardpb.Result {
	limit := space.MaxValueBytes
	if limit == 0 {
		limit = x.Settings().GetMaxValueBytes()
	}
	if limit == 0 {
		limit = state.DefaultValueBytes
	}
	if uint64(len(value)) > limit {
		return &boardpb.Result{Code: boardpb.Code_CODE_TOO_LARGE, Key: key, Got: uint64(len(value)), Limit: limit}
	}
	return nil
}

// checkLine keeps a namespace of lines readable as such (SPEC BB-9).
func checkLine(space *state.Space, w write) *boardpb.Result {
	if space.OneLine && breaksLine(w.value) {
		return &boardpb.Result{Code: boardpb.Code_CODE_BAD_REQUEST, Key: w.key, Field: fieldLine}
	}
	return nil
}

// followPost keeps the lease record of a key in step with its entry: the first version
// posts the item and puts it in the queue, and an accepted write of the holder renews.
func followPost(x *state.Txn, key string, lease *boardpb.Lease) {
	posted := live(x.Entry(key))
	switch l := x.Lease(key); {
	case lease != nil:
		next := state.CloneLease(renew(x, x.Lease(key), nil))
		if next.Posted != posted {
			next.Posted, next.Rev = posted, x.Rev()
		}
		x.PutLease(next)
	case l == nil:
		x.PutLease(&boardpb.Lease{Key: key, State: free, Generation: x.FirstGeneration(key), Posted: posted, Rev: x.Rev()})
	case l.Posted != posted:
		next := state.CloneLease(l)
		next.Posted, next.Rev = posted, x.Rev()
		if !posted {
			// The item is gone, and with it what became of it; the generation stays.
			next.State, next.FreeTMs, next.Owner, next.Loop, next.ResultRef = free, 0, "", "", ""
			next.Attempts = 0
			if planted.Bug("M31") {
				next.Generation = 0
			}
		}
		x.PutLease(next)
	}
}

// Delete leaves a tombstone; versions go on from it.
func Delete(x *state.Txn, o *boardpb.Delete) *boardpb.Result {
	space, r := spaceOf(x, o.Key)
	if r != nil {
		return r
	}
	if space.Mode != boardpb.Mode_MODE_LEASED && o.Generation > 0 {
		return noGeneration(space)
	}
	lease, r := mayDelete(x, space, o)
	if r != nil {
		return r
	}
	cur := x.Entry(o.Key)
	switch {
	case o.IfVersion > 0 && cur.GetVersion() != o.IfVersion:
		r := &boardpb.Result{Outcome: boardpb.Outcome_OUTCOME_CONFLICT, Key: o.Key, YourVersion: o.IfVersion}
		describe(r, cur)
		return r
	case !live(cur):
		return &boardpb.Result{Code: boardpb.Code_CODE_NOT_FOUND, Key: o.Key, Version: cur.GetVersion()}
	}
	e := &boardpb.Entry{Key: o.Key, Deleted: true, Generation: o.Generation}
	x.PutEntry(e, false)
	if space.Mode == boardpb.Mode_MODE_APPEND {
		x.KeepOnlyNewest(o.Key) // its items have no other end
	}
	if space.Mode == boardpb.Mode_MODE_LEASED {
		followPost(x, o.Key, lease)
	}
	succeeded(x, o.Key)
	x.Counters().Deletes++
	x.Emit(&boardpb.Event{Kind: boardpb.Kind_KIND_DELETE, Surface: boardpb.Surface_SURFACE_KV, Key: o.Key,
		Version: e.Version, PriorVersion: cur.Version, Generation: o.Generation})
	return &boardpb.Result{Outcome: boardpb.Outcome_OUTCOME_OK, Key: o.Key, Version: e.Version}
}

func mayDelete(x *state.Txn, space *state.Space, o *boardpb.Delete) (*boardpb.Lease, *boardpb.Result) {
	actor := x.Command().Actor
	switch space.Mode {
	case boardpb.Mode_MODE_APPEND, boardpb.Mode_MODE_ONCE:
		if !state.HasRole(actor, boardpb.Role_ROLE_OPERATOR) {
			return nil, &boardpb.Result{Code: boardpb.Code_CODE_FORBIDDEN, Key: o.Key, Field: "operator"}
		}
	case boardpb.Mode_MODE_OWNED:
		return nil, ownerOnly(space, o.Key, actor)
	case boardpb.Mode_MODE_SINGLE:
		return nil, writerOnly(space, o.Key, actor)
	case boardpb.Mode_MODE_SHARED:
		if o.IfVersion == 0 {
			return nil, bad("if_version", "a delete in %s names the version it read", space.Pattern)
		}
	case boardpb.Mode_MODE_LEASED:
		if o.Generation > 0 || !orchestrates(actor) {
			return fence(x, o.Key, o.Generation)
		}
		if l := x.Lease(o.Key); l.GetState() == held {
			return nil, heldBy(x, l)
		}
	}
	return nil, nil
}
