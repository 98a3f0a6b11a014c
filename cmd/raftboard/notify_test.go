package main

import (
	"net"
	"path/filepath"
	"testing"
)

func TestTheSupervisorIsToldThroughItsSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "notify")
	l, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	t.Setenv("NOTIFY_SOCKET", path)
	newNotifier().say("READY=1", "STATUS=leader, term 4")
	buf := make([]byte, 1000)
	n, err := l.Read(buf)
	if err != nil {
		t.Fatal(err)
	}
	if got := string(buf[:n]); got != "READY=1\nSTATUS=leader, term 4" {
		t.Errorf("got %q", got)
	}
	t.Setenv("NOTIFY_SOCKET", filepath.Join(t.TempDir(), "nobody"))
	newNotifier().say("READY=1") // nobody listens: that is no reason to fail
}
