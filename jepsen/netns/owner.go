package netns

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// prefix begins the name of everything that a run makes outside its directory.
const prefix = "rbn-"

// ownedName is a constant: prefix, pid and birth of the owner, a number, what it is.
var ownedName = regexp.MustCompile(`^` + prefix + `(\d+)\.(\d+)-(\d+)-`)

// birth is when a process began, in ticks since the machine did: a pid is used again, a pair
// of both is not. It is an error when there is no such process.
func birth(pid int) (uint64, error) {
	fields, err := statFields(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	const startTime = 19 // the 22nd of /proc/PID/stat, counted behind the name
	if len(fields) <= startTime {
		return 0, fmt.Errorf("/proc/%d/stat has %d fields", pid, len(fields))
	}
	return strconv.ParseUint(fields[startTime], 10, 64)
}

// statFields are the fields of a stat file of /proc behind the name of the program; the first
// is the state: R, S, D, T, Z.
func statFields(path string) ([]string, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	text := string(raw)
	fields := strings.Fields(text[strings.LastIndexByte(text, ')')+1:])
	if len(fields) == 0 {
		return nil, fmt.Errorf("%s: %q", path, text)
	}
	return fields, nil
}

// owner is this process as it stands in names.
func owner() (string, error) {
	born, err := birth(os.Getpid())
	return fmt.Sprintf("%s%d.%d-", prefix, os.Getpid(), born), err
}

// abandoned says whether a name is one of a run, and whoever made it is dead.
func abandoned(name string) bool {
	m := ownedName.FindStringSubmatch(filepath.Base(name))
	if m == nil {
		return false
	}
	pid, err := strconv.Atoi(m[1])
	if err != nil {
		return false
	}
	born, err := birth(pid)
	return err != nil || strconv.FormatUint(born, 10) != m[2]
}
