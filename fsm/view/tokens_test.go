package view_test

import (
	"encoding/base64"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"raftboard/fsm/view"
)

// corpus is text as agents write it, of five kinds.
func corpus() map[string]string {
	prose := "The heat exchanger fails when the pump restarts within ten minutes; three of the four operators we asked had seen it, and none had reported it. "
	code := "func (b *board) lease(key string) *boardpb.Lease {\n\trec, _ := b.leases.get(key)\n\tif rec == nil {\n\t\treturn nil\n\t}\n\treturn rec.lease()\n}\n"
	record := `{"source":"https://example.org/api/v2/items?id=48213","found":[{"name":"pump-7","ok":false,"t":1764558000123},{"name":"pump-8","ok":true,"t":1764558000456}],"n":2}` + "\n"
	cjk := "热交换器在泵十分钟内重新启动时会发生故障；我们询问的四名操作员中有三名见过这种情况，但没有人报告过。"
	raw := make([]byte, 600)
	for i := range raw {
		raw[i] = byte(i*i*31 + i*7 + i>>3)
	}
	return map[string]string{"prose": strings.Repeat(prose, 10), "code": strings.Repeat(code, 10), "JSON": strings.Repeat(record, 10),
		"CJK": strings.Repeat(cjk, 10), "base64": base64.StdEncoding.EncodeToString(raw)}
}

// pieces splits a text the way tokenizers of the byte-pair kind do before they merge: a word
// with the blank before it, up to three digits, a run of other marks, a run of white space.
// No token reaches over such a piece, so a text has at least as many tokens as pieces; and
// it has no more than bytes.
func pieces(text string) (n int) {
	kind := func(r rune) int {
		switch {
		case unicode.IsLetter(r) || unicode.IsMark(r):
			return 1
		case unicode.IsDigit(r):
			return 2
		case unicode.IsSpace(r):
			return 3
		}
		return 4
	}
	last, run := 0, 0
	for _, r := range text {
		k := kind(r)
		switch {
		case k == last && (k != 2 || run < 3):
			run++
		case last == 3 && run == 1 && (k == 1 || k == 4): // the blank belongs to what follows
			run = 1
		default:
			n, run = n+1, 1
		}
		last = k
	}
	return n
}

// TestHowFarACharacterBudgetIsFromTokens prints, with -v, what the README says of the
// budget's error: bytes and pieces bound the tokens of any byte-level tokenizer that splits
// like this; which of them is near depends on its vocabulary.
func TestHowFarACharacterBudgetIsFromTokens(t *testing.T) {
	t.Logf("%-7s %6s %6s %8s %8s %10s", "text", "chars", "bytes", "chars/4", "pieces≥", "bytes/char")
	for _, name := range []string{"prose", "code", "JSON", "CJK", "base64"} {
		text := corpus()[name]
		chars := utf8.RuneCountInString(text)
		n := pieces(text)
		t.Logf("%-7s %6d %6d %8d %8d %10.2f", name, chars, len(text), view.Tokens(chars), n, float64(len(text))/float64(chars))
		if n > len(text) || n == 0 {
			t.Errorf("%s: %d pieces of %d bytes", name, n, len(text))
		}
	}
	if n := pieces("Say 12345 times, ok?"); n != 8 { // Say| |123|45| times|,| ok|?
		t.Errorf("%d pieces", n)
	}
}
