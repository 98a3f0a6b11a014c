package fsm

// wake tells everybody who waits for a publication by closing the channel they hold, and
// leaves a new one for the next. Nothing is stored here: events are replicated state,
// and a reader takes them from the View.
func (f *FSM) wake() {
	next := make(chan struct{})
	old := f.changed.Swap(&next)
	close(*old)
}
