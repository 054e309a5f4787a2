package pebblex

import (
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// fullPause is how long a write of a table that met a full disk is held before
// the store hears of it. Pebble tries a failed flush or compaction again at once
// (cockroachdb/pebble#6139), thousands of times a second, with the processor that
// queries need. Nobody waits for a table but the next try.
const fullPause = 250 * time.Millisecond

// ioTries is how many tables in a row a bad disk may refuse before it is paced
// like a full one.
const ioTries = 1000

// openTries is how many tables may meet a full disk while the store is being
// opened. Then the process ends, because Open would never return; the next start
// finds no room and opens read-only.
const openTries = 20

// pacer slows down a store that writes tables to a full disk.
type pacer struct {
	log     *logger
	opening atomic.Bool
	full    atomic.Int32 // times the disk was full while the store was opened
	failed  atomic.Int32 // times in a row that it refused for another reason
}

// pace returns err, late if it is likely to come again.
func (p *pacer) pace(name string, err error) error {
	if err == nil {
		return nil
	}
	if !IsFull(err) {
		if p.failed.Add(1) > ioTries {
			time.Sleep(fullPause)
		}
		return err
	}
	p.log.warn("the disk is full: a table is not written and tried again", slog.String("path", name), slog.Any("err", err))
	if p.opening.Load() && p.full.Add(1) >= openTries {
		p.log.Fatalf("the disk got full while the store was opening: %v", err)
	}
	time.Sleep(fullPause)
	return err
}

// paceFS paces writes of tables, which is all that tellFS leaves alone.
type paceFS struct {
	vfs.FS
	pacer *pacer
}

// Unwrap returns the file system beneath.
func (p paceFS) Unwrap() vfs.FS { return p.FS }

// Create is vfs.FS.Create.
func (p paceFS) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := p.FS.Create(name, category)
	if (tellFS{FS: p.FS}).vital(name) {
		return f, err
	}
	if err != nil {
		return nil, p.pacer.pace(name, err)
	}
	return &paceFile{File: f, pacer: p.pacer, name: name}, nil
}

type paceFile struct {
	vfs.File
	pacer *pacer
	name  string
}

// Write is vfs.File.Write.
func (f *paceFile) Write(b []byte) (int, error) {
	n, err := f.File.Write(b)
	return n, f.pacer.pace(f.name, err)
}

// synced is the end of a table, if nothing went wrong.
func (f *paceFile) synced(err error) error {
	if err == nil {
		f.pacer.failed.Store(0)
	}
	return f.pacer.pace(f.name, err)
}

// Sync is vfs.File.Sync.
func (f *paceFile) Sync() error { return f.synced(f.File.Sync()) }

// SyncData is vfs.File.SyncData.
func (f *paceFile) SyncData() error { return f.synced(f.File.SyncData()) }

// SyncTo is vfs.File.SyncTo.
func (f *paceFile) SyncTo(length int64) (fullSync bool, err error) {
	fullSync, err = f.File.SyncTo(length)
	return fullSync, f.pacer.pace(f.name, err)
}
