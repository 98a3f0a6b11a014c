package demo

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sort"
)

// Count is what a worker finds out about one file.
type Count struct {
	Lines  uint64 `json:"lines"`
	Words  uint64 `json:"words"`
	Bytes  uint64 `json:"bytes"`
	SHA256 string `json:"sha256"`
}

// countFile reads a file once, in pieces: a file may be larger than memory should hold.
func countFile(path string) (Count, error) {
	f, err := os.Open(path)
	if err != nil {
		return Count{}, err
	}
	defer f.Close()
	return countAll(f)
}

func countAll(r io.Reader) (Count, error) {
	var c Count
	sum, inWord := sha256.New(), false
	buf := make([]byte, 64<<10)
	for {
		n, err := r.Read(buf)
		sum.Write(buf[:n])
		c.Bytes += uint64(n)
		for _, b := range buf[:n] {
			if b == '\n' {
				c.Lines++
			}
			space := b == ' ' || b >= '\t' && b <= '\r'
			if !space && !inWord {
				c.Words++
			}
			inWord = !space
		}
		if errors.Is(err, io.EOF) {
			c.SHA256 = hex.EncodeToString(sum.Sum(nil))
			return c, nil
		}
		if err != nil {
			return Count{}, err
		}
	}
}

// Totals sums up a directory. Digest covers the hash of every file in the order of its key, so two
// directories with the same sums are not taken for each other.
type Totals struct {
	Files  int    `json:"files"`
	Lines  uint64 `json:"lines"`
	Words  uint64 `json:"words"`
	Bytes  uint64 `json:"bytes"`
	Digest string `json:"digest"`
}

// total adds up counts by key.
func total(counts map[string]Count) Totals {
	keys := make([]string, 0, len(counts))
	for key := range counts {
		keys = append(keys, key)
	}
	sort.Strings(keys)
	t, sum := Totals{Files: len(keys)}, sha256.New()
	for _, key := range keys {
		c := counts[key]
		t.Lines, t.Words, t.Bytes = t.Lines+c.Lines, t.Words+c.Words, t.Bytes+c.Bytes
		fmt.Fprintf(sum, "%s %s\n", key, c.SHA256)
	}
	t.Digest = hex.EncodeToString(sum.Sum(nil))
	return t
}

// countAlone is the comparison: one process reads every file by itself.
func countAlone(ctx context.Context, dir string, names []string) (Totals, error) {
	counts := make(map[string]Count, len(names))
	for i, name := range names {
		if err := ctx.Err(); err != nil {
			return Totals{}, err
		}
		c, err := countFile(filepath.Join(dir, name))
		if err != nil {
			return Totals{}, err
		}
		counts[itemKey(i+1)] = c
	}
	return total(counts), nil
}

// itemKey names the item of the n-th file: paths are no keys.
func itemKey(n int) string { return fmt.Sprintf("claims/f-%d", n) }

// resultKey is where a worker stores what it found about an item.
func resultKey(worker, item string) string {
	return "results/" + worker + "/" + filepath.Base(item)
}
