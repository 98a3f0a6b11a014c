package fsm

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"raftboard/fsm/board"
	boardpb "raftboard/fsm/pb"
)

// Story is what a golden script sent into the log, for whoever sends it elsewhere.
type Story struct {
	Name     string
	Commands []*boardpb.Command
	At       []int64           // board time of each, from the script's beginning
	Answers  []*boardpb.Result // of each, here
	Names    map[string]string // random id → its name
}

// Stories runs every golden script and records it. What a leader sends by itself (leads,
// ticks, levels, records of nodes) is left out.
func Stories(t *testing.T) (stories []*Story) {
	t.Helper()
	paths, err := filepath.Glob("testdata/*.txt")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		golden, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		s := run(t, string(golden), 1)
		story := &Story{Name: strings.TrimSuffix(filepath.Base(path), ".txt"), Names: s.known}
		for i, l := range s.log {
			batch := &boardpb.Batch{}
			if err := proto.Unmarshal(l.Data, batch); err != nil {
				t.Fatal(err)
			}
			for _, c := range batch.Commands {
				if c.Actor.GetPrincipal() == board.SystemActor().Principal {
					continue
				}
				story.Commands = append(story.Commands, c)
				story.At = append(story.At, batch.Stamp.TMs-scriptZero)
				story.Answers = append(story.Answers, s.answers[i])
			}
		}
		stories = append(stories, story)
	}
	return stories
}
