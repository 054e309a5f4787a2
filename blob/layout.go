package blob

import (
	"cmp"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"os"

	"github.com/cockroachdb/pebble/v2"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/internal/pebblex"
)

// The parts of a store's directory.
const (
	dirIndex = "index" // a Pebble store
	dirFiles = "files" // files/<first two hex digits>/<64 hex digits of the SHA-256>
	dirTemp  = "tmp"   // tmp/<upload id>: uploads under way
)

func (s *Store) path(elem ...string) string {
	return s.cfg.FS.PathJoin(append([]string{s.cfg.Dir}, elem...)...)
}

// filePath returns where the file with a SHA-256 rests.
func (s *Store) filePath(sha256 [32]byte) string {
	name := hex.EncodeToString(sha256[:])
	return s.path(dirFiles, name[:2], name)
}

// openIndex opens the index, which locks the store, and makes or checks the rest
// of the directory.
func (s *Store) openIndex() error {
	if s.cfg.Create {
		names, err := s.cfg.FS.List(s.cfg.Dir)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		if len(names) > 0 {
			return fault.New(fault.Conflict, "NOT_EMPTY", "%w", pebblex.ErrExists)
		}
	}
	db, err := pebblex.Open(pebblex.Options{
		Dir: s.path(cmp.Or(s.cfg.aside, dirIndex)), FS: s.cfg.FS, Create: s.cfg.Create, Log: s.cfg.Log,
		MemTableSize: s.memTable(), OnFatal: s.cfg.OnFatal, OnCorruption: s.noteIndexDamage,
		OnFull: func(err error) {
			s.shut = err
			s.cfg.Log.Error("the index of the files is open for reading only", "err", err)
		},
	})
	if pebble.IsCorruptionError(err) {
		return fault.New(fault.Corrupt, CodeCorrupt, "the index is damaged: %w; do not start it again as it is: `archived repair` rebuilds it from the files", err)
	}
	if err != nil {
		return err
	}
	s.db = db
	// From here on the index's lock keeps other processes out of tmp as well.
	if s.cfg.Create {
		err = s.create()
	} else {
		err = s.checkLayout()
	}
	if err != nil {
		return errors.Join(err, db.Close())
	}
	return nil
}

// create makes the directories, all of them now so that no commit has to. The
// layout version comes last: a store that has it is whole.
func (s *Store) create() error {
	fs := s.cfg.FS
	for i := range 256 {
		if err := fs.MkdirAll(s.path(dirFiles, fmt.Sprintf("%02x", i)), 0o700); err != nil {
			return err
		}
	}
	if err := fs.MkdirAll(s.path(dirTemp), 0o700); err != nil {
		return err
	}
	for _, dir := range []string{s.path(dirFiles), s.cfg.Dir} {
		if err := pebblex.SyncDir(fs, dir); err != nil {
			return err
		}
	}
	return writeMeta(s.db, s.cfg.Owner)
}

// writeMeta writes what makes an index complete, in one commit: the layout
// version and whose it is.
func writeMeta(db *pebble.DB, owner string) error {
	rows := []row{seal(layoutKey, binary.BigEndian.AppendUint32(nil, layoutVersion))}
	if owner != "" {
		rows = append(rows, seal(ownerKey, []byte(owner)))
	}
	batch := db.NewBatch()
	for _, r := range rows {
		if err := batch.Set(r.key, r.value, nil); err != nil {
			return errors.Join(err, batch.Close())
		}
	}
	if err := pebblex.AppendOnly(db, batch); err != nil {
		return errors.Join(err, batch.Close())
	}
	return errors.Join(db.Apply(batch, pebble.Sync), batch.Close())
}

// checkOwner refuses a store that is not the one the caller wants, such as that
// of another archive on a volume that is mounted in the wrong place.
func (s *Store) checkOwner() error {
	if s.cfg.Owner == "" {
		return nil
	}
	owner := []byte("nobody")
	value, ok, err := s.get(ownerKey)
	if err != nil {
		return err
	}
	if ok {
		if owner, err = unseal(ownerKey, value); err != nil {
			return fault.New(fault.Corrupt, CodeCorrupt, "%w", err)
		}
	}
	if string(owner) != s.cfg.Owner {
		return fault.New(fault.Conflict, CodeForeign, "these are the files of %q, not of %q; give the right directory, or mount the right volume", owner, s.cfg.Owner)
	}
	return nil
}

// checkLayout checks that an existing store is whole, and takes up its uploads.
func (s *Store) checkLayout() error {
	value, ok, err := s.get(layoutKey)
	if err != nil {
		return err
	}
	if !ok {
		return fault.New(fault.Corrupt, CodeCorrupt, "the index has no layout version: it was cut back, or its creation never ended; restore it, or remove the directory if it never held a file")
	}
	p, err := unseal(layoutKey, value)
	if err != nil {
		return fault.New(fault.Corrupt, CodeCorrupt, "%w", err)
	}
	if len(p) != 4 || binary.BigEndian.Uint32(p) != layoutVersion {
		return fault.New(fault.Conflict, "LAYOUT", "layout version %x; this program reads %d", p, layoutVersion)
	}
	if err := s.checkOwner(); err != nil {
		return err
	}
	dirs, err := s.cfg.FS.List(s.path(dirFiles))
	if err != nil || len(dirs) < 256 {
		return fault.New(fault.Corrupt, CodeCorrupt, "%d of 256 directories are left in %s (%v): restore them, or make those that were empty again", len(dirs), s.path(dirFiles), err)
	}
	if s.cfg.aside != "" {
		return nil
	}
	if _, err := s.cfg.FS.Stat(s.path(dirTemp)); errors.Is(err, os.ErrNotExist) { // a backup may leave it out
		return s.cfg.FS.MkdirAll(s.path(dirTemp), 0o700)
	}
	return s.takeUp()
}
