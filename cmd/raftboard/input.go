package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"unicode/utf8"

	"github.com/spf13/pflag"

	"raftboard/cmd/raftboard/exitcode"
	"raftboard/cmd/raftboard/render"
	boardpb "raftboard/fsm/pb"
)

// maxInput bounds what is read from a file or a pipe: the largest request.
const maxInput = 1 << 20

// valueFlags say where a value comes from when it is no argument.
type valueFlags struct {
	file string
	text bool
}

func (v *valueFlags) declare(fs *pflag.FlagSet) {
	fs.StringVar(&v.file, "file", "", "read the value from this file, byte for byte (- is standard input)")
	fs.BoolVar(&v.text, "text", false, "the input is text: store it as one JSON string")
}

// read gets the value of a write: VALUE, - for standard input, @FILE, or --file.
func (v *valueFlags) read(a *app, args []string) ([]byte, error) {
	source := v.file
	switch {
	case len(args) == 0 && source == "":
		return nil, exitcode.Usagef(`'"text"' or - or @FILE`, "a value is missing")
	case len(args) > 0 && source != "":
		return nil, exitcode.Usagef("leave out one of them", "both a value and --file were given")
	case len(args) > 0 && args[0] == "-":
		source = "-"
	case len(args) > 0 && strings.HasPrefix(args[0], "@"):
		source = args[0][1:]
		if source == "" {
			return nil, exitcode.Usagef("@FILE", "@ names no file")
		}
	case len(args) > 0:
		return v.wrap([]byte(args[0]))
	}
	raw, err := a.readInput(source)
	if err != nil {
		return nil, err
	}
	return v.wrap(raw)
}

// readInput reads a file or standard input ("-"), bounded.
func (a *app) readInput(source string) ([]byte, error) {
	r := a.stdin
	if source != "-" {
		f, err := os.Open(source)
		if err != nil {
			return nil, exitcode.Usagef("", "%v", err)
		}
		defer f.Close()
		r = f
	}
	raw, err := io.ReadAll(io.LimitReader(r, maxInput+1))
	if err != nil {
		return nil, exitcode.Usagef("", "reading %s: %v", source, err)
	}
	if len(raw) > maxInput {
		return nil, refusal(boardpb.Code_CODE_TOO_LARGE, fmt.Sprintf("%s holds more than %d bytes, the largest request",
			source, maxInput),
			"store it elsewhere and put a reference on the board")
	}
	return raw, nil
}

// wrap makes a JSON string of text; without --text the bytes stay as they are.
func (v *valueFlags) wrap(raw []byte) ([]byte, error) {
	if !v.text {
		return raw, nil
	}
	if at := badText(raw); at >= 0 {
		return nil, refusal(boardpb.Code_CODE_BAD_ENCODING, fmt.Sprintf("the text is not UTF-8, or has a NUL, at byte %d", at),
			"convert it to UTF-8 first")
	}
	return render.AppendString(nil, string(raw)), nil
}

// badText gives the offset of the first byte that is no text, or -1.
func badText(raw []byte) int {
	for i := 0; i < len(raw); {
		r, size := utf8.DecodeRune(raw[i:])
		if r == 0 || r == utf8.RuneError && size <= 1 {
			return i
		}
		i += size
	}
	return -1
}

// refusal is one this program decides, in the form the board would give it.
func refusal(code boardpb.Code, message, hint string) error {
	return &exitcode.Refused{Result: &boardpb.Result{Code: code, Message: message, Hint: hint}}
}

// decodeStrict reads one JSON document into v: unknown or repeated members, and anything behind it, are refused.
func decodeStrict(raw []byte, v any) error {
	if err := noRepeats(raw); err != nil {
		return err
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.DisallowUnknownFields()
	if err := dec.Decode(v); err != nil {
		return refusal(boardpb.Code_CODE_BAD_REQUEST, fmt.Sprintf("the input: %v (near byte %d)", err, dec.InputOffset()), "")
	}
	if _, err := dec.Token(); err != io.EOF {
		return refusal(boardpb.Code_CODE_BAD_REQUEST, fmt.Sprintf("the input goes on after its end at byte %d",
			dec.InputOffset()), "")
	}
	return nil
}

// maxDepth is that of a value on the board plus what a txn wraps around it.
const maxDepth = 64 + 8

// noRepeats walks the tokens and refuses a member name that occurs twice in one object, and great depth.
func noRepeats(raw []byte) error {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	type level struct {
		names map[string]bool // nil: an array
		name  bool            // the next token of an object is a name
	}
	var stack []level
	for {
		token, err := dec.Token()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return refusal(boardpb.Code_CODE_BAD_REQUEST, fmt.Sprintf("the input is not JSON: %v (near byte %d)", err,
				dec.InputOffset()), "")
		}
		top := len(stack) - 1
		if s, is := token.(string); is && top >= 0 && stack[top].names != nil && stack[top].name {
			if stack[top].names[s] {
				return refusal(boardpb.Code_CODE_BAD_REQUEST, fmt.Sprintf("the member %q occurs twice (near byte %d)", s,
					dec.InputOffset()), "")
			}
			stack[top].names[s], stack[top].name = true, false
			continue
		}
		switch token {
		case json.Delim('{'):
			stack = append(stack, level{names: map[string]bool{}, name: true})
		case json.Delim('['):
			stack = append(stack, level{})
		case json.Delim('}'), json.Delim(']'):
			stack = stack[:top]
			if top > 0 {
				stack[top-1].name = true
			}
		default:
			if top >= 0 {
				stack[top].name = true
			}
		}
		if len(stack) > maxDepth {
			return refusal(boardpb.Code_CODE_BAD_REQUEST, fmt.Sprintf("the input is nested deeper than %d levels", maxDepth), "")
		}
	}
}
