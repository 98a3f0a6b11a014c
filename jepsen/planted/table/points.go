package table

// Point is a place where FAULT may strike.
type Point struct {
	Name string `json:"name"`
	What string `json:"what"`
	// Asks is what the place does with an error (eio, short, hit); "" can only die or sleep.
	Asks string `json:"asks,omitempty"`
}

// Points lists all of them, in the order of a write's way.
func Points() []Point {
	return []Point{
		{Name: "propose-before", What: "an entry is about to be handed to raft, after this node saw that it leads"},
		{Name: "log-before", What: "entries are about to be stored in the log"},
		{Name: "log-write", What: "entries are stored in the log", Asks: "the write fails; with short, half of the entries are stored"},
		{Name: "log-after", What: "entries are stored, and nobody was told"},
		{Name: "vote-before", What: "a vote is about to be stored"},
		{Name: "vote-between", What: "with M24: the term of a vote is stored, and its candidate is not"},
		{Name: "vote-after", What: "a vote is stored, and not given"},
		{Name: "stable-write", What: "a term or a vote is stored", Asks: "the write fails"},
		{Name: "apply-before", What: "an entry is about to be applied"},
		{Name: "apply-after", What: "an entry is applied, and not yet to be seen"},
		{Name: "dedupe-insert", What: "an answer is about to be remembered for its repetition"},
		{Name: "state-alter", What: "the state of this node, about to apply an entry", Asks: "the state is altered behind the digest's back"},
		{Name: "snapshot-write", What: "a snapshot is about to be written"},
		{Name: "snapshot-data", What: "a piece of a snapshot is written", Asks: "the write fails; with short, half of it is written"},
		{Name: "snapshot-rename-before", What: "a snapshot is written, and not yet under its name"},
		{Name: "snapshot-rename-after", What: "a snapshot has its name, and the log is not cut"},
		{Name: "feed-subscribe", What: "a watcher has read the history, and not subscribed"},
		{Name: "feed-send", What: "a message of a feed is about to be sent"},
		{Name: "answer-send", What: "the answer to a call is about to be sent"},
		{Name: "forward-answer", What: "the answer to a command that another node passed on is about to be sent"},
	}
}
