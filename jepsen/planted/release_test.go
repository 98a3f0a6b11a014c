package planted_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// traces is what a binary that can have planted bugs holds, and no other does.
// Names of bugs are too short to look for; they stand in the code only as what Bug is asked.
func traces() []string {
	return []string{"raftboard/jepsen/planted.", "FAULT_CLOCK", "FAULT_FILE", "MUTANT"}
}

// build makes the command the way it is released, or with the tag.
func build(t *testing.T, tags string) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "raftboard")
	cmd := exec.Command("go", "build", "-tags", tags, "-o", path, "raftboard/cmd/raftboard")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go build -tags %q: %v\n%s", tags, err, out)
	}
	return path
}

func symbols(t *testing.T, path string) []byte {
	t.Helper()
	out, err := exec.Command("go", "tool", "nm", path).Output()
	if err != nil {
		t.Fatalf("go tool nm: %v", err)
	}
	return out
}

func contents(t *testing.T, path string) []byte {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func TestTheReleaseBinaryHoldsNothingOfThePlantedBugs(t *testing.T) {
	release := build(t, "")
	raw, names := contents(t, release), symbols(t, release)
	if !bytes.Contains(names, []byte("raftboard/node.(*Node).Propose")) {
		t.Fatal("the symbols of the binary are not there to be looked at")
	}
	if bytes.Contains(names, []byte("jepsen/planted")) {
		t.Error("a symbol of jepsen/planted is in the release binary")
	}
	for _, trace := range traces() {
		if bytes.Contains(raw, []byte(trace)) {
			t.Errorf("%q is in the release binary", trace)
		}
	}
}

func TestABinaryWithTheTagHasThePlantedBugs(t *testing.T) {
	tagged := build(t, "faults")
	raw, names := contents(t, tagged), symbols(t, tagged)
	if !bytes.Contains(names, []byte("raftboard/jepsen/planted.(*plants)")) {
		t.Error("what is planted is not in the binary with the tag: the test above would prove nothing")
	}
	for _, trace := range traces() {
		if !bytes.Contains(raw, []byte(trace)) {
			t.Errorf("%q is not in the binary with the tag: looking for it in the other one proves nothing", trace)
		}
	}
}
