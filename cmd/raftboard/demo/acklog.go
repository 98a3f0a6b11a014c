package demo

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// What a log line says. Only Posted, Claimed and Completed are acknowledgements.
const (
	Posted     = "posted"     // the parent: an item was accepted
	Claimed    = "claimed"    // a lease was granted
	Holding    = "holding"    // asked to work long on this one
	Completing = "completing" // about to send the result; the numbers are here
	Completed  = "completed"  // the completion was accepted
	Refused    = "refused"    // a write under a lease was refused
)

// Ack is one line of a worker's own log.
type Ack struct {
	At         int64  `json:"at_ns"` // wall clock of this machine; for pauses only
	Kind       string `json:"kind"`
	Key        string `json:"key"`
	Generation uint64 `json:"generation,omitempty"`
	Rev        uint64 `json:"rev,omitempty"`
	Code       string `json:"code,omitempty"`
	Count      *Count `json:"count,omitempty"`
}

// ackLog appends lines to a file. A line reaches the kernel before append returns, so it survives
// the death of the process; the machine is not expected to lose power, so nothing is synced.
type ackLog struct {
	mu sync.Mutex
	f  *os.File
}

func openAckLog(path string) (*ackLog, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	return &ackLog{f: f}, nil
}

func (l *ackLog) append(a Ack) error {
	a.At = time.Now().UnixNano()
	line, err := json.Marshal(a)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	_, err = l.f.Write(append(line, '\n'))
	return err
}

func (l *ackLog) close() error { return l.f.Close() }

// readAckLogs reads the log of every writer: files named after who wrote them. A last line cut off
// by a kill was never an acknowledgement to anybody and is skipped.
func readAckLogs(dir string) (map[string][]Ack, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*.acks"))
	if err != nil {
		return nil, err
	}
	out := make(map[string][]Ack, len(paths))
	for _, path := range paths {
		name := filepath.Base(path)
		acks, err := readAckLog(path)
		if err != nil {
			return nil, err
		}
		out[name[:len(name)-len(".acks")]] = acks
	}
	return out, nil
}

func readAckLog(path string) ([]Ack, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	acks, _, err := parseAcks(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return acks, nil
}

// parseAcks reads whole lines, and says how many bytes they took.
func parseAcks(r io.Reader) (acks []Ack, whole int64, err error) {
	lines := bufio.NewReader(r)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return acks, whole, nil // the rest is no whole line (yet)
		}
		var a Ack
		if err := json.Unmarshal(line, &a); err != nil {
			return nil, whole, err
		}
		acks, whole = append(acks, a), whole+int64(len(line))
	}
}
