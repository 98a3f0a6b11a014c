package netns

import (
	"fmt"
	"math/rand/v2"

	"raftboard/jepsen/nemesis"
)

// PowerOff implements nemesis.Target.
func (c *Cluster) PowerOff(nodes ...int) error {
	return fmt.Errorf("power: %w", nemesis.ErrUnsupported)
}

// Disk implements nemesis.Target.
func (c *Cluster) Disk(node int, f nemesis.DiskFault) error {
	if f == (nemesis.DiskFault{}) {
		return nil
	}
	return fmt.Errorf("disk: %w", nemesis.ErrUnsupported)
}

// Corrupt implements nemesis.Target.
func (c *Cluster) Corrupt(node int, how nemesis.Corruption, dice *rand.Rand) (string, error) {
	return "", fmt.Errorf("corruption: %w", nemesis.ErrUnsupported)
}

// Clock implements nemesis.Target.
func (c *Cluster) Clock(node int, f nemesis.ClockFault) error {
	if f == (nemesis.ClockFault{}) {
		return nil
	}
	return fmt.Errorf("clock: %w", nemesis.ErrUnsupported)
}

// Starve implements nemesis.Target.
func (c *Cluster) Starve(node int, share float64) error {
	if share == 0 {
		return nil
	}
	return fmt.Errorf("cpu: %w", nemesis.ErrUnsupported)
}

// Failpoint implements nemesis.Target.
func (c *Cluster) Failpoint(node int, spec string) error {
	return fmt.Errorf("failpoints: %w", nemesis.ErrUnsupported)
}
