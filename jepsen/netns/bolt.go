package netns

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime/debug"
	"time"
	"unsafe"

	"go.etcd.io/bbolt"

	"raftboard/jepsen/nemesis"
)

// extent is a part of a file.
type extent struct{ at, length int64 }

// live finds where in a bolt file the values of a bucket lie: most of such a file is old or
// empty, and damage there means nothing. A file that is damaged already may be one that cannot
// be read: bolt panics, or touches memory behind the end of the file.
func live(path, bucket string) (values []extent, err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if damaged := recover(); damaged != nil {
			err = fmt.Errorf("more damage to %s: %w: it cannot be read: %v", filepath.Base(path), nemesis.ErrUnsupported, damaged)
		}
	}()
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{ReadOnly: true, Timeout: time.Second})
	if err != nil {
		return nil, err
	}
	defer db.Close()        // also after a panic: its lock must not outlive it
	start := db.Info().Data // of the file in memory, and a value is a part of it
	err = db.View(func(tx *bbolt.Tx) error {
		b := tx.Bucket([]byte(bucket))
		if b == nil {
			return nil
		}
		return b.ForEach(func(_, v []byte) error {
			if len(v) > 0 {
				values = append(values, extent{int64(uintptr(unsafe.Pointer(&v[0])) - start), int64(len(v))})
			}
			return nil
		})
	})
	if err == nil && len(values) == 0 {
		err = fmt.Errorf("damage to %s: %w: it holds nothing", filepath.Base(path), nemesis.ErrUnsupported)
	}
	return values, err
}

// flipValue flips one bit of a value that is in use.
func flipValue(path, bucket string, dice *rand.Rand) (string, error) {
	values, err := live(path, bucket)
	if err != nil {
		return "", err
	}
	v := values[dice.IntN(len(values))]
	what, err := flipAt(path, v.at+dice.Int64N(v.length), dice.IntN(8))
	return fmt.Sprintf("%s, in one of %d values", what, len(values)), err
}

// cutTail cuts a bolt file in the middle of the last value that is in use.
func cutTail(path string, dice *rand.Rand) (string, error) {
	values, err := live(path, "logs")
	if err != nil {
		return "", err
	}
	last := values[0]
	for _, v := range values {
		if v.at > last.at {
			last = v
		}
	}
	at := last.at + dice.Int64N(last.length)
	return fmt.Sprintf("%s ends at byte %d", filepath.Base(path), at), os.Truncate(path, at)
}
