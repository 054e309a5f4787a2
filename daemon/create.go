package daemon

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/verae/archive/internal/fault"
)

// create makes the directory dir with what build puts into it, all or nothing:
// it is built beside dir and renamed when it is complete and on disk. A crash
// leaves only a directory whose name ends in ".incomplete", which the next try
// replaces.
func create(dir string, build func(dir string) error) (err error) {
	there, err := exists(dir)
	if err != nil {
		return err
	}
	if there {
		return fault.New(fault.Conflict, "EXISTS", "DATA_DIR: %s is there already: it is not made anew", dir).InField("DATA_DIR")
	}
	dir = filepath.Clean(dir)
	parent := filepath.Dir(dir)
	if err := os.MkdirAll(parent, 0o700); err != nil {
		return fmt.Errorf("daemon: %w", err)
	}
	half := dir + ".incomplete"
	if err := os.RemoveAll(half); err != nil {
		return fmt.Errorf("daemon: %w", err)
	}
	if err := os.Mkdir(half, 0o700); err != nil {
		return fmt.Errorf("daemon: %w", err)
	}
	if err := build(half); err != nil {
		return errors.Join(err, os.RemoveAll(half))
	}
	if err := syncDir(half); err != nil {
		return err
	}
	if err := os.Rename(half, dir); err != nil {
		return fmt.Errorf("daemon: %w", err)
	}
	return syncDir(parent)
}

// syncDir makes the entries of a directory durable.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("daemon: %w", err)
	}
	return errors.Join(d.Sync(), d.Close())
}
