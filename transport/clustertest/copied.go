package clustertest

import (
	"os"
)

// Copy makes a member of a copy of another one's data directory and disk, as they are now:
// the same node id on another host. It is started with Restart or TryRestart.
func (c *Cluster) Copy(of int) *Member {
	c.t.Helper()
	original := c.Members[of]
	m := c.newMember(original.Name)
	if err := os.CopyFS(m.Dir, os.DirFS(original.Dir)); err != nil {
		c.t.Fatal(err)
	}
	disk, err := original.Disk.Copy()
	if err != nil {
		c.t.Fatal(err)
	}
	m.Disk = disk
	return m
}
