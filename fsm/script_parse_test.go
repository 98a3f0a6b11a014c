package fsm

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"raftboard/fsm/board"
	boardpb "raftboard/fsm/pb"
	"raftboard/fsm/state"
)

// A script line is a clock, an actor, a verb, its arguments, and options as name=value:
//
//	@12s  w1/a  set claims/x {"n": 2} gen=1 if=3
//
// Values are JSON as it is, `raw text` between backquotes, or q"..." with Go's escapes.
// An actor with a loop ("w1/a") sends the loop's next seq; seq=, floor= and key= say
// otherwise, seq=none sends none. The operations are documented by the scripts.

// tokens splits a line. A token ends at white space outside quotes and brackets.
func tokens(line string) ([]string, error) {
	var out []string
	for {
		line = strings.TrimLeft(line, " \t")
		if line == "" || line[0] == '#' && (len(line) == 1 || line[1] == ' ') {
			return out, nil
		}
		n, err := tokenEnd(line)
		if err != nil {
			return nil, err
		}
		out = append(out, line[:n])
		line = line[n:]
	}
}

func tokenEnd(s string) (int, error) {
	depth := 0
	for i := 0; i < len(s); i++ {
		switch s[i] {
		case ' ', '\t':
			if depth == 0 {
				return i, nil
			}
		case '{', '[':
			depth++
		case '}', ']':
			depth--
		case '`':
			end := strings.IndexByte(s[i+1:], '`')
			if end < 0 {
				return 0, fmt.Errorf("no closing backquote in %q", s)
			}
			i += end + 1
		case '"':
			for i++; i < len(s) && s[i] != '"'; i++ {
				if s[i] == '\\' {
					i++
				}
			}
			if i >= len(s) {
				return 0, fmt.Errorf("no closing quote in %q", s)
			}
		}
	}
	return len(s), nil
}

// literal is what a token stands for.
func literal(tok string) (string, error) {
	switch {
	case len(tok) > 1 && tok[0] == '`' && tok[len(tok)-1] == '`':
		return tok[1 : len(tok)-1], nil
	case strings.HasPrefix(tok, `q"`):
		return strconv.Unquote(tok[1:])
	}
	return tok, nil
}

// call is a parsed line: words in order, options by name. Whatever is not taken is an error.
type call struct {
	words []string
	opts  map[string]string
	parts [][]string // of a txn: the tokens between its semicolons
	bad   error
}

func newCall(toks []string) *call {
	c := &call{opts: map[string]string{}}
	if len(toks) > 0 && toks[0] == "txn" {
		toks = c.split(toks)
	}
	for _, tok := range toks {
		name, value, isOpt := strings.Cut(tok, "=")
		if !isOpt || strings.Trim(name, "abcdefghijklmnopqrstuvwxyz_") != "" || name == "" {
			value, name = tok, ""
		}
		text, err := literal(value)
		if err != nil {
			c.bad = err
		}
		if name == "" {
			c.words = append(c.words, text)
		} else {
			c.opts[name] = text
		}
	}
	return c
}

// split sets the parts of a txn aside and returns its verb and envelope.
func (c *call) split(toks []string) (rest []string) {
	c.parts = [][]string{nil}
	rest = toks[:1:1]
	for _, tok := range toks[1:] {
		switch name, _, isOpt := strings.Cut(tok, "="); {
		case isOpt && envelopeOption(name):
			rest = append(rest, tok)
		case tok == ";":
			c.parts = append(c.parts, nil)
		default:
			n := len(c.parts) - 1
			c.parts[n] = append(c.parts[n], tok)
		}
	}
	return rest
}

func (c *call) fail(format string, args ...any) {
	if c.bad == nil {
		c.bad = fmt.Errorf(format, args...)
	}
}

// word takes the next word; it must be there.
func (c *call) word(what string) string {
	if len(c.words) == 0 {
		c.fail("no %s", what)
		return ""
	}
	w := c.words[0]
	c.words = c.words[1:]
	return w
}

func (c *call) maybe() string {
	if len(c.words) == 0 {
		return ""
	}
	return c.word("")
}

func (c *call) flag(name string) bool {
	for i, w := range c.words {
		if w == name {
			c.words = append(c.words[:i:i], c.words[i+1:]...)
			return true
		}
	}
	return false
}

func (c *call) opt(name string) string {
	v := c.opts[name]
	delete(c.opts, name)
	return v
}

// list is an option of several texts, joined by commas.
func (c *call) list(name string) []string {
	return strings.FieldsFunc(c.opt(name), func(r rune) bool { return r == ',' })
}

func (c *call) number(name string) uint64 {
	v := c.opt(name)
	if v == "" {
		return 0
	}
	return c.uint(v)
}

func (c *call) uint(v string) uint64 {
	n, err := strconv.ParseUint(v, 10, 64)
	if err != nil {
		c.fail("%q is no number", v)
	}
	return n
}

func (c *call) ms(v string) int64 {
	d, err := time.ParseDuration(v)
	if err != nil {
		c.fail("%v", err)
	}
	return d.Milliseconds()
}

func (c *call) duration(v string) *int64 {
	if v == "" {
		return nil
	}
	ms := c.ms(v)
	return &ms
}

// ref reads KEY:GENERATION.
func (c *call) ref(v string) *boardpb.LeaseRef {
	if v == "" {
		return nil
	}
	i := strings.LastIndexByte(v, ':')
	if i < 0 {
		c.fail("%q is no key:generation", v)
		return nil
	}
	return &boardpb.LeaseRef{Key: v[:i], Generation: c.uint(v[i+1:])}
}

func (c *call) done() error {
	switch {
	case c.bad != nil:
		return c.bad
	case len(c.words) > 0:
		return fmt.Errorf("not understood: %q", c.words)
	case len(c.opts) > 0:
		return fmt.Errorf("not understood: %q", c.opts)
	}
	return nil
}

// operation reads a verb and its arguments into the operation of a command.
func (s *script) operation(cmd *boardpb.Command, c *call) {
	verb := c.word("verb")
	switch verb {
	case "lead":
		cmd.Op = &boardpb.Command_Lead{Lead: &boardpb.Lead{NodeId: c.word("node"), Resumed: c.flag("resumed")}}
	case "tick":
		tick := &boardpb.Tick{CheckIndex: c.number("index")}
		if tick.CheckIndex > 0 {
			sum, _ := s.main.View().DigestAt(tick.CheckIndex)
			tick.CheckDigest = sum[:]
		}
		cmd.Op = &boardpb.Command_Tick{Tick: tick}
	case "level":
		cmd.Op = &boardpb.Command_Level{Level: &boardpb.Level{Level: uint32(c.uint(c.word("level")))}}
	case "node.put":
		n := &boardpb.Node{Id: c.word("id"), Name: c.opt("name"), RaftAddr: c.opt("raft"), GrpcAddr: c.opt("grpc"),
			Version: c.opt("version"), MaxLevel: uint32(c.number("level"))}
		cmd.Op = &boardpb.Command_NodePut{NodePut: &boardpb.NodePut{Node: n}}
	case "node.drop":
		cmd.Op = &boardpb.Command_NodeDrop{NodeDrop: &boardpb.NodeDrop{Id: c.word("id")}}
	case "cluster.set":
		cmd.Op = &boardpb.Command_ClusterSet{ClusterSet: &boardpb.ClusterSet{GraceMs: c.duration(c.opt("grace"))}}
	case "board.create":
		cmd.Op = &boardpb.Command_BoardCreate{BoardCreate: &boardpb.BoardCreate{Name: c.word("name"), Settings: settings(c)}}
	case "board.set":
		o := &boardpb.BoardSet{Name: c.word("name"), IfSettingsVersion: c.number("if"), Settings: settings(c)}
		cmd.Op = &boardpb.Command_BoardSet{BoardSet: o}
	case "board.compact":
		o := &boardpb.BoardCompact{Name: c.word("name"), BeforeRev: c.uint(c.word("rev"))}
		cmd.Op = &boardpb.Command_BoardCompact{BoardCompact: o}
	case "board.fork":
		o := &boardpb.BoardFork{From: c.word("from"), Name: c.word("name"), AtRev: c.number("at")}
		cmd.Op = &boardpb.Command_BoardFork{BoardFork: o}
	case "board.close":
		cmd.Op = &boardpb.Command_BoardClose{BoardClose: &boardpb.BoardClose{Name: c.word("name")}}
	case "board.delete":
		cmd.Op = &boardpb.Command_BoardDelete{BoardDelete: &boardpb.BoardDelete{Name: c.word("name")}}
	case "loop.open":
		o := &boardpb.LoopOpen{Nonce: c.maybe(), ParentLoop: s.loopID(c.opt("parent")), Label: c.opt("label")}
		if ttl := c.opt("ttl"); ttl != "" {
			o.TtlMs = c.ms(ttl)
		}
		cmd.Op = &boardpb.Command_LoopOpen{LoopOpen: o}
	case "keepalive":
		cmd.Op = &boardpb.Command_LoopKeepalive{LoopKeepalive: s.keepalive(c)}
	case "loop.close":
		cmd.Op = &boardpb.Command_LoopClose{LoopClose: &boardpb.LoopClose{Loop: s.loopID(c.maybe())}}
	case "txn":
		cmd.Op = &boardpb.Command_Txn{Txn: txn(c)}
	case "report_conflict":
		o := &boardpb.ReportConflict{Key: c.word("key"), Version: c.number("version"), Attempts: uint32(c.number("attempts"))}
		cmd.Op = &boardpb.Command_ReportConflict{ReportConflict: o}
	case "claim_next":
		o := &boardpb.ClaimNext{Pattern: c.word("pattern"), After: c.number("after"), DurationMs: c.duration(c.maybe())}
		cmd.Op = &boardpb.Command_ClaimNext{ClaimNext: o}
	case "heartbeat":
		o := &boardpb.Heartbeat{Key: c.word("key"), Generation: c.number("gen"), ExtendMs: c.duration(c.maybe())}
		cmd.Op = &boardpb.Command_Heartbeat{Heartbeat: o}
	case "invalidate":
		cmd.Op = &boardpb.Command_Invalidate{Invalidate: &boardpb.Invalidate{Ref: c.word("ref"), Reason: c.opt("reason")}}
	case "receipts":
		cmd.Op = &boardpb.Command_Receipts{Receipts: receipts(c)}
	case "reopen":
		cmd.Op = &boardpb.Command_Reopen{Reopen: &boardpb.Reopen{Key: c.word("key")}}
	case "unpark":
		cmd.Op = &boardpb.Command_Unpark{Unpark: &boardpb.Unpark{Key: c.word("key")}}
	case "force_release":
		cmd.Op = &boardpb.Command_ForceRelease{ForceRelease: &boardpb.ForceRelease{Key: c.word("key"), Reason: c.opt("reason")}}
	default:
		switch o := plain(verb, c).(type) {
		case *boardpb.Set:
			cmd.Op = &boardpb.Command_Set{Set: o}
		case *boardpb.Append:
			cmd.Op = &boardpb.Command_Append{Append: o}
		case *boardpb.Delete:
			cmd.Op = &boardpb.Command_Delete{Delete: o}
		case *boardpb.Claim:
			cmd.Op = &boardpb.Command_Claim{Claim: o}
		case *boardpb.Release:
			cmd.Op = &boardpb.Command_Release{Release: o}
		case *boardpb.Complete:
			cmd.Op = &boardpb.Command_Complete{Complete: o}
		case *boardpb.Fail:
			cmd.Op = &boardpb.Command_Fail{Fail: o}
		default:
			phaseOperation(cmd, verb, c)
		}
	}
}

// plain reads the operations that may also stand in a txn.
func plain(verb string, c *call) any {
	switch verb {
	case "set":
		o := &boardpb.Set{Key: c.word("key"), Value: []byte(c.word("value")), Generation: c.number("gen"), Source: c.opt("source"),
			ForClaim: c.ref(c.opt("for")), Fence: c.ref(c.opt("fence")), Cites: c.list("cites"), Summary: c.opt("summary")}
		if v := c.opt("if"); v == "*" {
			o.Overwrite = true
		} else if v != "" {
			o.IfVersion = c.uint(v)
		}
		return o
	case "append":
		return &boardpb.Append{Key: c.word("key"), Value: []byte(c.word("value")), Generation: c.number("gen"), Source: c.opt("source"),
			ForClaim: c.ref(c.opt("for")), Fence: c.ref(c.opt("fence")), Cites: c.list("cites"), Summary: c.opt("summary"), Unique: c.opt("unique") != ""}
	case "delete":
		return &boardpb.Delete{Key: c.word("key"), IfVersion: c.number("if"), Generation: c.number("gen")}
	case "claim":
		o := &boardpb.Claim{Takeover: c.flag("takeover"), Key: c.word("key")}
		if keys := strings.Split(o.Key, ","); len(keys) > 1 { // a trailing comma makes a list of one
			o.Key, o.Keys = "", slices.DeleteFunc(keys, func(key string) bool { return key == "" })
		}
		o.DurationMs = c.duration(c.maybe())
		return o
	case "release":
		return &boardpb.Release{Key: c.word("key"), Generation: c.number("gen")}
	case "complete":
		o := &boardpb.Complete{Key: c.word("key"), Generation: c.number("gen"), ResultsKey: c.opt("to"), Cites: c.list("cites")}
		if v, given := c.opts["result"]; given {
			o.Result = []byte(v)
			delete(c.opts, "result")
		}
		return o
	case "fail":
		o := &boardpb.Fail{Key: c.word("key"), Generation: c.number("gen"), Reason: c.opt("reason")}
		if v := c.opt("retry"); v != "" {
			o.RetryAfterMs = c.ms(v)
		}
		return o
	}
	return nil
}

// receipts reads READER REF LOWEST-HIGHEST COUNT AUTHOR, again and again, and dropped=N.
func receipts(c *call) *boardpb.Receipts {
	out := &boardpb.Receipts{Dropped: c.number("dropped")}
	for len(c.words) > 0 && c.bad == nil {
		one := &boardpb.Receipt{Principal: c.word("reader"), Ref: c.word("ref")}
		low, high, _ := strings.Cut(c.word("versions"), "-")
		one.LowestVersion, one.HighestVersion = c.uint(low), c.uint(high)
		one.Count, one.Author = c.uint(c.word("count")), c.word("author")
		out.Receipts = append(out.Receipts, one)
	}
	return out
}

// txn reads "? version KEY N", "? lease KEY:GEN", "? exists KEY", "? absent KEY" as
// guards, and operations, all separated by ";".
func txn(c *call) *boardpb.Txn {
	out := &boardpb.Txn{}
	for _, toks := range c.parts {
		part := newCall(toks)
		if len(part.words) == 0 {
			continue // "txn" alone: no operations
		}
		if part.flag("?") {
			out.Guards = append(out.Guards, guard(part))
		} else {
			out.Ops = append(out.Ops, txnOp(plain(part.word("verb"), part)))
		}
		if err := part.done(); err != nil {
			c.fail("%v", err)
		}
	}
	return out
}

func guard(c *call) *boardpb.Guard {
	switch c.word("guard") {
	case "version":
		return &boardpb.Guard{Test: &boardpb.Guard_Version{Version: &boardpb.VersionIs{Key: c.word("key"), Version: c.uint(c.word("version"))}}}
	case "lease":
		return &boardpb.Guard{Test: &boardpb.Guard_Lease{Lease: c.ref(c.word("lease"))}}
	case "exists":
		return &boardpb.Guard{Test: &boardpb.Guard_Exists{Exists: c.word("key")}}
	case "absent":
		return &boardpb.Guard{Test: &boardpb.Guard_Absent{Absent: c.word("key")}}
	}
	c.fail("no such guard")
	return &boardpb.Guard{}
}

func txnOp(op any) *boardpb.TxnOp {
	switch o := op.(type) {
	case *boardpb.Set:
		return &boardpb.TxnOp{Op: &boardpb.TxnOp_Set{Set: o}}
	case *boardpb.Append:
		return &boardpb.TxnOp{Op: &boardpb.TxnOp_Append{Append: o}}
	case *boardpb.Delete:
		return &boardpb.TxnOp{Op: &boardpb.TxnOp_Delete{Delete: o}}
	case *boardpb.Claim:
		return &boardpb.TxnOp{Op: &boardpb.TxnOp_Claim{Claim: o}}
	case *boardpb.Release:
		return &boardpb.TxnOp{Op: &boardpb.TxnOp_Release{Release: o}}
	case *boardpb.Complete:
		return &boardpb.TxnOp{Op: &boardpb.TxnOp_Complete{Complete: o}}
	case *boardpb.Fail:
		return &boardpb.TxnOp{Op: &boardpb.TxnOp_Fail{Fail: o}}
	}
	return &boardpb.TxnOp{}
}

// keepalive reads loops as "w1/a^FLOOR" and let_go=KEY:GEN.
func (s *script) keepalive(c *call) *boardpb.LoopKeepalive {
	o := &boardpb.LoopKeepalive{}
	for len(c.words) > 0 {
		name, floor, given := strings.Cut(c.word("loop"), "^")
		renewal := &boardpb.LoopRenewal{Loop: s.loopID(name)}
		if given {
			renewal.Floor = c.uint(floor)
		}
		o.Loops = append(o.Loops, renewal)
	}
	if ref := c.ref(c.opt("let_go")); ref != nil {
		o.LetGo = append(o.LetGo, ref)
	}
	return o
}

// settings reads "jobs/* leased writer=…" per namespace, separated by ";", and the limits
// as options. None at all is no settings.
func settings(c *call) *boardpb.BoardSettings {
	out := &boardpb.BoardSettings{MaxValueBytes: c.number("max_value"), MaxBoardBytes: c.number("max_board"),
		HistoryVersions: uint32(c.number("history"))}
	given := out.MaxValueBytes+out.MaxBoardBytes+uint64(out.HistoryVersions) > 0 || len(c.words) > 0
	for len(c.words) > 0 {
		ns := &boardpb.Namespace{Pattern: c.word("pattern")}
		mode := c.word("mode")
		ns.Mode = boardpb.Mode(boardpb.Mode_value["MODE_"+strings.ToUpper(mode)])
		for len(c.words) > 0 {
			w := c.word("")
			if w == ";" {
				break
			}
			if value, ok := strings.CutPrefix(w, "lease:"); ok {
				ns.LeaseMs = c.ms(value)
			} else if value, ok := strings.CutPrefix(w, "attempts:"); ok {
				ns.MaxAttempts = uint32(c.uint(value))
			} else if value, ok := strings.CutPrefix(w, "max:"); ok {
				ns.MaxValueBytes = c.uint(value)
			} else if w == "unique" {
				ns.Unique = true
			} else if w == "one_line" {
				ns.OneLine = true
			} else {
				ns.Writer = w
			}
		}
		out.Namespaces = append(out.Namespaces, ns)
	}
	if !given {
		return nil
	}
	return out
}

func envelopeOption(name string) bool {
	switch name {
	case "seq", "floor", "key", "call", "inc", "board":
		return true
	}
	return false
}

// actorOf reads "actor NAME ROLE… [for PRINCIPAL]"; "all" is every role.
func actorOf(words []string) (*boardpb.Actor, error) {
	a := &boardpb.Actor{Principal: words[0]}
	for i := 1; i < len(words); i++ {
		switch w := words[i]; {
		case w == "for" && i+1 < len(words):
			i++
			a.ActingFor = words[i]
		case w == "named" && i+1 < len(words): // the principal, where the script's name is another
			i++
			a.Principal = words[i]
		case w == "all":
			for r := boardpb.Role_ROLE_WORKER; r <= boardpb.Role_ROLE_OBSERVER; r++ {
				a.Roles = append(a.Roles, r)
			}
		default:
			role := state.RoleByName(w)
			if role == boardpb.Role_ROLE_UNSPECIFIED {
				return nil, fmt.Errorf("no role %q", w)
			}
			a.Roles = append(a.Roles, role)
		}
	}
	return a, nil
}

func systemActor() *boardpb.Actor { return board.SystemActor() }
