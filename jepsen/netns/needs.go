package netns

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"
)

// Needs says what this machine lacks to run the driver, and what to do about it; nil if
// nothing. It tries out what it can, and leaves nothing behind.
func Needs() error {
	if os.Geteuid() != 0 {
		return errors.New("the driver of real processes makes namespaces, file systems and cgroups, and needs root: run it as root, or use the driver sim")
	}
	packages := map[string]string{"ip": "iproute2", "ss": "iproute2", "nft": "nftables", "mkfs.ext4": "e2fsprogs",
		"losetup": "mount", "mount": "mount", "umount": "mount"}
	var missing, install []string
	for _, tool := range []string{"ip", "ss", "nft", "mkfs.ext4", "losetup", "mount", "umount"} {
		if _, err := exec.LookPath(tool); err != nil {
			missing = append(missing, tool)
			if p := packages[tool]; !strings.Contains(strings.Join(install, " "), p) {
				install = append(install, p)
			}
		}
	}
	if missing != nil {
		return fmt.Errorf("the driver of real processes needs %s: apt-get install %s",
			strings.Join(missing, ", "), strings.Join(install, " "))
	}
	if err := tryNamespace(); err != nil {
		return fmt.Errorf("the driver of real processes needs network namespaces with nftables, which this kernel or container does not allow: %w", err)
	}
	return nil
}

// tryNamespace makes a namespace, and in it the kinds of rule that faults are made of.
func tryNamespace() error {
	mine, err := owner()
	if err != nil {
		return err
	}
	s, err := newSpace(mine, "try")
	if err != nil {
		return err
	}
	_, err = s.run(`table inet try {
		counter seen { }
		chain in {
			type filter hook input priority 0; policy accept;
			ip saddr 10.77.0.1 counter name seen drop
			ip saddr 10.77.0.2 meta l4proto tcp counter name seen reject with tcp reset
			ip saddr 10.77.0.3 numgen random mod 10000 < 100 counter name seen drop
		}
		chain out { type nat hook output priority -100; ip daddr 10.77.0.4 dnat ip to 10.77.1.4; }
	}`, "nft", "-f", "-")
	if err == nil {
		err = tryReset(s)
	}
	return errors.Join(err, s.close())
}

// tryReset resets a connection, which needs a kernel with INET_DIAG_DESTROY: without it ss
// does nothing.
func tryReset(s *space) error {
	const here = "127.0.0.1"
	l, err := s.listen(here + ":0")
	if err != nil {
		return err
	}
	defer l.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	conn, err := s.dial(ctx, here, l.Addr().String())
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := errors.Join(s.reset(here), conn.SetReadDeadline(time.Now().Add(time.Second))); err != nil {
		return err
	}
	if _, err := conn.Read(make([]byte, 1)); errors.Is(err, os.ErrDeadlineExceeded) {
		return errors.New("ss -K does not end a connection: the kernel is built without INET_DIAG_DESTROY")
	}
	return nil
}
