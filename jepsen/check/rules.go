package check

// Rule is what a code demands, in one line, for who meets it in a finding.
type Rule struct {
	Code  string `json:"code"`
	Wants string `json:"wants"`
}

// Rules lists all codes. The letter is a subject: G the nodes and the run as a whole, D digests,
// R registers and single answers, S repeats, A appended lists, T transactions, L leases, Q
// queued work, F feeds, H reads that are stale or fresh, B members, I authors.
func Rules() []Rule {
	return []Rule{
		{"G1", "all nodes apply the same commands, to the same results and states"},
		{"G2", "terms never fall, have one leader each, and no life of a node skips or repeats an entry"},
		{"G3", "what was acknowledged was applied, once"},
		{"G4", "at the end all nodes have one last entry and one state, and show it to every reader"},
		{"G5", "no node panics, leaks or ends without a fault that explains it"},
		{"G6", "calls succeed while a majority is connected, and soon after the heal"},
		{"G7", "the run proves something: every fault has a witness, enough was done, needed states were met, all was recorded"},
		{"D1", "a node whose state differs stops, and says so"},
		{"R1", "every key is linearizable, value and version together; text is read back byte for byte"},
		{"R2", "an answer names the rev, version, generation and value that were applied"},
		{"R3", "what was answered as not done had no effect"},
		{"R4", "one write is tried four times at most, and the fourth conflict is reported"},
		{"S1", "one identity takes effect once"},
		{"S2", "every repeat of a command gets the first answer"},
		{"S3", "a counter holds what was acknowledged, and no more than was asked for"},
		{"S5", "a command of a loop that ended or never was is refused"},
		{"S6", "a seq below the floor of its loop, and only such a one, is refused as expired"},
		{"A1", "an acknowledged element is in every read that began later"},
		{"A2", "an element is in a list once"},
		{"A3", "a list holds nothing that was refused or that nobody sent"},
		{"A4", "of two reads of a list one begins with the other, and acknowledged elements keep their order"},
		{"A5", "the elements of one loop are in the order in which it sent them"},
		{"A6", "at the end every node shows the list as it was applied"},
		{"T1", "a transaction is done as a whole or not at all"},
		{"T2", "one order of all transactions, in real time, explains every read"},
		{"L1", "the generations of a key rise for ever"},
		{"L2", "only the live generation writes, and nothing goes back to an older one"},
		{"L3", "no grant while another's lease lasts, and an expiry is told exactly when it happened"},
		{"L4", "board time never falls"},
		{"L5", "no lease ends before its time, counted from its last renewal"},
		{"L6", "a lease that nobody renews ends"},
		{"L7", "a live holder is not refused, and only a live holder is told ok"},
		{"L8", "two believe to hold a key only where one was paused or not told"},
		{"L9", "who renews loses nothing by an election"},
		{"Q1", "an item is completed once, and what was acknowledged stands"},
		{"Q2", "only the live generation completes an item, and nothing outside takes an older one than it has seen"},
		{"Q3", "no posted item and no partial work is lost, and the next claimant is told of it"},
		{"Q4", "an item has one result, and all readers agree on it"},
		{"Q5", "a completion that came too late stores nothing"},
		{"Q6", "all items are done within a bound after the heal"},
		{"Q7", "an item is parked after its last attempt, told once, and granted again only when it was unparked"},
		{"F1", "a feed is in order"},
		{"F2", "a feed tells nothing twice"},
		{"F3", "a feed has no gap"},
		{"F4", "a feed begins where it was asked to"},
		{"F5", "bookmarks are true and never fall"},
		{"F6", "the events of one rev come together"},
		{"F7", "a feed tells nothing that was not applied"},
		{"F8", "a start above the head is refused, and no other"},
		{"F9", "what was compacted is said, with the oldest rev that is left"},
		{"F10", "a feed tells everything in time"},
		{"F11", "who is cut off hears why and where to go on"},
		{"F12", "the same rev is told the same by all nodes, also in a snapshot"},
		{"H1", "a default read shows what was acknowledged or shown before it began"},
		{"H2", "a read shows what its rev held, revs of one client never fall, and at_least is kept"},
		{"H3", "without a majority the answer is unavailable, within a bound"},
		{"B1", "what was acknowledged is there on members that joined, too"},
		{"B2", "a removed node disturbs nobody's term"},
		{"B3", "a node that was added soon has what the others had"},
		{"B4", "a dropped id is never taken in again, and a lost disk means another id"},
		{"I1", "the name on what was done is the one its caller stated"},
		{"I2", "what claims to be another's, or is malformed, does nothing"},
		{"V1", "text of others reaches a reader only between the tags of its fence, each line with its author"},
		{"V2", "no text ends its fence, imitates another, or steers whoever looks at it"},
		{"V3", "what is shown stays within its budget"},
		{"V4", "what is not shown is counted"},
	}
}

// RuleOf is what a code demands; "" for one that is none.
func RuleOf(code string) string {
	for _, r := range Rules() {
		if r.Code == code {
			return r.Wants
		}
	}
	return ""
}
