package raftboard_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const module = "raftboard"

const (
	maxFileLines     = 500
	maxFunctionLines = 70
	maxFileBytes     = 1 << 20
)

// source is one hand-written Go file.
type source struct {
	path string // from the root, with slashes
	dir  string
	test bool
	text string
	file *ast.File
	fset *token.FileSet
}

func (s *source) imports() []string {
	var out []string
	for _, spec := range s.file.Imports {
		out = append(out, strings.Trim(spec.Path.Value, `"`))
	}
	return out
}

// sources reads the tree: every .go file but generated ones and those of tools.
func sources(t *testing.T) []*source {
	t.Helper()
	var out []*source
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		path = filepath.ToSlash(path)
		if d.IsDir() {
			if name := d.Name(); name != "." && (strings.HasPrefix(name, ".") || name == "testdata" || path == "tools") {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, ".pb.go") {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		fset := token.NewFileSet()
		file, err := parser.ParseFile(fset, path, text, parser.ParseComments)
		if err != nil {
			return err
		}
		out = append(out, &source{path: path, dir: filepath.ToSlash(filepath.Dir(path)),
			test: strings.HasSuffix(path, "_test.go"), text: string(text), file: file, fset: fset})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(out) < 50 {
		t.Fatalf("only %d files found: the rules below would check nothing", len(out))
	}
	return out
}

func within(dir string, rooms ...string) bool {
	for _, r := range rooms {
		if dir == r || strings.HasPrefix(dir, r+"/") {
			return true
		}
	}
	return false
}

// mayImport lists, per room, the rooms of this module that it may import. A room may
// always import what lies below itself.
func mayImport() map[string][]string {
	return map[string][]string{
		"fsm/pb":         {},
		"fsm/state":      {"fsm/pb"},
		"fsm/board":      {"fsm/pb", "fsm/state"},
		"fsm/view":       {"fsm/pb", "fsm/state"},
		"fsm/phase":      {"fsm/pb", "fsm/state", "fsm/board"},
		"fsm":            {"fsm/pb", "fsm/state", "fsm/board", "fsm/phase"},
		"node":           {"fsm"},
		"transport/pb":   {"fsm/pb"},
		"transport":      {"fsm", "node", "transport/pb"},
		"client":         {"fsm/pb", "transport/pb"},
		"cmd":            {"fsm", "node", "transport", "client", "cmd"},
		"jepsen":         {"fsm", "node", "transport", "client", "jepsen"},
		"jepsen/planted": {}, // it knows no room of the product
		"deploy":         {},
	}
}

// plants is the one room above that a room of the product may import: jepsen/planted is empty
// without the build tag "faults", which a test of its own proves on the release binary.
const plants = "jepsen/planted"

func TestImportsGoOneWay(t *testing.T) {
	rules := mayImport()
	for _, s := range sources(t) {
		if s.test {
			continue // a test may stand above its room: the cluster tests of client start servers
		}
		room := ""
		for r := range rules {
			if within(s.dir, r) && len(r) > len(room) {
				room = r
			}
		}
		if room == "" {
			if s.dir != "." {
				t.Errorf("%s is in no room of the house", s.path)
			}
			continue
		}
		for _, path := range s.imports() {
			inner, ours := strings.CutPrefix(path, module+"/")
			if inner == plants && !within(s.dir, "cmd", "deploy") {
				continue
			}
			if ours && !within(inner, append(rules[room], room)...) {
				t.Errorf("%s imports %s: %s may import %v", s.path, path, room, rules[room])
			}
		}
	}
}

func TestTheStateMachineKnowsNoWorld(t *testing.T) {
	banned := []string{"time", "math/rand", "math/rand/v2", "os", "net", "log", "log/slog", "context",
		"github.com/hashicorp/go-hclog", "google.golang.org/grpc"}
	for _, s := range sources(t) {
		if s.test || !within(s.dir, "fsm") {
			continue
		}
		for _, path := range s.imports() {
			switch {
			case within(path, banned...):
				t.Errorf("%s imports %s", s.path, path)
			case path == "github.com/hashicorp/raft" && s.path != "fsm/fsm.go" && s.path != "fsm/snapshot.go":
				t.Errorf("%s imports raft: only fsm.go and snapshot.go fit the machine to it", s.path)
			case path == "sync" && s.path != "fsm/fsm.go" && s.path != "fsm/feed.go":
				t.Errorf("%s imports sync: nothing that applies may wait", s.path)
			}
		}
	}
}

func TestNodeKnowsNoWire(t *testing.T) {
	for _, s := range sources(t) {
		for _, path := range s.imports() {
			if !s.test && within(s.dir, "node") && within(path, "google.golang.org/grpc", module+"/transport") {
				t.Errorf("%s imports %s", s.path, path)
			}
		}
	}
}

func TestProductionImportsNoTestSupport(t *testing.T) {
	support := []string{module + "/node/nodetest", module + "/transport/clustertest", "testing"}
	for _, s := range sources(t) {
		if s.test || within(s.dir, "node/nodetest", "transport/clustertest", "jepsen") {
			continue
		}
		for _, path := range s.imports() {
			if within(path, support...) {
				t.Errorf("%s imports %s", s.path, path)
			}
		}
	}
}

func TestEveryPackageHasItsModelInWords(t *testing.T) {
	docs, packages := map[string]int{}, map[string]string{}
	for _, s := range sources(t) {
		if s.test {
			continue
		}
		packages[s.dir] = s.file.Name.Name
		if s.file.Doc != nil {
			docs[s.dir] = max(docs[s.dir], len(s.file.Doc.Text()))
			if name := filepath.Base(s.path); name != "doc.go" && s.file.Name.Name != "main" {
				t.Errorf("%s holds a package comment: it belongs to doc.go", s.path)
			}
		}
	}
	for _, dir := range slices.Sorted(maps.Keys(packages)) {
		if docs[dir] < 80 {
			t.Errorf("%s has no package comment that gives a model (%d characters)", dir, docs[dir])
		}
	}
}

func TestFilesHaveOneSubjectAndFunctionsOnePage(t *testing.T) {
	for _, s := range sources(t) {
		if lines := strings.Count(s.text, "\n"); !s.test && lines > maxFileLines {
			t.Errorf("%s has %d lines, at most %d: which second subject lives there?", s.path, lines, maxFileLines)
		}
		if s.test {
			continue
		}
		for _, d := range s.file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || f.Body == nil {
				continue
			}
			if lines := s.fset.Position(f.End()).Line - s.fset.Position(f.Pos()).Line + 1; lines > maxFunctionLines {
				t.Errorf("%s: %s has %d lines, at most %d", s.path, f.Name.Name, lines, maxFunctionLines)
			}
		}
	}
}

func TestThereIsNoInitAndNoGlobalState(t *testing.T) {
	for _, s := range sources(t) {
		if s.test {
			continue
		}
		for _, d := range s.file.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if d.Recv == nil && d.Name.Name == "init" {
					t.Errorf("%s has an init function", s.path)
				}
			case *ast.GenDecl:
				if d.Tok == token.VAR {
					checkGlobals(t, s, d)
				}
			}
		}
	}
}

// checkGlobals lets pass: error sentinels, compile-time assertions, embedded files, and
// regular expressions and tables that are written once, which say so with a comment
// "… is a constant: what".
func checkGlobals(t *testing.T, s *source, d *ast.GenDecl) {
	t.Helper()
	embeds := d.Doc != nil && strings.Contains(commentText(d.Doc), "//go:embed")
	for _, spec := range d.Specs {
		v := spec.(*ast.ValueSpec)
		said := commentText(d.Doc) + commentText(v.Doc) + commentText(v.Comment)
		for i, name := range v.Names {
			switch {
			case name.Name == "_", embeds, strings.Contains(said, "//go:embed"), strings.Contains(said, "constant: "):
			case strings.HasPrefix(name.Name, "err") || strings.HasPrefix(name.Name, "Err"):
			case i < len(v.Values) && isSentinel(v.Values[i]):
			default:
				t.Errorf("%s: %s is a global variable", s.fset.Position(name.Pos()), name.Name)
			}
		}
	}
}

func commentText(g *ast.CommentGroup) string {
	if g == nil {
		return ""
	}
	var b strings.Builder
	for _, c := range g.List {
		b.WriteString(c.Text)
	}
	return b.String()
}

func isSentinel(e ast.Expr) bool {
	call, ok := e.(*ast.CallExpr)
	if !ok {
		return false
	}
	sel, ok := call.Fun.(*ast.SelectorExpr)
	return ok && sel.Sel.Name == "New" && len(call.Args) == 1
}

func TestNothingIsLeftOpen(t *testing.T) {
	open := regexp.MustCompile(`\b(TO` + `DO|FIX` + `ME|X` + `XX)\b`)
	for _, s := range sources(t) {
		if m := open.FindStringIndex(s.text); m != nil {
			t.Errorf("%s:%d: %s", s.path, 1+strings.Count(s.text[:m[0]], "\n"), s.text[m[0]:m[1]])
		}
	}
}

func TestNoTestSleepsOnRealTimeOrIsSkipped(t *testing.T) {
	for _, s := range sources(t) {
		if !s.test || s.path == "house_test.go" {
			continue
		}
		virtual := strings.Contains(s.text, "synctest") || strings.Contains(s.text, "clustertest") || strings.Contains(s.text, "nodetest")
		if strings.Contains(s.text, "time.Sleep(") && !virtual {
			t.Errorf("%s sleeps outside virtual time", s.path)
		}
		// The driver of real processes needs root and tools; a test of it may end with what is
		// missing, loudly, and with nothing else.
		text := regexp.MustCompile(`t\.Skip\("NOTHING IS TESTED HERE: " \+ (netns\.)?Needs\(\)\.Error\(\)\)`).ReplaceAllString(s.text, "")
		if regexp.MustCompile(`\bt\.Skip|testing\.Short`).MatchString(text) {
			t.Errorf("%s skips a test", s.path)
		}
	}
}

func TestRoomsHaveSubjectsForNames(t *testing.T) {
	for _, s := range sources(t) {
		switch s.file.Name.Name {
		case "util", "utils", "common", "helpers", "helper", "manager", "impl", "misc":
			t.Errorf("%s: package %s names no subject", s.path, s.file.Name.Name)
		}
	}
}

func TestNoFileIsLarge(t *testing.T) {
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if d.Name() == ".git" {
				return filepath.SkipDir
			}
			return nil
		}
		if info, err := d.Info(); err == nil && info.Size() > maxFileBytes {
			t.Errorf("%s has %d bytes, at most %d", path, info.Size(), maxFileBytes)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestTheReadmeNamesTestsThatExist holds the contract's table to the tree.
func TestTheReadmeNamesTestsThatExist(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for _, s := range sources(t) {
		if s.test {
			all.WriteString(s.text)
		}
	}
	tests := regexp.MustCompile("`(Test[A-Za-z0-9]+)`").FindAllStringSubmatch(string(readme), -1)
	if len(tests) < 8 {
		t.Fatalf("the README names %d tests: the contract has more promises", len(tests))
	}
	for _, m := range tests {
		if !strings.Contains(all.String(), "func "+m[1]+"(") {
			t.Errorf("the README names %s, which does not exist", m[1])
		}
	}
	scripts := regexp.MustCompile("`([st][0-9.]+_?[0-9]*)`").FindAllStringSubmatch(string(readme), -1)
	if len(scripts) < 8 {
		t.Fatalf("the README names %d scripts", len(scripts))
	}
	for _, m := range scripts {
		if found, _ := filepath.Glob("fsm/testdata/" + m[1] + "*.txt"); len(found) == 0 {
			t.Errorf("the README names script %s, which does not exist", m[1])
		}
	}
	for _, command := range []string{"go run ./cmd/raftboard demo", "go test ./..."} {
		if !strings.Contains(string(readme), command) {
			t.Errorf("the README does not name %q", command)
		}
	}
}
