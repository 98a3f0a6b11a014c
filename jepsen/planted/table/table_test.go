package table_test

import (
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"raftboard/jepsen/planted/table"
)

// asked lists what the product asks jepsen/planted for: the name of a bug or a point, and the
// files that ask.
func asked(t *testing.T, pattern string) map[string][]string {
	t.Helper()
	root, found := "../../..", map[string][]string{}
	question := regexp.MustCompile(pattern)
	for _, room := range []string{"fsm", "node", "transport", "client", "cmd"} {
		err := filepath.WalkDir(filepath.Join(root, room), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			for _, m := range question.FindAllStringSubmatch(string(text), -1) {
				file := filepath.ToSlash(strings.TrimPrefix(path, root+"/"))
				if !slices.Contains(found[m[1]], file) {
					found[m[1]] = append(found[m[1]], file)
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return found
}

func TestTheTableNamesEveryBugThatIsPlantedAndNoOther(t *testing.T) {
	bugs := asked(t, `planted\.Bug\("([^"]+)"\)`)
	for _, m := range table.Mutants() {
		files := bugs[m.Name]
		delete(bugs, m.Name)
		switch planted := m.Open == "" && m.Driver != table.Harness; {
		case planted != (len(files) > 0):
			t.Errorf("%s is asked for by %v, and the table says it is open: %q", m.Name, files, m.Open)
		case !planted:
		case !strings.Contains(m.Where, files[0]) && !slices.ContainsFunc(files, func(f string) bool { return strings.HasPrefix(m.Where, f) }):
			t.Errorf("%s is said to be in %s; it is in %v", m.Name, m.Where, files)
		}
	}
	if len(bugs) > 0 {
		t.Errorf("not in the table: %v", slices.Sorted(maps.Keys(bugs)))
	}
}

func TestTheTableNamesEveryPointAndNoOther(t *testing.T) {
	points, errors := asked(t, `planted\.Point\("([^"]+)"\)`), asked(t, `planted\.Error\("([^"]+)"\)`)
	for _, p := range table.Points() {
		if found := points[p.Name]; p.Asks == "" && len(found) == 0 || p.Asks != "" && len(errors[p.Name]) == 0 {
			t.Errorf("nothing asks for %s", p.Name)
		}
		delete(points, p.Name)
		delete(errors, p.Name)
	}
	if len(points)+len(errors) > 0 {
		t.Errorf("not in the table: %v %v", points, errors)
	}
}

func TestEveryRowSaysWhatShowsIt(t *testing.T) {
	names := map[string]bool{}
	numbers := map[string]bool{}
	for _, m := range table.Mutants() {
		if names[m.Name] || m.What == "" || m.Where == "" || len(m.Fires) == 0 {
			t.Errorf("%+v", m)
		}
		names[m.Name] = true
		numbers[strings.TrimRight(m.Name, "ab")] = true
		runs := len(m.Workloads) > 0 && len(m.Nemeses) > 0
		if (m.Driver == table.Sim || m.Driver == table.Netns) && !runs || m.Driver == table.Test && m.Test == "" {
			t.Errorf("%s has nothing that shows it", m.Name)
		}
		if m.Also != "" && (m.Also == m.Driver || m.Also != table.Sim && m.Also != table.Netns) {
			t.Errorf("%s must also be seen on %q", m.Name, m.Also)
		}
		if again, ok := table.ByName(m.Name); !ok || again.What != m.What {
			t.Errorf("%s is not found by its name", m.Name)
		}
	}
	if len(numbers) != 37 {
		t.Errorf("%d rows of the test plan, want 37", len(numbers))
	}
	if _, ok := table.ByName("M99"); ok {
		t.Error("a bug that is none is found")
	}
}
