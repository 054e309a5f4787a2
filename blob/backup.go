package blob

import (
	"context"
	"encoding/hex"
	"fmt"
	"path"

	"github.com/verae/archive/internal/pebblex"
)

// Backup adds a copy of the store to a backup, under rel, with every file that
// was committed before the call. Uploads and reads go on; uploads under way are
// left out. The rows are copied before the bytes, so that every file that the
// copy knows is in it; one that came in between lies there as after a crash.
func (s *Store) Backup(ctx context.Context, b *pebblex.Backup, rel string) error {
	leave, err := s.enter()
	if err != nil {
		return err
	}
	defer leave()
	if err := b.AddStore(ctx, path.Join(rel, dirIndex), s.db, s.path(dirIndex)); err != nil {
		return err
	}
	if err := b.AddDir(path.Join(rel, dirTemp)); err != nil {
		return err
	}
	for i := range 256 {
		dir := fmt.Sprintf("%02x", i)
		if err := s.backupDir(ctx, b, path.Join(rel, dirFiles, dir), s.path(dirFiles, dir)); err != nil {
			return err
		}
	}
	return nil
}

// backupDir copies the files of one directory.
func (s *Store) backupDir(ctx context.Context, b *pebblex.Backup, rel, dir string) error {
	if err := b.AddDir(rel); err != nil {
		return err
	}
	names, err := s.cfg.FS.List(dir)
	if err != nil {
		return fmt.Errorf("blob: backup: %w", err)
	}
	for _, name := range names {
		sum, err := hex.DecodeString(name)
		if err != nil || len(sum) != digestLen {
			continue // not a file of this store
		}
		if err := b.AddFile(ctx, path.Join(rel, name), s.cfg.FS.PathJoin(dir, name)); err != nil {
			return err
		}
	}
	return nil
}
