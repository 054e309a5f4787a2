package pebblex

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// A Swap puts a directory that was built aside in the place of a damaged one,
// which stays as evidence. The names, for a directory D: D.new is being built,
// D.damaged-<UTC time> is what was there before.
//
// D.new is complete when, and only when, D is missing: the first step of Commit
// moves D away. So a crash at any point is told by the names alone, and Resume
// ends what was begun.
type Swap struct {
	FS  vfs.FS // nil means the disk
	Dir string // D
	Now func() time.Time
}

func (s Swap) fs() vfs.FS {
	if s.FS == nil {
		return vfs.Default
	}
	return s.FS
}

// New is the directory that is built aside.
func (s Swap) New() string { return s.Dir + ".new" }

const damagedInfix = ".damaged-"

// Pending reports whether a repair of dir was begun and has not ended: its store
// must not be used.
func Pending(fs vfs.FS, dir string) (bool, error) {
	return there(Swap{FS: fs}.fs(), Swap{Dir: dir}.New())
}

func there(fs vfs.FS, path string) (bool, error) {
	_, err := fs.Stat(path)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("pebblex: look at %s: %w", path, err)
	}
	return true, nil
}

// Resume ends a swap that a crash has cut short, and removes what was half built.
// It reports whether it ended one. After it Dir must be there, be it empty,
// before anything is built.
func (s Swap) Resume() (ended bool, err error) {
	fs := s.fs()
	half, err := there(fs, s.New())
	if err != nil || !half {
		return false, err
	}
	old, err := there(fs, s.Dir)
	if err != nil {
		return false, err
	}
	evidence, err := s.evidence()
	if err != nil {
		return false, err
	}
	if !old && len(evidence) > 0 {
		return true, s.move(s.New(), s.Dir)
	}
	return false, s.Discard()
}

// Discard removes what was built aside.
func (s Swap) Discard() error {
	if err := s.fs().RemoveAll(s.New()); err != nil {
		return fmt.Errorf("pebblex: remove %s: %w", s.New(), err)
	}
	return SyncDir(s.FS, s.fs().PathDir(s.Dir))
}

// evidence lists what Commit has moved away so far.
func (s Swap) evidence() (paths []string, err error) {
	fs := s.fs()
	parent := fs.PathDir(s.Dir)
	names, err := fs.List(parent)
	if err != nil {
		return nil, fmt.Errorf("pebblex: list %s: %w", parent, err)
	}
	for _, name := range names {
		if strings.HasPrefix(name, fs.PathBase(s.Dir)+damagedInfix) {
			paths = append(paths, fs.PathJoin(parent, name))
		}
	}
	return paths, nil
}

// Commit puts New, which is complete and synced, in the place of Dir. evidence is
// where Dir is from then on.
func (s Swap) Commit() (evidence string, err error) {
	evidence, err = s.freeName()
	if err != nil {
		return "", err
	}
	if err := s.move(s.Dir, evidence); err != nil {
		return "", err
	}
	return evidence, s.move(s.New(), s.Dir)
}

// freeName is a name for evidence that is not taken.
func (s Swap) freeName() (string, error) {
	for at := s.Now().UTC(); ; at = at.Add(time.Second) {
		name := s.Dir + damagedInfix + at.Format("20060102T150405Z")
		if taken, err := there(s.fs(), name); err != nil || !taken {
			return name, err
		}
	}
}

func (s Swap) move(from, to string) error {
	fs := s.fs()
	if err := fs.Rename(from, to); err != nil {
		return fmt.Errorf("pebblex: move %s to %s: %w", from, to, err)
	}
	return SyncDir(s.FS, fs.PathDir(to))
}
