package demo

import (
	"embed"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"unicode/utf8"
)

//go:embed data
var texts embed.FS

// unpack writes the embedded collection below dir, where workers can read it as files.
func unpack(dir string) error {
	return fs.WalkDir(texts, "data", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := texts.ReadFile(path)
		if err != nil {
			return err
		}
		target := filepath.Join(dir, filepath.FromSlash(path[len("data/"):]))
		if err := os.MkdirAll(filepath.Dir(target), 0o700); err != nil {
			return err
		}
		return os.WriteFile(target, text, 0o600)
	})
}

// maxFiles bounds what one demo posts: the events of more would be trimmed before they are counted
// (an item makes about four, a board keeps 100,000).
const maxFiles = 20_000

// files lists the regular files below dir, relative to it, in lexical order.
func files(dir string) ([]string, error) {
	var out []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		rel, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		if !utf8.ValidString(rel) {
			return fmt.Errorf("the name %q is not UTF-8: an item names its file in JSON", rel)
		}
		if len(out) == maxFiles {
			return fmt.Errorf("%s holds more than %d files", dir, maxFiles)
		}
		out = append(out, rel)
		return nil
	})
	if err == nil && len(out) == 0 {
		err = fmt.Errorf("%s holds no files", dir)
	}
	return out, err
}
