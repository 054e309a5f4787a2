package pebblex

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/sstable/block"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// Verify reads the files of a store as they are on disk. Pebble's own reads go
// through its block cache, which answers with what was there before a disk began
// to rot. Nothing of the store is changed.
type Verify struct {
	// FS is the file system; nil means the disk.
	FS vfs.FS
	// Dir is the store's directory.
	Dir string
	// Read is called before so many bytes are read, and may wait. An error ends
	// the work. Nil means that there is no hurry to keep.
	Read func(ctx context.Context, bytes int) error

	db *pebble.DB
}

// Of returns a v that knows the open store: its live tables are read, and what
// is being written is left alone. It must not be used once db is closed. Without
// it no process may have the store open.
func (v Verify) Of(db *pebble.DB) Verify {
	v.db = db
	return v
}

// Flaw is a file of a store that is not as it was written.
type Flaw struct {
	Path string
	What string
	// Damage says that stored bytes are lost or changed. Otherwise it may also be
	// the trace of a crash.
	Damage bool
}

// Verified counts what was read.
type Verified struct {
	Files int
	Bytes int64
}

// verifyStep is how much of a file is read at once, in bytes.
const verifyStep = 256 << 10

func (v Verify) withDefaults() Verify {
	if v.FS == nil {
		v.FS = vfs.Default
	}
	if v.Read == nil {
		v.Read = func(ctx context.Context, _ int) error { return ctx.Err() }
	}
	return v
}

// All checks every file of the store, logs first. The error is that of ctx, of
// Read, or of a directory that can not be listed; a file that can not be read is
// a flaw.
func (v Verify) All(ctx context.Context) (flaws []Flaw, sum Verified, err error) {
	flaws, sum, err = v.Logs(ctx)
	if err != nil {
		return flaws, sum, err
	}
	names, err := v.Tables()
	if err != nil {
		return flaws, sum, err
	}
	for _, name := range names {
		flaw, size, err := v.Table(ctx, name)
		sum.Files++
		sum.Bytes += size
		if flaw != nil {
			flaws = append(flaws, *flaw)
		}
		if err != nil {
			return flaws, sum, err
		}
	}
	return flaws, sum, nil
}

// Tables returns the names of the table files, sorted: those that the open store
// needs, else all that are in the directory. Of the latter some may be what a
// crash left of a table that was never part of the store.
func (v Verify) Tables() (names []string, err error) {
	v = v.withDefaults()
	if v.db != nil {
		levels, err := v.db.SSTables()
		if err != nil {
			return nil, fmt.Errorf("pebblex: list the tables of %s: %w", v.Dir, err)
		}
		for _, level := range levels {
			for _, t := range level {
				names = append(names, t.BackingSSTNum.String()+tableSuffix)
			}
		}
	} else {
		all, err := v.FS.List(v.Dir)
		if err != nil {
			return nil, fmt.Errorf("pebblex: list %s: %w", v.Dir, err)
		}
		for _, name := range all {
			if strings.HasSuffix(name, tableSuffix) {
				names = append(names, name)
			}
		}
	}
	slices.SortFunc(names, compareNames)
	return slices.Compact(names), nil
}

const tableSuffix = ".sst"

// compareNames orders file names by their numbers.
func compareNames(a, b string) int { return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b)) }

// Table checks one table file: its footer, the checksum of every block, and that
// the blocks and the footer are all there is, so that no byte is left out. It
// returns the size of the file. A table that the open store has replaced
// meanwhile has no flaw.
func (v Verify) Table(ctx context.Context, name string) (*Flaw, int64, error) {
	v = v.withDefaults()
	path := v.FS.PathJoin(v.Dir, name)
	f, err := v.FS.Open(path, vfs.SequentialReadsOption)
	if errors.Is(err, os.ErrNotExist) && v.db != nil {
		live, listErr := v.Tables()
		if listErr != nil {
			return nil, 0, listErr
		}
		if !slices.Contains(live, name) {
			return nil, 0, nil
		}
	}
	if err != nil {
		return &Flaw{Path: path, What: err.Error(), Damage: true}, 0, nil
	}
	info, err := f.Stat()
	if err != nil {
		return &Flaw{Path: path, What: err.Error(), Damage: true}, 0, errors.Join(ctx.Err(), f.Close())
	}
	Forget(f)
	stopped, err := v.table(ctx, f, info.Size())
	switch {
	case stopped != nil:
		return nil, 0, stopped
	case err != nil:
		return &Flaw{Path: path, What: err.Error(), Damage: true}, info.Size(), nil
	}
	return nil, info.Size(), nil
}

// table checks an open table file and closes it. stopped is why the work ended
// before anything could be said.
func (v Verify) table(ctx context.Context, f vfs.File, size int64) (stopped, err error) {
	readable, err := sstable.NewSimpleReadable(f)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	// Pebble's readers are made for blocks whose checksums were right when they
	// were written; what they make of others may be a panic.
	var r *sstable.Reader
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("its blocks can not be understood: %v", p)
		}
		if r != nil {
			err = errors.Join(err, r.Close())
		} else {
			err = errors.Join(err, readable.Close())
		}
	}()
	if r, err = sstable.NewReader(ctx, readable, sstable.ReaderOptions{}); err != nil {
		return ctx.Err(), err
	}
	layout, err := r.Layout()
	if err != nil {
		return ctx.Err(), err
	}
	at, stopped, err := v.blocks(ctx, f, r.BlockReader().ChecksumType(), blocksOf(layout))
	if stopped != nil || err != nil {
		return stopped, err
	}
	if at != layout.Footer.Offset || layout.Footer.Offset+layout.Footer.Length != uint64(size) {
		return nil, fmt.Errorf("its blocks end at %d, its footer of %d bytes begins at %d, and it has %d bytes",
			at, layout.Footer.Length, layout.Footer.Offset, size)
	}
	return nil, nil
}

// blocksOf lists the blocks of a table in the order of the file.
func blocksOf(l *sstable.Layout) []block.Handle {
	list := slices.Concat(l.Index, l.ValueBlock, []block.Handle{
		l.TopIndex, l.RangeDel, l.RangeKey, l.ValueIndex, l.Properties, l.MetaIndex, l.BlobReferenceIndex,
	})
	for _, d := range l.Data {
		list = append(list, d.Handle)
	}
	for _, f := range l.Filter {
		list = append(list, f.Handle)
	}
	list = slices.DeleteFunc(list, func(h block.Handle) bool { return h.Length == 0 })
	slices.SortFunc(list, func(a, b block.Handle) int { return cmp.Compare(a.Offset, b.Offset) })
	return list
}

// blocks checks that the blocks follow on each other from the begin of f and
// that each has its checksum, and returns where they end.
func (v Verify) blocks(ctx context.Context, f vfs.File, sum block.ChecksumType, list []block.Handle) (at uint64, stopped, err error) {
	// Pebble's own comparison looks for the one bit that may have flipped, which
	// takes minutes for a large block.
	var summer block.Checksummer
	summer.Init(sum)
	buf := make([]byte, 0, verifyStep)
	for len(list) > 0 {
		var run []block.Handle // of blocks that are read together
		need := 0
		for _, h := range list {
			size := int(h.Length) + block.TrailerLen
			if h.Offset != at+uint64(need) {
				return at, nil, fmt.Errorf("a block begins at %d, the one before it ends at %d", h.Offset, at+uint64(need))
			}
			if need > 0 && need+size > verifyStep {
				break
			}
			run, need = append(run, h), need+size
		}
		if err := v.Read(ctx, need); err != nil {
			return at, err, nil
		}
		buf = slices.Grow(buf[:0], need)[:need]
		if _, err := f.ReadAt(buf, int64(at)); err != nil {
			return at, nil, err
		}
		for _, h := range run {
			b := buf[h.Offset-at:][:int(h.Length)+block.TrailerLen]
			want := binary.LittleEndian.Uint32(b[h.Length+1:])
			if got := summer.Checksum(b[:h.Length], b[h.Length]); got != want {
				return at, nil, fmt.Errorf("the block of %d bytes at %d has the checksum %08x, stored is %08x", h.Length, h.Offset, got, want)
			}
		}
		at += uint64(need)
		list = list[len(run):]
	}
	return at, nil, nil
}
