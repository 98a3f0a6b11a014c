//go:build !faults

package transport

import "raftboard/node"

func (s *Server) timeLeases(*node.Node) {}
