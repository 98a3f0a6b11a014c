package view

// Wall is how a view shows a time.
func Wall(ms int64) string { return wall(ms) }
