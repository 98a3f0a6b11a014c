package netns_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"raftboard/jepsen/history"
	"raftboard/jepsen/nemesis"
	"raftboard/jepsen/netns"
)

// doomed is the variable that makes this test binary a harness which is to be killed: it holds
// the directory of its run.
const doomed = "NETNS_TEST_DOOMED"

// doom starts a cluster, hurts it, says so, and waits for its end.
func doom(dir string) error {
	c, err := netns.Start(context.Background(), netns.Options{Nodes: 3, PowerDisks: true, Log: history.NewLog(history.Run{}),
		Binary: filepath.Join(dir, "raftboard"), Dir: dir})
	if err != nil {
		return err
	}
	err = errors.Join(c.Pause(0), c.Disk(1, nemesis.DiskFault{Hung: true}), c.Starve(2, 0.5))
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "up"), nil, 0o600)
	}
	if err == nil {
		<-time.After(time.Minute)
		err = errors.New("nobody killed this harness")
	}
	return errors.Join(err, c.Close())
}

func TestWhatAKilledHarnessLeavesIsSweptAndItsProcessesDieWithIt(t *testing.T) {
	t.Parallel()
	needed(t)
	dir := t.TempDir()
	if err := os.Link(plain.get(t, "raftboard"), filepath.Join(dir, "raftboard")); err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var said strings.Builder
	harness := exec.Command(self)
	harness.Env, harness.Stderr = append(os.Environ(), doomed+"="+dir), &said
	if err := harness.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- harness.Wait() }()
	eventually(t, "the harness has hurt its cluster", time.Minute, func() bool {
		select {
		case err := <-ended:
			t.Fatalf("%v: %s", err, said.String())
		default:
		}
		_, err := os.Stat(filepath.Join(dir, "up"))
		return err == nil
	})
	pid := harness.Process.Pid
	if left := leftBy(pid); len(left) < 4+3+3 {
		t.Fatalf("only %v is there to be swept", left)
	}
	do(t, harness.Process.Kill())
	<-ended
	do(t, netns.Sweep())
	if left := leftBy(pid); left != nil {
		t.Errorf("after the sweep there is still %v", left)
	}
	eventually(t, "no process of the dead harness left", 5*time.Second, func() bool { return usedBy(dir) == nil })
}
