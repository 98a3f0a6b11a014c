package transport

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"google.golang.org/protobuf/proto"

	wirepb "raftboard/transport/pb"
)

// A connection to the Raft port begins with one exchange: the caller says which cluster
// and node it is and whom it means to reach, the other side says who it is or why not.
// Each message is framed as "RBR1", its length in four bytes, and a protobuf message.
// Both sides read exactly these bytes: what follows belongs to Raft.
const (
	handshakeMagic   = "RBR1"
	maxHandshake     = 64 << 10
	handshakeTimeout = 5 * time.Second
)

// greet is the caller's half. It answers the other side's hello, or why the two do not
// belong together; the connection is then of no use.
func greet(conn net.Conn, hello *wirepb.HelloRequest) (*wirepb.HelloResponse, error) {
	if err := conn.SetDeadline(time.Now().Add(handshakeTimeout)); err != nil {
		return nil, err
	}
	if err := writeFrame(conn, hello); err != nil {
		return nil, fmt.Errorf("saying hello: %w", err)
	}
	answer := new(wirepb.HelloResponse)
	if err := readFrame(conn, answer); err != nil {
		return nil, fmt.Errorf("waiting for the other side's hello: %w", err)
	}
	if answer.Refused != "" {
		return nil, fmt.Errorf("refused by %s: %s", clip(answer.GetNode().GetName(), 64), clip(answer.Refused, 512))
	}
	if answer.ClusterId != hello.ClusterId {
		return nil, fmt.Errorf("reached cluster %s, this is cluster %s", clip(answer.ClusterId, 64), hello.ClusterId)
	}
	if id := answer.GetNode().GetId(); id != hello.To {
		return nil, fmt.Errorf("reached node %s, wanted %s", clip(id, 64), hello.To)
	}
	return answer, conn.SetDeadline(time.Time{})
}

// welcome is the accepting half. answer decides: a non-empty Refused is sent and then
// returned as an error.
func welcome(conn net.Conn, answer func(*wirepb.HelloRequest) *wirepb.HelloResponse) (*wirepb.HelloRequest, error) {
	if err := conn.SetDeadline(time.Now().Add(handshakeTimeout)); err != nil {
		return nil, err
	}
	hello := new(wirepb.HelloRequest)
	if err := readFrame(conn, hello); err != nil {
		return nil, fmt.Errorf("waiting for a hello: %w", err)
	}
	reply := answer(hello)
	if err := writeFrame(conn, reply); err != nil {
		return nil, fmt.Errorf("answering a hello: %w", err)
	}
	if reply.Refused != "" {
		return nil, fmt.Errorf("refused node %s (%s): %s",
			clip(hello.GetNode().GetId(), 64), clip(hello.GetNode().GetName(), 64), reply.Refused)
	}
	return hello, conn.SetDeadline(time.Time{})
}

func writeFrame(w io.Writer, m proto.Message) error {
	frame := append([]byte(handshakeMagic), 0, 0, 0, 0)
	frame, err := proto.MarshalOptions{}.MarshalAppend(frame, m)
	if err != nil {
		return err
	}
	size := len(frame) - len(handshakeMagic) - 4
	if size > maxHandshake {
		return fmt.Errorf("a hello of %d bytes; at most %d fit", size, maxHandshake)
	}
	binary.BigEndian.PutUint32(frame[len(handshakeMagic):], uint32(size))
	_, err = w.Write(frame)
	return err
}

func readFrame(r io.Reader, m proto.Message) error {
	var head [len(handshakeMagic) + 4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return err
	}
	if string(head[:len(handshakeMagic)]) != handshakeMagic {
		return errors.New("the other side does not speak the Raft port's protocol (is this the gRPC port?)")
	}
	size := binary.BigEndian.Uint32(head[len(handshakeMagic):])
	if size > maxHandshake {
		return fmt.Errorf("a hello of %d bytes was announced; at most %d are read", size, maxHandshake)
	}
	body := make([]byte, size)
	if _, err := io.ReadFull(r, body); err != nil {
		return err
	}
	return proto.Unmarshal(body, m)
}
