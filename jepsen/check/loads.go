package check

// lists is what every load that appends is judged by.
func (e *evidence) lists() []Finding {
	plot, found := Appends(e.History, e.order)
	e.appends = plot
	return found
}

// work is what every load that has workers in it is judged by.
func (e *evidence) work() []Finding {
	found := Work(e.History, e.order, e.windows)
	found = append(found, Outside(e.History, e.windows)...)
	found = append(found, Registers(e.decided, patience)...) // tallies, drafts, plans
	return append(found, Feed(e.History, e.order, e.windows)...)
}

// operations is W9.
func (e *evidence) operations() []Finding {
	return append(append(e.work(), e.lists()...), Operations(e.History, e.order)...)
}

// author is W11.
func (e *evidence) author() []Finding {
	return append(Authors(e.History, e.order), Feed(e.History, e.order, e.windows)...)
}

// soak is W10.
func (e *evidence) soak() []Finding {
	return append(append(e.work(), e.lists()...), Heard(e.Ops)...)
}
