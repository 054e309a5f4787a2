package blob

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/cockroachdb/pebble/v2"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/internal/pebblex"
)

// FileRef names a file with one of its roots.
type FileRef struct {
	SHA256  [32]byte
	CID     string // canonical
	Size    int64  // bytes
	Profile Profile
}

// RepairReport tells what RepairIndex found and did.
type RepairReport struct {
	// Damages are what is wrong with the store, for people.
	Damages []string
	// Rebuilt says that the index was not what the files give and was built anew,
	// or would have been.
	Rebuilt bool
	// Missing are the files that the index names and whose bytes are not here or
	// not the right ones: see Store.Refetch.
	Missing []FileRef
	// Evidence is where the old index is now; empty if it is still in use.
	Evidence string
}

// Names beside the index.
const (
	dirCheck = dirIndex + ".check" // a copy that is opened to see whether it can be
	dirNew   = dirIndex + ".new"   // see pebblex.Swap
)

// repair is one run of RepairIndex.
type repair struct {
	cfg    StoreConfig
	dry    bool
	swap   pebblex.Swap
	report RepairReport
}

// RepairIndex looks at a closed store as a whole: at every file, and at the index
// through a copy. If a row is not what the files give, or the index does not open,
// a new one is built aside from the files and from what can still be read of the
// old one, and takes its place when it has been checked; the old one stays beside
// it. Nothing else is changed, and with dry nothing at all.
//
// A crash at any point is mended by running it again. Errors are fault.Conflict
// if a process has the store open, or an error of the disk.
func RepairIndex(ctx context.Context, cfg StoreConfig, dry bool) (RepairReport, error) {
	cfg = cfg.withDefaults()
	r := &repair{cfg: cfg, dry: dry}
	index := cfg.FS.PathJoin(cfg.Dir, dirIndex)
	r.swap = pebblex.Swap{FS: cfg.FS, Dir: index, Now: cfg.Now}
	if !dry {
		if err := r.prepare(); err != nil {
			return r.report, err
		}
	}
	hold, err := pebblex.Hold(cfg.FS, index)
	if err != nil {
		return r.report, err
	}
	err = r.run(ctx)
	return r.report, errors.Join(err, hold.Close())
}

// prepare ends what an earlier repair has begun, and makes the directories that
// are missing: a new one is empty, as a lost one would be to its reader.
func (r *repair) prepare() error {
	if _, err := r.swap.Resume(); err != nil {
		return err
	}
	dirs := []string{r.swap.Dir}
	for i := range 256 {
		dirs = append(dirs, r.cfg.FS.PathJoin(r.cfg.Dir, dirFiles, fmt.Sprintf("%02x", i)))
	}
	for _, dir := range dirs {
		_, err := r.cfg.FS.Stat(dir)
		if errors.Is(err, os.ErrNotExist) {
			r.report.Damages = append(r.report.Damages, dir+" is missing")
			err = pebblex.Mkdir(r.cfg.FS, dir)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (r *repair) run(ctx context.Context) error {
	check := r.cfg.FS.PathJoin(r.cfg.Dir, dirCheck)
	sound, err := r.judge(ctx, check)
	if err := errors.Join(err, r.cfg.FS.RemoveAll(check)); err != nil || sound {
		return err
	}
	r.report.Rebuilt, r.report.Missing = true, nil
	roots, err := r.salvage(ctx)
	if err != nil {
		return err
	}
	if r.dry {
		return r.missing(ctx, roots)
	}
	if err := r.build(ctx, roots); err != nil {
		return errors.Join(err, r.swap.Discard())
	}
	r.report.Evidence, err = r.swap.Commit()
	return err
}

// judge opens a copy of the index and compares all its rows with the files. It
// is sound if they are what the files give, or what files give whose bytes are
// lost.
func (r *repair) judge(ctx context.Context, dir string) (sound bool, err error) {
	if err := r.cfg.FS.RemoveAll(dir); err != nil {
		return false, err
	}
	if err := pebblex.CloneClosed(r.cfg.FS, r.swap.Dir, dir); err != nil {
		r.damage("%v", err)
		return false, ctx.Err()
	}
	s, err := r.openAside(dirCheck)
	if fault.Is(err, fault.Conflict) {
		return false, err // another's store
	}
	if err != nil {
		r.damage("%v", err)
		return false, ctx.Err()
	}
	sound, err = r.compare(ctx, s)
	return sound, errors.Join(err, s.Close())
}

func (r *repair) damage(format string, args ...any) {
	r.report.Damages = append(r.report.Damages, fmt.Sprintf(format, args...))
}

// openAside opens an index that is not the one in use.
func (r *repair) openAside(dir string) (*Store, error) {
	cfg := r.cfg
	cfg.aside, cfg.Create = dir, false
	s := newStore(cfg)
	if err := s.openIndex(); err != nil {
		return nil, err
	}
	s.startIndexing()
	return s, nil
}

// OpenCopy opens a store that no process has open without changing anything in
// it: its index is a copy, in a directory beside it that release removes again,
// after Close. Nothing may be written to the store.
func OpenCopy(cfg StoreConfig) (s *Store, release func() error, err error) {
	r := &repair{cfg: cfg.withDefaults()}
	fs, copied := r.cfg.FS, r.cfg.FS.PathJoin(r.cfg.Dir, dirCheck)
	release = func() error { return fs.RemoveAll(copied) }
	if err := release(); err != nil {
		return nil, nil, err
	}
	if err := pebblex.CloneClosed(fs, fs.PathJoin(r.cfg.Dir, dirIndex), copied); err != nil {
		return nil, nil, errors.Join(err, release())
	}
	if s, err = r.openAside(dirCheck); err != nil {
		return nil, nil, errors.Join(err, release())
	}
	return s, release, nil
}

// compare checks an index. Files whose bytes are at fault are Missing; all else
// is the fault of the index.
func (r *repair) compare(ctx context.Context, s *Store) (sound bool, err error) {
	sound = true
	for f, err := range s.Check(ctx) {
		if fault.Is(err, fault.Corrupt) {
			r.damage("%v", err)
			return false, nil
		}
		if err != nil {
			return false, err
		}
		if !f.Damage {
			continue
		}
		r.damage("%s", f.What)
		if s.verifyBytes(f.SHA256) == nil {
			sound = false
			continue
		}
		refs, err := s.refs(f.SHA256)
		if err != nil || len(refs) == 0 {
			sound = false
		}
		r.report.Missing = append(r.report.Missing, refs...)
	}
	return sound, nil
}

// refs returns the roots under which the index knows a file. An error is a row
// that can not be right.
func (s *Store) refs(sha256 [32]byte) (refs []FileRef, err error) {
	key := append([]byte{rowFile}, sha256[:]...)
	it, err := s.db.NewIter(&pebble.IterOptions{LowerBound: key, UpperBound: append(key[:len(key):len(key)], 0xff)})
	if err != nil {
		return nil, indexError(err)
	}
	defer func() { err = errors.Join(err, it.Close()) }()
	for it.First(); it.Valid(); it.Next() {
		_, c, size, err := parseFile(it.Key(), it.Value())
		if err != nil {
			return refs, err
		}
		root, err := s.rootFor(sha256, c, size)
		if err != nil {
			return refs, err
		}
		refs = append(refs, root.ref())
	}
	return refs, indexErrorOrNil(it.Error())
}

func (r rootInfo) ref() FileRef {
	return FileRef{SHA256: r.file, CID: r.cid.String(), Size: r.size, Profile: r.profile}
}

// verifyBytes is verifyFile for a file of whatever size.
func (s *Store) verifyBytes(sha256 [32]byte) error {
	info, err := s.cfg.FS.Stat(s.filePath(sha256))
	if err != nil {
		return fmt.Errorf("blob: %w", err)
	}
	return s.verifyFile(sha256, info.Size())
}
