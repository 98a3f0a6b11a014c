package render

import (
	"fmt"
	"time"
)

// Duration shows milliseconds in at most two units: "8m12s", "0m04s", "6d3h", "48ms".
func Duration(ms int64) string {
	if ms < 0 {
		return "-" + Duration(-ms)
	}
	d := time.Duration(ms) * time.Millisecond
	switch {
	case d < time.Second:
		return fmt.Sprintf("%dms", ms)
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", d/time.Minute, d%time.Minute/time.Second)
	case d < 24*time.Hour:
		return fmt.Sprintf("%dh%02dm", d/time.Hour, d%time.Hour/time.Minute)
	}
	return fmt.Sprintf("%dd%dh", d/(24*time.Hour), d%(24*time.Hour)/time.Hour)
}

// Bytes shows a size in one binary unit: "812 B", "1.9 KiB", "14.2 MiB".
func Bytes(n uint64) string {
	if n < 1024 {
		return fmt.Sprintf("%d B", n)
	}
	value, units := float64(n)/1024, []string{"KiB", "MiB", "GiB", "TiB"}
	i := 0
	for value >= 1024 && i < len(units)-1 {
		value, i = value/1024, i+1
	}
	return fmt.Sprintf("%.1f %s", value, units[i])
}

// Or returns s, or "-" for nothing: an empty cell would shift columns for awk.
func Or(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
