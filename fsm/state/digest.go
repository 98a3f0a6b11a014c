package state

import (
	"crypto/sha256"
	"encoding/binary"

	boardpb "raftboard/fsm/pb"
)

// Sum is a 128-bit digest. Sums add up: the digest of a state is the sum of the digests
// of its records, so a change costs two hashes and not a walk.
type Sum [2]uint64

func (s Sum) plus(o Sum) Sum  { return Sum{s[0] + o[0], s[1] + o[1]} }
func (s Sum) minus(o Sum) Sum { return Sum{s[0] - o[0], s[1] - o[1]} }

// Bytes is the digest as it travels.
func (s Sum) Bytes() [16]byte {
	var b [16]byte
	binary.BigEndian.PutUint64(b[:8], s[0])
	binary.BigEndian.PutUint64(b[8:], s[1])
	return b
}

// encoder writes records in an encoding of our own. Protobuf's is not stable across
// builds, and two builds must agree on a digest. Every field is written, in the order
// of its number, integers as varints and texts with their length: the golden vectors
// in the tests pin it.
type encoder struct{ b []byte }

func (e *encoder) start(kind byte, board string) {
	e.b = append(e.b[:0], kind)
	e.str(board)
}

func (e *encoder) u64(v uint64)   { e.b = binary.AppendUvarint(e.b, v) }
func (e *encoder) i64(v int64)    { e.b = binary.AppendVarint(e.b, v) }
func (e *encoder) str(s string)   { e.u64(uint64(len(s))); e.b = append(e.b, s...) }
func (e *encoder) bytes(s []byte) { e.u64(uint64(len(s))); e.b = append(e.b, s...) }
func (e *encoder) strs(ss []string) {
	e.u64(uint64(len(ss)))
	for _, s := range ss {
		e.str(s)
	}
}

func (e *encoder) u64s(vs []uint64) {
	e.u64(uint64(len(vs)))
	for _, v := range vs {
		e.u64(v)
	}
}

func (e *encoder) flag(v bool) {
	if v {
		e.b = append(e.b, 1)
	} else {
		e.b = append(e.b, 0)
	}
}

func (e *encoder) ref(r *boardpb.LeaseRef) {
	e.flag(r != nil)
	e.str(r.GetKey())
	e.u64(r.GetGeneration())
}

func (e *encoder) sum() Sum {
	h := sha256.Sum256(e.b)
	return Sum{binary.BigEndian.Uint64(h[:8]), binary.BigEndian.Uint64(h[8:16])}
}

// BodyHash is the identity of a command's body: operation and board, nothing of its
// envelope. It decides whether a repeat under one identity is the same request.
func (s *State) BodyHash(c *boardpb.Command) [16]byte {
	e := &s.enc
	e.start('B', c.Board)
	m := c.ProtoReflect()
	op := m.WhichOneof(m.Descriptor().Oneofs().ByName("op"))
	e.u64(uint64(op.Number()))
	e.fields(m.Get(op).Message(), nil)
	return e.sum().Bytes()
}

func (e *encoder) entry(board string, v *boardpb.Entry) Sum {
	e.start('E', board)
	e.str(v.Key)
	e.u64(v.Version)
	e.bytes(v.Value)
	e.flag(v.Deleted)
	e.str(v.Author)
	e.str(v.ActingFor)
	e.str(v.Loop)
	e.i64(v.TMs)
	e.i64(v.WallMs)
	e.u64(v.Rev)
	e.str(v.Source)
	e.u64(v.Generation)
	e.flag(v.Late)
	e.ref(v.ForClaim)
	e.strs(v.Cites)
	e.str(v.Summary)
	e.flag(v.First)
	return e.sum()
}

func (e *encoder) lease(board string, v *boardpb.Lease) Sum {
	e.start('L', board)
	e.str(v.Key)
	e.u64(uint64(v.State))
	e.u64(v.Generation)
	e.str(v.Owner)
	e.str(v.Loop)
	e.i64(v.AcquiredTMs)
	e.i64(v.AcquiredWallMs)
	e.i64(v.HeartbeatTMs)
	e.i64(v.ExpiresTMs)
	e.i64(v.DurationMs)
	e.u64(v.GrantSeq)
	e.flag(v.LetGo)
	e.u64(uint64(v.Attempts))
	e.i64(v.FreeTMs)
	e.u64(uint64(v.EndedBy))
	e.str(v.Reason)
	e.str(v.ResultRef)
	e.flag(v.Posted)
	e.u64(v.QueuePos)
	e.u64(uint64(len(v.Previous)))
	for _, p := range v.Previous {
		e.str(p.Owner)
		e.str(p.Loop)
		e.u64(p.Generation)
		e.u64(uint64(p.EndedBy))
		e.str(p.Reason)
		e.strs(p.PartialRefs)
		e.i64(p.EndedTMs)
		e.i64(p.EndedWallMs)
	}
	e.strs(v.PartialRefs)
	e.i64(v.EndedTMs)
	e.i64(v.EndedWallMs)
	e.u64(v.Rev)
	e.flag(v.First)
	return e.sum()
}

func (e *encoder) loop(board string, v *boardpb.Loop) Sum {
	e.start('O', board)
	e.str(v.Id)
	e.str(v.Principal)
	e.str(v.Nonce)
	e.str(v.Parent)
	e.str(v.Label)
	e.i64(v.TtlMs)
	e.i64(v.OpenedTMs)
	e.i64(v.OpenedWallMs)
	e.i64(v.LastTMs)
	e.i64(v.CheckTMs)
	e.i64(v.RenewedTMs)
	e.u64(v.RenewedFloor)
	e.u64(v.Floor)
	e.u64(uint64(v.State))
	e.i64(v.EndedTMs)
	e.i64(v.EndedWallMs)
	e.str(v.EndedWhy)
	e.u64(uint64(v.Holds))
	e.u64(uint64(len(v.Untold)))
	for _, u := range v.Untold {
		e.str(u.Key)
		e.u64(u.Generation)
		e.u64(uint64(u.Cause))
		e.i64(u.TMs)
		e.i64(u.WallMs)
		e.u64(u.ToldSeq)
	}
	return e.sum()
}

func (e *encoder) kept(board string, v *boardpb.Kept) Sum {
	e.start('K', board)
	e.str(v.Id)
	e.bytes(v.BodyHash)
	e.u64(uint64(v.Outcome))
	e.u64(uint64(v.Code))
	e.u64(v.Rev)
	e.str(v.Key)
	e.u64(v.Version)
	e.u64(v.Generation)
	e.u64s(v.Numbers)
	e.str(v.Who)
	e.u64(v.Number)
	e.i64(v.ExpiresTMs)
	e.u64(uint64(v.Flags))
	e.i64(v.KeptTMs)
	e.str(v.Field)
	e.u64(v.Got)
	e.u64(uint64(v.Failed))
	return e.sum()
}

func (e *encoder) event(board string, v *boardpb.Event) Sum {
	e.start('V', board)
	e.u64(v.Rev)
	e.u64(uint64(v.Sub))
	e.i64(v.TMs)
	e.i64(v.WallMs)
	e.u64(uint64(v.Kind))
	e.str(v.Author)
	e.str(v.ActingFor)
	e.str(v.Loop)
	e.u64(v.Seq)
	e.str(v.IdempotencyKey)
	e.u64(uint64(v.Surface))
	e.str(v.Key)
	e.u64(v.Version)
	e.u64(v.PriorVersion)
	e.u64(v.Generation)
	e.str(v.Reason)
	e.str(v.CallId)
	e.str(v.Label)
	e.str(v.To)
	e.str(v.Holder)
	e.u64(v.PriorGeneration)
	e.u64(uint64(v.Cause))
	e.u64(v.OldestRev)
	e.u64(uint64(v.Code))
	return e.sum()
}

func (e *encoder) conflict(board string, v *boardpb.ConflictCount) Sum {
	e.start('C', board)
	e.str(v.Key)
	e.u64(uint64(len(v.By)))
	for _, b := range v.By {
		e.str(b.Principal)
		e.u64(uint64(b.Count))
		e.u64(b.Rev)
	}
	return e.sum()
}

func (e *encoder) invalidation(board string, v *boardpb.Invalidation) Sum {
	e.start('I', board)
	e.str(v.Ref)
	e.str(v.Reason)
	e.str(v.Author)
	e.str(v.ActingFor)
	e.str(v.Loop)
	e.i64(v.TMs)
	e.i64(v.WallMs)
	e.u64(v.Rev)
	return e.sum()
}

func (e *encoder) readers(board string, v *boardpb.Readers) Sum {
	e.start('A', board)
	e.str(v.Ref)
	e.u64(uint64(len(v.Readers)))
	for _, r := range v.Readers {
		e.str(r.Principal)
		e.str(r.Loop)
		e.u64(r.HighestVersion)
		e.u64(r.Count)
		e.u64(r.LowestVersion)
		e.i64(r.TMs)
		e.i64(r.WallMs)
		e.u64(r.Rev)
	}
	e.u64(v.Forgotten)
	return e.sum()
}

func (e *encoder) readPair(board string, v *boardpb.ReadPair) Sum {
	e.start('Q', board)
	e.str(v.Reader)
	e.str(v.Author)
	e.u64(v.Count)
	return e.sum()
}

func (e *encoder) noteRate(board string, v *boardpb.NoteRate) Sum {
	e.start('N', board)
	e.str(v.Principal)
	e.u64(uint64(v.Count))
	return e.sum()
}

func (e *encoder) usage(board string, v *boardpb.Usage) Sum {
	e.start('U', board)
	e.str(v.Pattern)
	e.u64s([]uint64{v.Conflicts, v.Reclaims, v.Expiries, v.Heard, v.FenceRejections})
	e.u64s(v.Work)
	return e.sum()
}

func (e *encoder) floor(board string, v *boardpb.Floor) Sum {
	e.start('F', board)
	e.str(v.Key)
	e.u64(v.Version)
	e.u64(v.Generation)
	return e.sum()
}

func sumOf(b []byte) Sum {
	return Sum{binary.BigEndian.Uint64(b[:8]), binary.BigEndian.Uint64(b[8:16])}
}
