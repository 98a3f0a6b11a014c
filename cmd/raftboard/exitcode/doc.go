// Package exitcode is the one place that turns an error into the status a shell sees.
//
// Every command returns an error; main asks From for a number and Explain for the words. The
// numbers are part of the interface and never change: a script tells "somebody else was
// faster" (4) from "nobody answered" (5) without reading a message. An error that carries a
// Result is judged by its outcome or code; one that carries a status says its own; whatever
// is left is 1.
package exitcode
