package pebblex

import (
	"bytes"
	"container/heap"
	"context"
	"errors"
	"fmt"
	"iter"
	"os"
	"slices"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// Salvage is what can still be read of a store, taken from its files without
// opening it: nothing is written, locked or replayed, and neither the manifest
// nor the options have a say.
//
// That is sound for a store that only ever sets new keys, and for no other. The
// union of all keys in all its tables and logs is then its content: a table that
// a compaction has replaced, or a log that was flushed, holds nothing but what is
// also elsewhere. Two values under one key can not be; they are handed out both.
//
// A Salvage may be used from many goroutines. It holds the entries of the logs
// (a few memtables) and the first key of every block in memory.
type Salvage struct {
	fs      vfs.FS
	tables  []*salvagedTable
	logs    []*salvagedLog
	damages []Damage
}

// Damage is a place of a store that can not be read, or that holds what an
// append-only store does not.
type Damage struct {
	File   string // path
	Offset int64  // in the file, in bytes; -1 for the file as a whole
	What   string
}

// String names the place and what is wrong with it.
func (d Damage) String() string {
	if d.Offset < 0 {
		return d.File + ": " + d.What
	}
	return fmt.Sprintf("%s at %d: %s", d.File, d.Offset, d.What)
}

// Salvaged is one key of a store. Its slices are valid until the next step of
// the iteration.
type Salvaged struct {
	Key, Value []byte
	Source     string // path of the file that the value is from
	// Others are values of the key that differ from Value, each once, with the
	// file it is from: one of them is not what was written, and which is for the
	// caller to prove.
	Others []Version
}

// Version is another value of a key.
type Version struct {
	Value  []byte
	Source string
}

// OpenSalvage reads every table and every log in dir once. Files and blocks that
// can not be read are [Salvage.Damages], also when that is all of them; a dir
// that is missing is one. The error is that of ctx, or of listing dir.
func OpenSalvage(ctx context.Context, fs vfs.FS, dir string) (*Salvage, error) {
	if fs == nil {
		fs = vfs.Default
	}
	s := &Salvage{fs: fs}
	names, err := fs.List(dir)
	if errors.Is(err, os.ErrNotExist) {
		s.damage(dir, -1, "the directory is missing")
		return s, nil
	}
	if err != nil {
		return nil, fmt.Errorf("pebblex: salvage %s: %w", dir, err)
	}
	slices.Sort(names)
	for _, name := range names {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		path := fs.PathJoin(dir, name)
		switch {
		case strings.HasSuffix(name, ".sst"):
			s.openTable(path)
		case strings.HasSuffix(name, ".log"):
			s.openLog(path)
		}
	}
	return s, nil
}

// Damages returns what could not be read, in the order of the files' names.
func (s *Salvage) Damages() []Damage { return slices.Clone(s.damages) }

func (s *Salvage) damage(file string, offset int64, format string, args ...any) {
	s.damages = append(s.damages, Damage{File: file, Offset: offset, What: fmt.Sprintf(format, args...)})
}

// source is a sorted run of keys. key and value are valid until next.
type source interface {
	key() []byte
	value() []byte // valid only if loaded
	path() string
	// loaded reports whether a key is at hand. If not, key is one that is not
	// greater than the next, and load gets that; more is false at the end.
	loaded() bool
	load() (more bool, err error)
	// next steps on; more is false at the end.
	next() (more bool, err error)
	close() error
}

// Range returns the keys from lower to below upper, each once, in order. An
// error means that a file could be read when the Salvage was made and can not be
// now; it ends the iteration.
func (s *Salvage) Range(lower, upper []byte) iter.Seq2[Salvaged, error] {
	return func(yield func(Salvaged, error) bool) {
		m := &merge{upper: upper}
		defer m.close()
		for _, t := range s.tables {
			m.add(t.cursor(s.fs, lower, upper))
		}
		for _, l := range s.logs {
			m.add(l.cursor(lower, upper))
		}
		heap.Init(m)
		for {
			entry, ok, err := m.next()
			if err != nil {
				yield(Salvaged{}, err)
				return
			}
			if !ok || !yield(entry, nil) {
				return
			}
		}
	}
}

// merge is a heap of sources by their keys.
type merge struct {
	upper   []byte
	sources []source
}

// Len, Less, Swap, Push and Pop are those of heap.Interface.
func (m *merge) Len() int           { return len(m.sources) }
func (m *merge) Less(i, j int) bool { return bytes.Compare(m.sources[i].key(), m.sources[j].key()) < 0 }
func (m *merge) Swap(i, j int)      { m.sources[i], m.sources[j] = m.sources[j], m.sources[i] }
func (m *merge) Push(x any)         { m.add(x.(source)) }

// Pop takes the last source off.
func (m *merge) Pop() any {
	last := len(m.sources) - 1
	x := m.sources[last]
	m.sources = m.sources[:last]
	return x
}

func (m *merge) add(src source) {
	if src != nil {
		m.sources = append(m.sources, src)
	}
}

func (m *merge) close() {
	for _, src := range m.sources {
		_ = src.close() // it was only read
	}
}

// next takes the least key off all sources that have it.
func (m *merge) next() (entry Salvaged, ok bool, err error) {
	for first := true; len(m.sources) > 0; {
		top := m.sources[0]
		if !first && !bytes.Equal(top.key(), entry.Key) {
			break
		}
		step := top.next
		switch {
		case !top.loaded():
			step = top.load
		case first:
			entry = Salvaged{Key: bytes.Clone(top.key()), Value: bytes.Clone(top.value()), Source: top.path()}
			first = false
		case !entry.has(top.value()):
			entry.Others = append(entry.Others, Version{bytes.Clone(top.value()), top.path()})
		}
		more, err := step()
		if err == nil {
			err = m.settle(more)
		}
		if err != nil {
			return Salvaged{}, false, err
		}
	}
	if entry.Key == nil || bytes.Compare(entry.Key, m.upper) >= 0 {
		return Salvaged{}, false, nil
	}
	return entry, true, nil
}

// settle gives the first source its place, or ends it.
func (m *merge) settle(more bool) error {
	if more && bytes.Compare(m.sources[0].key(), m.upper) < 0 {
		heap.Fix(m, 0)
		return nil
	}
	return heap.Pop(m).(source).close()
}

func (e *Salvaged) has(value []byte) bool {
	return bytes.Equal(e.Value, value) ||
		slices.ContainsFunc(e.Others, func(v Version) bool { return bytes.Equal(v.Value, value) })
}
