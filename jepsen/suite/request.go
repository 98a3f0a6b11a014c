package suite

import (
	"encoding/json"
	"os"
	"time"

	"raftboard/jepsen/check"
)

// RequestEnv names the variable through which the command asks the test binary of the driver
// on virtual time for runs: virtual time exists only inside a test. The binary answers with
// one Outcome as a line of JSON for each run, each behind AnswerMark.
const (
	RequestEnv = "RAFTBOARD_FAULTS_REQUEST"
	AnswerMark = "faults-outcome: "
)

// Request asks for runs of the same plan with several seeds.
type Request struct {
	Plans    []Plan `json:"plans"`
	Dir      string `json:"dir"`      // where runs that are to be kept go, each into a directory of its own; "": nowhere
	KeepAll  bool   `json:"keep_all"` // also runs that are VALID
	Parallel int    `json:"parallel"` // runs at the same time; at least 1
}

// Asked is the request in the environment, if there is one.
func Asked() (*Request, error) {
	text := os.Getenv(RequestEnv)
	if text == "" {
		return nil, nil
	}
	r := &Request{}
	if err := json.Unmarshal([]byte(text), r); err != nil {
		return nil, err
	}
	return r, nil
}

// Finished judges what a run left, keeps it where the request wants that, and sums it up.
func (r *Request) Finished(p Plan, rec Recording, began time.Time) Outcome {
	if rec.Err != nil {
		return Failure(p, rec.Err)
	}
	j := check.Whole(rec.History)
	o := Conclude(p, rec.History, j)
	if r.Dir != "" && (r.KeepAll || j.Verdict != check.VALID) {
		o.Dir = r.Dir + "/" + p.Name()
		if err := Store(o.Dir, rec.History, j); err != nil {
			o.Error = "the run was judged and could not be kept: " + err.Error()
		}
	}
	o.Took = time.Since(began)
	return o
}
