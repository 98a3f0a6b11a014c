//go:build !faults

package planted

import "time"

// On tells that this build can have planted bugs.
const On = false

// Bug tells whether the process has this planted bug.
func Bug(string) bool { return false }

// Point is a place where a process may be made to die or to sleep.
func Point(string) {}

// Error is the error that a disk is made to answer here: EIO, io.ErrShortWrite, or nil.
func Error(string) error { return nil }

// Wall and Mono are a node's clocks with the fault that is set: here as they are.
func Wall(real func() time.Time) func() time.Time         { return real }
func Mono(real func() time.Duration) func() time.Duration { return real }

// WallMs is this machine's wall clock for a bug that reads it where no clock may be read.
func WallMs() int64 { return 0 }

// Jumbled is a list in the order in which a map would give it.
func Jumbled[T any](list []T) []T { return list }

// Note and Noted keep a value beside a thing of the product, for a bug that needs a memory.
func Note(any, any) {}
func Noted(any) any { return nil }
