package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestADirectoryHasOneHolder(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "run")
	release, err := hold(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := hold(dir); err == nil || !strings.Contains(err.Error(), "another --dir") {
		t.Errorf("a second holder got %v", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "left"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := clear(dir); err != nil {
		t.Fatal(err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 0 {
		t.Errorf("cleared, it holds %v (%v)", entries, err)
	}
	release()
	again, err := hold(dir)
	if err != nil {
		t.Fatal(err)
	}
	os.RemoveAll(dir)
	anew, err := hold(dir) // another directory by the old name
	if err != nil {
		t.Fatal(err)
	}
	again()
	anew()
}

func TestBinariesOfKilledCommandsAreRemoved(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	dead := filepath.Join(os.TempDir(), binaries+"1")
	alive := filepath.Join(os.TempDir(), binaries+"2")
	if err := os.Mkdir(dead, 0o755); err != nil {
		t.Fatal(err)
	}
	release, err := hold(alive)
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	var b builds
	if err := b.open(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dead); err == nil {
		t.Error("the directory of a dead command is still there")
	}
	if _, err := os.Stat(alive); err != nil {
		t.Error("the directory of a living command was removed")
	}
	b.remove()
	if _, err := os.Stat(b.dir); err == nil {
		t.Error("the own directory is still there")
	}
}
