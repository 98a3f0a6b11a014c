package netns

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"strings"
	"time"

	"raftboard/jepsen/history"
)

// followEvery is how far the log may be behind what a process wrote into its trace.
const followEvery = 20 * time.Millisecond

// follow reads the trace of a life into the log while it is written, until the process has
// ended. What cannot be read is noted: without it the run proves nothing.
func (n *node) follow(l *life, path string) {
	reader := history.NewTraceReader(n.c.opt.Log, n.name, l.number)
	var file *os.File
	ticker := time.NewTicker(followEvery)
	defer ticker.Stop()
	var err error
	for over := false; !over && err == nil; {
		select {
		case <-ticker.C:
		case <-l.ended:
			over = true
		}
		if file == nil {
			if file, err = os.Open(path); errors.Is(err, fs.ErrNotExist) {
				err = nil // it has not come to that, or never will
				continue
			}
		}
		if err == nil {
			_, err = io.Copy(reader, file)
		}
	}
	if file != nil {
		err = errors.Join(err, file.Close(), reader.End())
	}
	if err != nil {
		n.c.opt.Log.Note(history.Note{Kind: history.NoteFatal, Node: n.name, Text: clip(err.Error())})
	}
}

// alarms are what a process must never say, whatever is done to it.
func alarms() map[string]string {
	return map[string]string{"panic: ": history.NotePanic, "fatal error: ": history.NoteFatal, "WARNING: DATA RACE": history.NoteRace}
}

// planted begins what a process says that was made to break at a failpoint.
const planted = "panic: planted: failpoint"

// overheard notes what a life said that must never be said. Called when it is over.
func (n *node) overheard(l *life) {
	file, err := os.Open(l.log)
	if err != nil {
		n.c.opt.Log.Note(history.Note{Kind: history.NoteFatal, Node: n.name, Text: clip(err.Error())})
		return
	}
	defer file.Close()
	most := l.upTo
	if most == 0 {
		most = math.MaxInt64
	}
	lines := bufio.NewReader(io.LimitReader(file, most))
	for {
		line, err := lines.ReadString('\n')
		for mark, kind := range alarms() {
			if strings.HasPrefix(line, mark) && !strings.HasPrefix(line, planted) {
				n.c.opt.Log.Note(history.Note{Kind: kind, Node: n.name, Text: clip(fmt.Sprintf("life %d: %s", l.number, line))})
			}
		}
		if err != nil {
			return
		}
	}
}

// lastWords are the end of what a process said, on one line.
func lastWords(path string) string {
	const most = 2048
	file, err := os.Open(path)
	if err != nil {
		return err.Error()
	}
	defer file.Close()
	if size, err := file.Seek(0, io.SeekEnd); err == nil {
		file.Seek(max(0, size-most), io.SeekStart)
	}
	text, _ := io.ReadAll(io.LimitReader(file, most))
	lines := bytes.Split(bytes.TrimSpace(text), []byte{'\n'})
	return clip(string(bytes.Join(lines[max(0, len(lines)-4):], []byte(" | "))))
}

func clip(s string) string {
	const most = 1000
	if s = strings.TrimSpace(s); len(s) > most {
		return "…" + s[len(s)-most:]
	}
	return s
}
