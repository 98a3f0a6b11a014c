package netns

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

func makeVolume(t *testing.T) *volume {
	t.Helper()
	if Needs() != nil {
		t.Skip("NOTHING IS TESTED HERE: " + Needs().Error())
	}
	mine, err := owner()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	v, err := newVolume(filepath.Join(dir, "image"), filepath.Join(dir, mine+"0-volume"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(v.thaw(), v.unmount(false)); err != nil {
			t.Error(err)
		}
	})
	return v
}

// store writes a file, and syncs it and its directory if told to.
func store(t *testing.T, path, text string, sync bool) {
	t.Helper()
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if _, err := file.WriteAt([]byte(text), 0); err != nil {
		t.Fatal(err)
	}
	if !sync {
		return
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	if err := errors.Join(file.Sync(), dir.Sync()); err != nil {
		t.Fatal(err)
	}
}

func TestALossOfPowerKeepsWhatWasSyncedAndLosesWhatWasNot(t *testing.T) {
	v := makeVolume(t)
	kept, unsynced, over := filepath.Join(v.at, "kept"), filepath.Join(v.at, "unsynced"), filepath.Join(v.at, "overwritten")
	store(t, over, "old", true)
	store(t, kept, "kept", true)
	store(t, unsynced, "lost", false)
	store(t, over, "new", false)
	if err := v.cut(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(v.at, "late"), nil, 0o600); err == nil {
		t.Error("a disk without power takes a write")
	}
	if err := errors.Join(v.unmount(true), v.mount()); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{kept: "kept", over: "old"} {
		if got, err := os.ReadFile(path); err != nil || string(got) != want {
			t.Errorf("%s holds %q: %v", path, got, err)
		}
	}
	if got, err := os.ReadFile(unsynced); bytes.Contains(got, []byte("lost")) {
		t.Errorf("what was not synced is still there: %q, %v", got, err)
	}
}

func TestAFullDiskTakesNothingAndIsWellAgain(t *testing.T) {
	v := makeVolume(t)
	if err := v.fill(); err != nil {
		t.Fatal(err)
	}
	err := os.WriteFile(filepath.Join(v.at, "file"), make([]byte, 1<<16), 0o600)
	if !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("a full disk answered %v", err)
	}
	if err := v.drain(); err != nil {
		t.Fatal(err)
	}
	store(t, filepath.Join(v.at, "file"), "room", true)
}

func TestAHungDiskLetsWritersWait(t *testing.T) {
	v := makeVolume(t)
	if err := errors.Join(v.freeze(), v.freeze()); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		store(t, filepath.Join(v.at, "file"), "late", true)
	}()
	select {
	case <-done:
		t.Error("a write to a frozen disk returned")
	case <-time.After(200 * time.Millisecond):
	}
	if err := errors.Join(v.thaw(), v.thaw()); err != nil {
		t.Fatal(err)
	}
	<-done
}
