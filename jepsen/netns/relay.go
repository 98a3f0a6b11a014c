package netns

// relay lets connections between nodes pass through the harness.
type relay struct{}

func (r *relay) close() error { return nil }
