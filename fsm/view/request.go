package view

import (
	"fmt"
	"strings"

	boardpb "raftboard/fsm/pb"
	"raftboard/fsm/state"
)

// The bounds of a view.
const (
	DefaultTokens = 2000
	MaxTokens     = 50_000
	MaxPatterns   = 64 // subscriptions, and pins
	minNonce      = 8
	maxNonce      = 64
)

// Request is what a view is made of, beside the board.
type Request struct {
	Viewer      string   // the principal that reads: what it wrote itself is left out
	Everything  bool     // the credential may subscribe to all keys
	Subscribe   []string // patterns
	Pinned      []string // patterns whose items come first
	LimitTokens uint32   // 0: DefaultTokens
	Nonce       string   // in the tags of the fence, so that no text can know them
}

// plan is a request that was checked.
type plan struct {
	chars     int    // the most that the whole text may have
	name      string // of the viewer
	viewer    uint32 // the same, as its items are numbered
	nonce     string
	pins      []matcher
	subscribe []matcher
}

// matcher is a pattern, and what it makes of each namespace.
type matcher struct {
	pattern state.Pattern
	prefix  string  // of every key it matches
	run     bool    // behind the prefix it matches any run inside one segment, and that is all
	spaces  []meets // by the namespace's number
}

type meets uint8

const (
	meetsNone meets = iota
	meetsSome
	meetsAll // the pattern is the namespace's own, or "**"
)

func (m *matcher) match(c state.Current) bool {
	if c.Space < 0 {
		return m.key(c.Entry.Key)
	}
	switch m.spaces[c.Space] {
	case meetsAll:
		return true
	case meetsSome:
		return m.key(c.Entry.Key)
	}
	return false
}

// short tells a pattern that is a prefix and any run behind it, inside one segment.
func short(p state.Pattern) bool { return p.String() == p.Prefix()+"*" }

func (m *matcher) key(key string) bool {
	if m.run { // as most patterns: there are as many keys to look at as the board has
		return len(key) >= len(m.prefix) && key[:len(m.prefix)] == m.prefix && strings.IndexByte(key[len(m.prefix):], '/') < 0
	}
	return strings.HasPrefix(key, m.prefix) && m.pattern.Match(key)
}

// check makes a plan of a request. It answers bad_request, undeclared_namespace for a
// pattern that no key can match, or forbidden for one that is everything (SPEC VW-1).
func check(b *state.Board, q Request) (*plan, *boardpb.Result) {
	if len(q.Subscribe) == 0 {
		return nil, bad("subscribe", "a view subscribes to at least one pattern: it is not everything",
			"name what you need, as facts/* or results/**")
	}
	limit := int(q.LimitTokens)
	switch {
	case limit == 0:
		limit = DefaultTokens
	case limit > MaxTokens:
		return nil, limited(bad("limit_tokens", fmt.Sprintf("limit_tokens is %d, at most %d", limit, MaxTokens),
			"ask for less; raftboard dump exports a board"), limit, MaxTokens)
	}
	if r := checkNonce(q.Nonce); r != nil {
		return nil, r
	}
	p := &plan{chars: 4*limit - 1, name: q.Viewer, viewer: b.Author(q.Viewer), nonce: q.Nonce}
	var refused *boardpb.Result
	if p.subscribe, refused = matchers(b, "subscribe", q.Subscribe, q.Everything); refused != nil {
		return nil, refused
	}
	if p.pins, refused = matchers(b, "pinned", q.Pinned, q.Everything); refused != nil {
		return nil, refused
	}
	if need := p.least(b); need > p.chars {
		return nil, limited(bad("limit_tokens", fmt.Sprintf("limit_tokens is %d; what encloses the entries takes %d alone",
			limit, need/4+1), "raise it"), limit, need/4+1)
	}
	return p, nil
}

func matchers(b *state.Board, field string, patterns []string, everything bool) ([]matcher, *boardpb.Result) {
	if len(patterns) > MaxPatterns {
		return nil, limited(bad(field, fmt.Sprintf("%d patterns, at most %d", len(patterns), MaxPatterns), "use wider patterns"),
			len(patterns), MaxPatterns)
	}
	var out []matcher
	for i, text := range patterns {
		at := fmt.Sprintf("%s/%d", field, i)
		p, why := state.ParsePattern(text)
		if why != "" {
			return nil, bad(at, fmt.Sprintf("pattern %+q: %s", text[:min(len(text), 64)], why),
				`a pattern is a key in which "*" stands for any run inside a segment and "**", last, for any segments`)
		}
		if strings.Trim(text, "*/") == "" && !everything {
			return nil, &boardpb.Result{Code: boardpb.Code_CODE_FORBIDDEN, Field: at,
				Message: fmt.Sprintf("%s is everything, and a view of everything takes the role operator", text),
				Hint:    "name what you need, as facts/* or results/**"}
		}
		m := matcher{pattern: p, prefix: p.Prefix(), run: short(p),
			spaces: make([]meets, len(b.Schema().Spaces()))}
		met := false
		for _, space := range b.Schema().Spaces() {
			switch {
			case text == "**" || text == space.Pattern.String():
				m.spaces[space.Number], met = meetsAll, true
			case p.Overlaps(space.Pattern):
				m.spaces[space.Number], met = meetsSome, true
			}
		}
		if !met {
			return nil, &boardpb.Result{Code: boardpb.Code_CODE_UNDECLARED_NAMESPACE, Key: text, Field: at}
		}
		out = append(out, m)
	}
	return out, nil
}

func validNonce(s string) bool {
	if len(s) < minNonce || len(s) > maxNonce {
		return false
	}
	for i := 0; i < len(s); i++ {
		c := s[i] | 0x20
		if (c < 'a' || c > 'z') && (s[i] < '0' || s[i] > '9') && s[i] != '_' && s[i] != '-' {
			return false
		}
	}
	return true
}

func bad(field, message, hint string) *boardpb.Result {
	return &boardpb.Result{Code: boardpb.Code_CODE_BAD_REQUEST, Field: field, Message: message, Hint: hint}
}

func limited(r *boardpb.Result, got, limit int) *boardpb.Result {
	r.Got, r.Limit = uint64(got), uint64(limit)
	return r
}
