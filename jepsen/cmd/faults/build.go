package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
)

// tag is the build tag that brings planted bugs, failpoints and the clock seam.
const tag = "faults"

// builds makes the binaries that runs need, each once, in a directory that remove takes away.
type builds struct {
	ctx      context.Context
	progress io.Writer

	mu   sync.Mutex
	dir  string
	made map[string]string

	release func() // of dir
}

// server is the binary of a node. Another version is the same source under another name.
func (b *builds) server(tagged, other bool) (string, error) {
	name, args := "raftboard", []string{"build"}
	version := "faults"
	if other {
		name, version = name+"-other", "faults-other"
	}
	if tagged {
		name, args = name+"-tagged", append(args, "-tags", tag)
	}
	return b.make(name, append(args, "-ldflags", "-X main.linked="+version), "./cmd/raftboard")
}

// sim is the test binary of the driver on virtual time.
func (b *builds) sim(tagged bool) (string, error) {
	name, args := "sim", []string{"test", "-c"}
	if tagged {
		name, args = name+"-tagged", append(args, "-tags", tag)
	}
	return b.make(name, args, "./jepsen/sim")
}

// self is this command with the tag: bugs of the client are planted in the harness.
func (b *builds) self() (string, error) {
	return b.make("faults-tagged", []string{"build", "-tags", tag}, "./jepsen/cmd/faults")
}

func (b *builds) make(name string, args []string, pkg string) (string, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if path := b.made[name]; path != "" {
		return path, nil
	}
	if b.dir == "" {
		if err := b.open(); err != nil {
			return "", err
		}
	}
	root, err := moduleRoot(b.ctx)
	if err != nil {
		return "", err
	}
	fmt.Fprintf(b.progress, "building %s …\n", name)
	path := filepath.Join(b.dir, name)
	cmd := exec.CommandContext(b.ctx, "go", append(args, "-o", path, pkg)...)
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, out)
	}
	b.made[name] = path
	return path, nil
}

const binaries = "raftboard-faults-bin-"

// open makes a directory for binaries, and removes those of commands that were killed.
func (b *builds) open() error {
	left, _ := filepath.Glob(filepath.Join(os.TempDir(), binaries+"*"))
	for _, dir := range left {
		if release, err := hold(dir); err == nil { // its command is dead
			os.RemoveAll(dir)
			release()
		}
	}
	dir, err := os.MkdirTemp("", binaries)
	if err != nil {
		return err
	}
	release, err := hold(dir)
	if err != nil {
		return err
	}
	b.dir, b.release, b.made = dir, release, map[string]string{}
	return nil
}

func (b *builds) remove() {
	if b.dir != "" {
		os.RemoveAll(b.dir)
		b.release()
	}
}

// moduleRoot is where the source of raftboard is: the command builds what it tests.
func moduleRoot(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Path}} {{.Dir}}").Output()
	if errors.Is(err, exec.ErrNotFound) {
		return "", errors.New("go is not in the PATH, and the nodes are built from source; sudo may have a PATH of its own: sudo env PATH=$PATH …")
	}
	path, dir, _ := strings.Cut(strings.TrimSpace(string(out)), " ")
	if err != nil || path != "raftboard" {
		return "", fmt.Errorf("run it inside the source tree of raftboard: it builds the nodes that it tests")
	}
	return dir, nil
}

// sourceVersion is the commit of what is tested, for people; "" where git does not know.
func sourceVersion(ctx context.Context) string {
	root, err := moduleRoot(ctx)
	if err != nil {
		return ""
	}
	cmd := exec.CommandContext(ctx, "git", "describe", "--always", "--dirty")
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out))
}
