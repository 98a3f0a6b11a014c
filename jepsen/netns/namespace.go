package netns

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// namespaces is where iproute2 keeps the named ones.
const namespaces = "/run/netns"

// toolPatience bounds one call of ip, nft, mount and the like; they take milliseconds.
const toolPatience = 30 * time.Second

// space is a network namespace of this run, and the thread that forks the processes in it.
type space struct {
	name string
	file *os.File
	work chan func()
	gone chan struct{} // closed when the thread has ended
}

// newSpace makes a namespace of a name that nobody has: mine, the first free number, what.
func newSpace(mine, what string) (*space, error) {
	const most = 1000
	for n := range most {
		s, err := makeSpace(fmt.Sprintf("%s%d-%s", mine, n, what))
		if !errors.Is(err, os.ErrExist) {
			return s, err
		}
	}
	return nil, fmt.Errorf("%d namespaces %s…-%s are there", most, mine, what)
}

// makeSpace makes a namespace; os.ErrExist when there is one of that name.
func makeSpace(name string) (*space, error) {
	path := filepath.Join(namespaces, name)
	if _, err := os.Lstat(path); err == nil {
		return nil, fmt.Errorf("namespace %s: %w", name, os.ErrExist)
	}
	if _, err := tool("", "ip", "netns", "add", name); err != nil {
		if strings.Contains(err.Error(), "File exists") {
			return nil, fmt.Errorf("namespace %s: %w", name, os.ErrExist)
		}
		return nil, err
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, errors.Join(err, dropSpace(name))
	}
	s := &space{name: name, file: file, work: make(chan func()), gone: make(chan struct{})}
	entered := make(chan error)
	go s.live(entered) // ends with close
	if err = <-entered; err == nil {
		_, err = s.run("", "ip", "link", "set", "lo", "up")
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("namespace %s: %w", name, err), s.close())
	}
	return s, nil
}

func dropSpace(name string) error {
	_, err := tool("", "ip", "netns", "del", name)
	return err
}

// live does what it is given on a thread inside the namespace, which ends with it: the
// goroutine never unlocks it. The first thread of a process cannot end, so another is taken.
func (s *space) live(entered chan<- error) {
	runtime.LockOSThread()
	if unix.Gettid() == os.Getpid() {
		other := make(chan error)
		go s.live(other)
		err := <-other
		runtime.UnlockOSThread()
		entered <- err
		return
	}
	defer close(s.gone)
	err := unix.Setns(int(s.file.Fd()), unix.CLONE_NEWNET)
	entered <- err
	if err != nil {
		return
	}
	for do := range s.work {
		do()
	}
}

// fork does something on the thread that lives as long as the namespace.
func (s *space) fork(do func() error) error {
	done := make(chan error, 1)
	s.work <- func() { done <- do() }
	return <-done
}

// inside does something on a thread that visits the namespace. What do starts in other
// goroutines is not inside.
func (s *space) inside(do func() error) error {
	runtime.LockOSThread()
	home, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		runtime.UnlockOSThread()
		return err
	}
	defer home.Close()
	if err := unix.Setns(int(s.file.Fd()), unix.CLONE_NEWNET); err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("entering namespace %s: %w", s.name, err)
	}
	err = do()
	if back := unix.Setns(int(home.Fd()), unix.CLONE_NEWNET); back != nil {
		return errors.Join(err, fmt.Errorf("leaving namespace %s: %w", s.name, back)) // the thread stays locked, and ends with its goroutine
	}
	runtime.UnlockOSThread()
	return err
}

// run runs a tool in the namespace and answers what it printed.
func (s *space) run(stdin, name string, args ...string) (out string, err error) {
	err = s.inside(func() error {
		out, err = tool(stdin, name, args...)
		return err
	})
	return out, err
}

// dial connects from an address of the namespace.
func (s *space) dial(ctx context.Context, from, to string) (conn net.Conn, err error) {
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	err = s.inside(func() error {
		conn, err = dialer.DialContext(ctx, "tcp4", to)
		return err
	})
	return conn, err
}

// listen listens in the namespace.
func (s *space) listen(addr string) (l net.Listener, err error) {
	err = s.inside(func() error {
		l, err = net.Listen("tcp4", addr)
		return err
	})
	return l, err
}

// reset ends the connections that lead from the namespace to one of some addresses: both ends
// see a reset. Needs has tried it out.
func (s *space) reset(addrs ...string) error {
	args := []string{"-K", "-H", "-t", "-n", "dst", strings.Join(addrs, " or dst ")}
	_, err := s.run("", "ss", strings.Fields(strings.Join(args, " "))...)
	return err
}

// close ends the thread, and with it the processes that it forked, and removes the namespace.
func (s *space) close() error {
	close(s.work)
	<-s.gone
	return errors.Join(s.file.Close(), dropSpace(s.name))
}

// tool runs a program of the machine and answers what it printed; an error says what it
// complained of.
func tool(stdin, name string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), toolPatience)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stdin = strings.NewReader(stdin)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a Ctrl-C is the harness's to answer
	var out, complaint bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaint
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, strings.TrimSpace(complaint.String()))
	}
	return out.String(), nil
}
