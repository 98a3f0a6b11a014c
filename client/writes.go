package client

import (
	"context"

	boardpb "raftboard/fsm/pb"
)

// writes are the operations that a Board and a Loop share; they differ only in the
// identity under which a command is sent. All of them block until there is a Result or
// ctx ends. An outcome other than ok (a conflict, say) is a Result and no error.
type writes struct {
	c    *Client
	send func(context.Context, *boardpb.Command) (*boardpb.Result, error)
}

// SetOptions of a set. The zero value means: the key must not exist now.
type SetOptions struct {
	IfVersion  uint64 // the version the caller read
	Overwrite  bool   // whatever is there
	Generation uint64 // of the caller's lease, on leased keys; Lease.Set fills it in
	Source     string
	ForClaim   *boardpb.LeaseRef // partial work under this claim; see Lease.For
	Fence      *boardpb.LeaseRef // only while this lease of the caller lives
	Cites      []string          // what it rests on: refs, at most 64; one without a version is the current one
	Summary    string            // what it says, on one line of at most 200 characters
}

// AppendOptions of an append.
type AppendOptions struct {
	Generation uint64
	Source     string
	ForClaim   *boardpb.LeaseRef
	Fence      *boardpb.LeaseRef
	Cites      []string
	Summary    string
	Unique     bool // where the namespace is unique: an item that is there already is not added again, Result.DuplicateOf names it
}

// DeleteOptions of a delete.
type DeleteOptions struct {
	IfVersion  uint64 // mandatory in shared namespaces
	Generation uint64
}

// Set stores a JSON value. If the key is not at the version named, the outcome is a
// conflict that carries the current version, author and value.
func (w writes) Set(ctx context.Context, key string, value []byte, opts SetOptions) (*boardpb.Result, error) {
	op := &boardpb.Set{
		Key: key, Value: value, IfVersion: opts.IfVersion, Overwrite: opts.Overwrite, Generation: opts.Generation,
		Source: opts.Source, ForClaim: opts.ForClaim, Fence: opts.Fence, Cites: opts.Cites, Summary: opts.Summary,
	}
	return w.send(ctx, &boardpb.Command{Op: &boardpb.Command_Set{Set: op}})
}

// Post puts an item into a leased namespace: its first version, for which no lease is
// needed. An item that is there already is a conflict.
func (w writes) Post(ctx context.Context, key string, value []byte) (*boardpb.Result, error) {
	return w.Set(ctx, key, value, SetOptions{})
}

// Append adds an item to an append key; it never conflicts.
func (w writes) Append(ctx context.Context, key string, value []byte, opts AppendOptions) (*boardpb.Result, error) {
	op := &boardpb.Append{
		Key: key, Value: value, Generation: opts.Generation, Source: opts.Source, ForClaim: opts.ForClaim, Fence: opts.Fence,
		Cites: opts.Cites, Summary: opts.Summary, Unique: opts.Unique,
	}
	return w.send(ctx, &boardpb.Command{Op: &boardpb.Command_Append{Append: op}})
}

// Delete leaves a tombstone; the version goes on rising.
func (w writes) Delete(ctx context.Context, key string, opts DeleteOptions) (*boardpb.Result, error) {
	op := &boardpb.Delete{Key: key, IfVersion: opts.IfVersion, Generation: opts.Generation}
	return w.send(ctx, &boardpb.Command{Op: &boardpb.Command_Delete{Delete: op}})
}

// Invalidate marks a version of a key as wrong; a ref without a version is the current one.
// It stays readable, views hide it, and what cites it, directly or through others, is shown
// with the mark. Its author, an orchestrator, a supervisor or an operator may; others get
// ErrForbidden. A repeat changes nothing. Reason has at most 512 bytes.
func (w writes) Invalidate(ctx context.Context, ref, reason string) (*boardpb.Result, error) {
	op := &boardpb.Invalidate{Ref: ref, Reason: reason}
	return w.send(ctx, &boardpb.Command{Op: &boardpb.Command_Invalidate{Invalidate: op}})
}

// Reopen makes a done item claimable again (orchestrator, operator).
func (w writes) Reopen(ctx context.Context, key string) (*boardpb.Result, error) {
	return w.send(ctx, &boardpb.Command{Op: &boardpb.Command_Reopen{Reopen: &boardpb.Reopen{Key: key}}})
}

// Unpark makes a parked item claimable again, with all its attempts (orchestrator,
// supervisor, operator).
func (w writes) Unpark(ctx context.Context, key string) (*boardpb.Result, error) {
	return w.send(ctx, &boardpb.Command{Op: &boardpb.Command_Unpark{Unpark: &boardpb.Unpark{Key: key}}})
}

// ForceRelease fences the holder of a key off and frees it (operator).
func (w writes) ForceRelease(ctx context.Context, key, reason string) (*boardpb.Result, error) {
	op := &boardpb.ForceRelease{Key: key, Reason: reason}
	return w.send(ctx, &boardpb.Command{Op: &boardpb.Command_ForceRelease{ForceRelease: op}})
}

// ReportConflict records that the caller gave up on a key after so many attempts, for
// the orchestrator; Mutate does it by itself.
func (w writes) ReportConflict(ctx context.Context, key string, version uint64, attempts uint32) (*boardpb.Result, error) {
	op := &boardpb.ReportConflict{Key: key, Version: version, Attempts: attempts}
	return w.send(ctx, &boardpb.Command{Op: &boardpb.Command_ReportConflict{ReportConflict: op}})
}

// Do sends a command made by hand under this handle's identity: board, loop, seq, floor,
// key and call_id are filled in. What a loop is granted this way is kept alive like any
// other grant; Loop.Held finds its Lease.
func (w writes) Do(ctx context.Context, cmd *boardpb.Command) (*boardpb.Result, error) {
	return w.send(ctx, cmd)
}
