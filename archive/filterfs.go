package archive

import (
	"fmt"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/verae/archive/bloom"
	"github.com/verae/archive/internal/pebblex"
)

// filterFS is the archive's disk as snapshots of the filter need it. Nothing but
// the filter's own directory is touched through it.
type filterFS struct{ fs vfs.FS }

var _ bloom.FS = filterFS{}

func (d filterFS) Create(name string) (bloom.File, error) {
	return filterFileOf(d.fs.Create(name, vfs.WriteCategoryUnspecified))
}

func (d filterFS) Open(name string) (bloom.File, error) {
	return filterFileOf(d.fs.Open(name, vfs.SequentialReadsOption))
}

func (d filterFS) Rename(from, to string) error { return d.fs.Rename(from, to) }

func (d filterFS) Remove(name string) error { return d.fs.Remove(name) }

func (d filterFS) SyncDir(dir string) error { return pebblex.SyncDir(d.fs, dir) }

type filterFile struct{ vfs.File }

func filterFileOf(f vfs.File, err error) (bloom.File, error) {
	if err != nil {
		return nil, err
	}
	return filterFile{f}, nil
}

func (f filterFile) Size() (int64, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, fmt.Errorf("archive: a snapshot of the filter: %w", err)
	}
	return info.Size(), nil
}
