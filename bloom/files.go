package bloom

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
)

// The files of a directory of snapshots. One directory is for one Set and has
// nothing else in it.
const (
	fileCurrent  = "snapshot"
	filePrevious = "snapshot.old"
	fileTemp     = "snapshot.tmp"
)

// FS is what snapshots need of a file system. Errors about files that are not
// there are fs.ErrNotExist.
type FS interface {
	// Create makes a file for writing, in place of one that is there.
	Create(name string) (File, error)
	// Open opens a file for reading.
	Open(name string) (File, error)
	// Rename gives a file another name, in place of one that is there.
	Rename(from, to string) error
	Remove(name string) error
	// SyncDir makes the names in dir durable.
	SyncDir(dir string) error
}

// File is an open file of an [FS].
type File interface {
	io.ReaderAt
	io.Writer // it may use the slice it is given as scratch space
	io.Closer
	Sync() error
	Size() (int64, error)
}

// Save writes a snapshot to dir, which must exist, so that after a crash there is
// this one or the one before. The one before is kept. Readers and writers go on
// meanwhile; Saves of one set wait for one another. at must be read before the
// call: what it covers has to be durable, else a crash makes the snapshot one of
// records that never were.
func (s *Set) Save(fsys FS, dir string, at Mark) error {
	s.saving.Lock()
	defer s.saving.Unlock()
	current, temp := filepath.Join(dir, fileCurrent), filepath.Join(dir, fileTemp)
	err := s.writeSynced(fsys, temp, at)
	if err == nil {
		err = unlessMissing(fsys.Rename(current, filepath.Join(dir, filePrevious)))
	}
	if err == nil {
		err = fsys.Rename(temp, current)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("bloom: save %s: %w", current, err), unlessMissing(fsys.Remove(temp)))
	}
	if err := fsys.SyncDir(dir); err != nil {
		return fmt.Errorf("bloom: save %s: %w", current, err)
	}
	return nil
}

func (s *Set) writeSynced(fsys FS, name string, at Mark) (err error) {
	f, err := fsys.Create(name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if _, err := s.WriteSnapshotTo(f, at); err != nil {
		return err
	}
	return f.Sync()
}

func unlessMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
