package board_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"raftboard/fsm/board"
	boardpb "raftboard/fsm/pb"
)

func TestT65T66JSONIsRefusedWithThePlaceOfTheFault(t *testing.T) {
	const request, encoding = boardpb.Code_CODE_BAD_REQUEST, boardpb.Code_CODE_BAD_ENCODING
	for _, c := range []struct {
		in     string
		code   boardpb.Code
		offset int
		why    string
	}{
		{"", request, 0, "ends where a value"},
		{" \r\n\t", request, 4, "ends where a value"},
		{"NaN", request, 0, "a value"},
		{"[Infinity]", request, 1, "a value"},
		{"-Infinity", request, 1, "a digit"},
		{`{"a":01}`, request, 6, "leading zero"},
		{`-00`, request, 2, "leading zero"},
		{`+1`, request, 0, "a value"},
		{`.5`, request, 0, "a value"},
		{`1.`, request, 2, "decimal point"},
		{`1.e3`, request, 2, "decimal point"},
		{`1e`, request, 2, "exponent"},
		{`1e+`, request, 3, "exponent"},
		{`0x10`, request, 1, "the end"},
		{`-`, request, 1, "a digit"},
		{`{'a':1}`, request, 1, "name in quotes"},
		{`{"a":1,}`, request, 7, "name in quotes"},
		{`{,}`, request, 1, "name in quotes"},
		{`{"a"}`, request, 4, "':'"},
		{`{"a" 1}`, request, 5, "':'"},
		{`{"a":}`, request, 5, "a value"},
		{`{"a":1 "b":2}`, request, 7, "',' or '}'"},
		{`{"a":1]`, request, 6, "',' or '}'"},
		{`[1}`, request, 2, "',' or ']'"},
		{`[1,]`, request, 3, "a value"},
		{`[,1]`, request, 1, "a value"},
		{`[1`, request, 2, "ends where"},
		{`{"a":1`, request, 6, "ends where"},
		{`{`, request, 1, "ends where"},
		{`]`, request, 0, "a value"},
		{`1 2`, request, 2, "the end"},
		{`{} x`, request, 3, "the end"},
		{`nul`, request, 3, "the rest of null"},
		{`True`, request, 0, "a value"},
		{`truE`, request, 3, "the rest of true"},
		{`"abc`, request, 4, "ends where"},
		{`"a` + "\n" + `b"`, request, 2, `\u000a`},
		{`"a` + "\x1f" + `b"`, request, 2, `\u001f`},
		{`"\x"`, request, 1, "an escape"},
		{`"\u12g4"`, request, 1, "four hexadecimal"},
		{`"\u12`, request, 1, "four hexadecimal"},
		{`"\`, request, 2, "ends where"},
		{`"\ud800"`, request, 1, "surrogate"},
		{`"ab\udc00"`, request, 3, "surrogate"},
		{`"\ud800\u0041"`, request, 1, "surrogate"},
		{`"\ud800\ud800\udc00"`, request, 1, "surrogate"},
		{`{"\udfff":1}`, request, 2, "surrogate"},
		{"\ufeff1", request, 0, "byte order mark"},
		{"1\ufeff", request, 1, "the end"},
		{"// no\n1", request, 0, "a value"},
		{"\u00e4", request, 0, "a value"},
		{"\u00a01", request, 0, "a value"},
		{"\"\xff\"", encoding, 1, "UTF-8"},
		{"\"ab\u00e4\xc3\"", encoding, 5, "UTF-8"},
		{"\"\xed\xa0\x80\"", encoding, 1, "UTF-8"},
		{"\"\xc0\x80\"", encoding, 1, "UTF-8"},
		{"\"\xf4\x90\x80\x80\"", encoding, 1, "UTF-8"},
		{"\xff", encoding, 0, "UTF-8"},
		{"[1,\xfe\xff]", encoding, 3, "UTF-8"},
		{"1 \x80", encoding, 2, "UTF-8"},
		{"\"a\x00b\"", encoding, 2, "NUL"},
		{"1\x00", encoding, 1, "NUL"},
		{"\x00", encoding, 0, "NUL"},
		{`{"role":"a","role":"b"}`, request, 12, "already"},
		{`[{"x":{"k":1,"\u006b":2}}]`, request, 13, "already"},
		{`{"\u006B":1,"k":2}`, request, 12, "already"},
		{`{"\n":1,"\u000a":2}`, request, 8, "already"},
		{`{"\/":1,"/":2}`, request, 8, "already"},
		{`{"\ud83d\ude00":1,"` + "\U0001f600" + `":2}`, request, 18, "already"},
		{`{"":1,"":2}`, request, 6, "already"},
		{`{"a":{"b":1},"c":[{"a":1}],"a":1}`, request, 27, "already"},
		{strings.Repeat("[", 65), request, 64, "deeper than 64"},
		{strings.Repeat(`{"a":`, 64) + "[]", request, 320, "deeper than 64"},
	} {
		t.Run(fmt.Sprintf("%.40q", c.in), func(t *testing.T) {
			code, offset, why := board.CheckJSON([]byte(c.in))
			if code != c.code || offset != c.offset || !strings.Contains(why, c.why) {
				t.Errorf("got %v at %d, %q; want %v at %d, %q", code, offset, why, c.code, c.offset, c.why)
			}
		})
	}
}

func TestT64JSONOfAnyMagnitudeAndSpacingIsAccepted(t *testing.T) {
	for _, in := range []string{
		`null`, `true`, `false`, `0`, `-0`, `-0.0e-0`, `1E+2`, `1e400`, `12345678901234567890123`,
		`""`, `"\"\\\/\b\f\n\r\t\u00e4\u0000"`, `"ä` + "\u007f\u2028" + `"`, `"\ud83d\ude00"`, `"\ufeff"`,
		`[]`, `{}`, `[[],{}]`, " { \"a\" : 1 ,\r\n \"n\"\t:\t12345678901234567890 } \n",
		`{"a":9007199254740993,"b":-7108510333361982070,"c":1e400,"d":-0,"e":1.0,"f":0.30000000000000004,"g":1E+2}`,
		`{"a":{"a":{"a":1}},"b":[{"a":1},{"a":2}]}`, `{"k":1,"K":2," k":3,"k ":4}`,
		strings.Repeat("[", 64) + strings.Repeat("]", 64),
		strings.Repeat(`{"a":`, 64) + "1" + strings.Repeat("}", 64),
	} {
		if code, offset, why := board.CheckJSON([]byte(in)); code != 0 {
			t.Errorf("%.80q: refused at %d: %s", in, offset, why)
		}
	}
}

func TestT66EveryPositionOfADuplicateNameIsFoundInALargeObject(t *testing.T) {
	for _, n := range []int{2, 15, 16, 17, 18, 400} {
		for _, twice := range []int{0, (n - 1) / 2, n - 2} {
			var b bytes.Buffer
			b.WriteString(`[{"x":1,"outer":{`)
			for i := range n - 1 {
				fmt.Fprintf(&b, `"k%d":%d,`, i, i)
			}
			good := b.String() + `"x":0}}]`
			if code, at, why := board.CheckJSON([]byte(good)); code != 0 {
				t.Fatalf("%d names: refused at %d: %s", n, at, why)
			}
			bad := b.String() + fmt.Sprintf(`"\u006b%d":0}}]`, twice)
			code, at, _ := board.CheckJSON([]byte(bad))
			if code != boardpb.Code_CODE_BAD_REQUEST || at != b.Len() {
				t.Errorf("%d names, number %d twice: got %v at %d, want bad_request at %d", n, twice, code, at, b.Len())
			}
		}
	}
}

func TestT66DeepNestingIsRefusedAtOnceWithFlatMemory(t *testing.T) {
	for _, unit := range []string{"[", `{"a":`, `[{"a":`} {
		deep := []byte(strings.Repeat(unit, 100_000))
		start := time.Now()
		code, _, _ := board.CheckJSON(deep)
		if took := time.Since(start); code != boardpb.Code_CODE_BAD_REQUEST || took > 50*time.Millisecond {
			t.Errorf("%q × 100,000: got %v after %v", unit, code, took)
		}
		allocated := testing.Benchmark(func(b *testing.B) {
			for b.Loop() {
				board.CheckJSON(deep)
			}
		}).AllocedBytesPerOp()
		if allocated > 8192 {
			t.Errorf("%q × 100,000: %d bytes allocated, want a few thousand at most", unit, allocated)
		}
	}
}

func TestJSONWithoutObjectsIsCheckedWithoutAllocation(t *testing.T) {
	for _, in := range []string{`"a plain text"`, `123456`, `[1,2,[3,"äöü",null]]`} {
		v := []byte(in)
		if n := testing.AllocsPerRun(100, func() { board.CheckJSON(v) }); n != 0 {
			t.Errorf("%s: %v allocations, want none", in, n)
		}
	}
}

// FuzzJSON compares with encoding/json, which knows neither our limit of depth nor
// duplicate names, and takes lone surrogates.
func FuzzJSON(f *testing.F) {
	for _, seed := range []string{
		`{"a":[1,-2.5e3,"\u00e4\ud83d\ude00"],"b":{"\u0061":null}}`, `[true,false,"x\ny"]`, "\"\xff\"",
		`{"a":1,"\u0061":2}`, `"\ud800"`, strings.Repeat("[", 70), ` {"":{"":[]}} `, "\ufeff1", `01`, `{"a":1,}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, v []byte) {
		code, offset, why := board.CheckJSON(v)
		if (code == 0) != reference(v) {
			t.Fatalf("%q: got %v at %d (%s), the reference says %v", v, code, offset, why, reference(v))
		}
		if offset < 0 || offset > len(v) || (code == 0) != (why == "") {
			t.Fatalf("%q: %v at %d: %q", v, code, offset, why)
		}
	})
}

func reference(v []byte) bool {
	if !utf8.Valid(v) || bytes.IndexByte(v, 0) >= 0 || !json.Valid(v) || loneSurrogate(v) {
		return false
	}
	d := json.NewDecoder(bytes.NewReader(v))
	d.UseNumber()
	var objects []map[string]bool // nil in an array
	wantName := false
	for {
		tok, err := d.Token()
		if err == io.EOF {
			return true
		}
		if err != nil {
			return false
		}
		if name, ok := tok.(string); ok && wantName {
			if objects[len(objects)-1][name] {
				return false
			}
			objects[len(objects)-1][name] = true
			wantName = false
			continue
		}
		switch tok {
		case json.Delim('{'):
			objects = append(objects, map[string]bool{})
		case json.Delim('['):
			objects = append(objects, nil)
		case json.Delim('}'), json.Delim(']'):
			objects = objects[:len(objects)-1]
		}
		if len(objects) > 64 {
			return false
		}
		wantName = len(objects) > 0 && objects[len(objects)-1] != nil
	}
}

// loneSurrogate works on valid JSON, where a backslash occurs in strings only.
func loneSurrogate(v []byte) bool {
	escape := regexp.MustCompile(`\\(u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|.)`)
	for _, e := range escape.FindAll(v, -1) {
		if r, err := strconv.ParseUint(string(e[2:]), 16, 16); len(e) == 6 && err == nil && r>>11 == 0x1b {
			return true
		}
	}
	return false
}

func BenchmarkJSON(b *testing.B) {
	var rows []string
	for i := range 400 {
		rows = append(rows, fmt.Sprintf(`{"id":%d,"name":"worker number %d","note":"found nothing in particular","ok":true}`, i, i))
	}
	for name, in := range map[string]string{
		"text":    `"` + strings.Repeat("a finding in plain words, ", 1600) + `"`,
		"umlauts": `"` + strings.Repeat("für größere Überraschungen ", 1600) + `"`,
		"objects": "[" + strings.Join(rows, ",") + "]",
		"numbers": "[" + strings.Repeat("12345.678,", 4000) + "0]",
		"small":   `{"lines":10,"words":100,"bytes":1000,"sha":"0123456789abcdef"}`,
	} {
		b.Run(name, func(b *testing.B) {
			v := []byte(in)
			b.SetBytes(int64(len(v)))
			b.ReportAllocs()
			for b.Loop() {
				if code, at, why := board.CheckJSON(v); code != 0 {
					b.Fatal(code, at, why)
				}
			}
		})
	}
}
