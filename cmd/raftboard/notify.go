package main

import (
	"net"
	"os"
	"strings"
)

// notifier speaks systemd's protocol: datagrams of NAME=VALUE lines to the socket in NOTIFY_SOCKET.
type notifier struct{ conn net.Conn }

// newNotifier gives a silent one where systemd does not listen.
func newNotifier() *notifier {
	path := os.Getenv("NOTIFY_SOCKET")
	if path == "" {
		return &notifier{}
	}
	if strings.HasPrefix(path, "@") {
		path = "\x00" + path[1:] // an abstract socket
	}
	conn, err := net.Dial("unixgram", path)
	if err != nil {
		return &notifier{} // not being supervised is no reason not to serve
	}
	return &notifier{conn: conn}
}

func (n *notifier) say(lines ...string) {
	if n.conn != nil {
		n.conn.Write([]byte(strings.Join(lines, "\n")))
	}
}
