package demo

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
)

// Ports are taken below the range that systems give to outgoing connections: the port of a node
// that is down would otherwise be handed to somebody before the node is back.
const (
	firstPort = 20_000
	lastPort  = 32_000
	portTries = 2_000
)

// freePorts finds n ports of 127.0.0.1 on which nobody listens.
func freePorts(n int) ([]int, error) {
	var ports []int
	taken := map[int]bool{}
	for range portTries {
		port := firstPort + rand.IntN(lastPort-firstPort)
		if taken[port] {
			continue
		}
		taken[port] = true
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			continue
		}
		l.Close()
		if ports = append(ports, port); len(ports) == n {
			return ports, nil
		}
	}
	return nil, errors.New("no free ports on 127.0.0.1 between 20000 and 32000")
}
