package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// serveFlagSet gives the flags of serve and the variables that set them.
func serveFlagSet(t *testing.T) (flags map[string]bool, variables map[string]*pflag.Flag) {
	t.Helper()
	serve, _, err := testApp().root().Find([]string{"serve"})
	if err != nil {
		t.Fatal(err)
	}
	flags, variables = map[string]bool{}, map[string]*pflag.Flag{}
	serve.Flags().VisitAll(func(f *pflag.Flag) {
		flags[f.Name] = true
		if v := variableOf(f); v != "" {
			variables[v] = f
		}
	})
	return flags, variables
}

func TestEveryFlagAndVariableUnderDeployExists(t *testing.T) {
	flags, variables := serveFlagSet(t)
	paths, err := filepath.Glob("../../deploy/*/*")
	if err != nil || len(paths) < 2 {
		t.Fatalf("deploy holds %v (%v)", paths, err)
	}
	flagWord := regexp.MustCompile(`(?:^|[\s"'\[])--([a-z][a-z-]+)`)
	variableWord := regexp.MustCompile(`\b(RAFTBOARD_[A-Z_]*[A-Z])\b`)
	found := 0
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range flagWord.FindAllStringSubmatch(string(text), -1) {
			if name := m[1]; name != "now" && name != "help" && !flags[name] { // systemctl's, and everybody's
				t.Errorf("%s: serve has no flag --%s", path, name)
			}
			found++
		}
		for _, m := range variableWord.FindAllStringSubmatch(string(text), -1) {
			if variables[m[1]] == nil {
				t.Errorf("%s: serve has no variable %s", path, m[1])
			}
			found++
		}
	}
	if found < 10 {
		t.Errorf("only %d flags and variables were found: does this test still read the files?", found)
	}
}

// The file as it is delivered must start a node: every value is one its flag takes.
func TestEveryValueOfTheEnvironmentFileIsAccepted(t *testing.T) {
	_, variables := serveFlagSet(t)
	text, err := os.ReadFile("../../deploy/systemd/raftboard.env")
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range strings.Split(string(text), "\n") {
		name, value, is := strings.Cut(strings.TrimPrefix(line, "#"), "=")
		if f := variables[name]; is && f != nil {
			if err := f.Value.Set(value); err != nil {
				t.Errorf("%s=%s: %v", name, value, err)
			}
		}
	}
}

func TestTheUnitNotifiesAndIsHardened(t *testing.T) {
	text, err := os.ReadFile("../../deploy/systemd/raftboard.service")
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{"Type=notify", "StateDirectory=raftboard", "ProtectSystem=strict", "NoNewPrivileges=yes",
		"LimitNOFILE=65536", "Restart=on-failure", "TimeoutStopSec=60"} {
		if !strings.Contains(string(text), "\n"+line+"\n") {
			t.Errorf("the unit has no line %s", line)
		}
	}
}
