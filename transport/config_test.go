package transport

import (
	"errors"
	"testing"
	"time"
)

func usable() Config {
	c := DefaultConfig()
	c.Name, c.DataDir, c.Auth = "n1", "/nowhere", AuthOff
	return c
}

func TestAuthOffStaysOnLoopbackUnlessThatIsWaived(t *testing.T) {
	for _, addr := range []string{"127.0.0.1:1", "127.5.5.5:1", "localhost:1", "[::1]:1"} {
		c := usable()
		c.GRPCAddr, c.RaftAddr, c.AdminAddr = addr, addr, addr
		if err := c.Validate(); err != nil || c.exposed() {
			t.Errorf("%s: %v, exposed %v", addr, err, c.exposed())
		}
	}
	for _, addr := range []string{"0.0.0.0:1", ":1", "10.1.2.3:1", "[::]:1", "n1.example.net:1"} {
		for setting, change := range map[string]func(*Config){
			"grpc-addr":  func(c *Config) { c.GRPCAddr = addr },
			"raft-addr":  func(c *Config) { c.RaftAddr = addr },
			"admin-addr": func(c *Config) { c.AdminAddr = addr },
		} {
			c := usable()
			change(&c)
			var wrong *ConfigError
			if err := c.Validate(); !errors.As(err, &wrong) || wrong.Setting != setting || wrong.Hint == "" {
				t.Errorf("%s on %s: got %v", setting, addr, err)
			}
			c.UnsafeNoAuthOnNetwork = true
			if err := c.Validate(); err != nil || !c.exposed() {
				t.Errorf("%s on %s with the waiver: %v, exposed %v", setting, addr, err, c.exposed())
			}
		}
	}
}

func TestASettingThatCannotServeIsNamed(t *testing.T) {
	for setting, change := range map[string]func(*Config){
		"auth":             func(c *Config) { c.Auth = "" },
		"node-name":        func(c *Config) { c.Name = "" },
		"data-dir":         func(c *Config) { c.DataDir = "" },
		"join":             func(c *Config) { c.BootstrapExpect = 3 },
		"bootstrap-expect": func(c *Config) { c.BootstrapExpect = -1 },
		"nonvoter":         func(c *Config) { c.Nonvoter, c.BootstrapExpect = true, 1 },
		"grpc-addr":        func(c *Config) { c.GRPCAddr = "8970" },
		"timing":           func(c *Config) { c.Timing.Lease = 2 * time.Second },
		"limits":           func(c *Config) { c.Limits.Watchers = 0 },
	} {
		c := usable()
		change(&c)
		var wrong *ConfigError
		if err := c.Validate(); !errors.As(err, &wrong) || wrong.Setting != setting || wrong.Hint == "" {
			t.Errorf("want an error that names %s and the way on, got %v", setting, err)
		}
	}
	c := usable()
	c.Auth = "token"
	if err := c.Validate(); err == nil {
		t.Error("an authentication that is not built was accepted")
	}
}
