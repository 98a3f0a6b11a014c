// Package report turns a run into pages that a person can judge.
//
// Run writes one HTML page of a history and the judgement of it: first the verdict with its
// first witness and the story of it, then what was asked and answered, what was done to the
// cluster, and pictures along one time axis: latency, rate, nodes, leases, feed, appended
// elements. Suite writes the page over many runs: the grid of workloads and nemeses, the
// planted bugs and who caught them, what was found, and what was not tested. Story is the
// short text of a failure, for a terminal and for the page.
//
// A page is one file. It loads nothing, and its policy forbids the browser to: whoever keeps
// the file has all of it. Pictures are SVG that is written here; the script in the page only
// zooms and reads off times, and without it nothing is lost.
//
// Keys, values, names and messages in a history are other people's text. They reach the page
// through html/template and the terminal with everything that does not print spelled out.
//
// A page is bounded. Where a history has more than can be drawn, a sample is drawn and the
// page says how many of how many. Where a history lacks what a picture needs, the page says
// that instead of showing an empty one.
//
// The package judges nothing: what it marks as an anomaly in a picture is what the picture
// shows, and the verdict is the one it was given.
package report
