package blob

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/cockroachdb/pebble/v2"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/internal/pebblex"
)

// Commit is CommitFile for a file that has this root in the default profile, or
// whose upload was opened since the store was.
func (s *Store) Commit(ctx context.Context, id string, size int64, sha256 [32]byte, cid string) (duplicate bool, err error) {
	return s.CommitFile(ctx, id, FileRef{SHA256: sha256, CID: cid, Size: size})
}

// CommitFile ends an upload: the bytes received must be the file of this size,
// SHA-256 and canonical CID, all computed here from the bytes. When it returns
// nil the file is on disk and readable. duplicate says that it was before.
//
// The order is: sync the file, rename it, sync its directory, sync the rows of
// the index. A crash before the last step leaves at most a file without rows,
// which the next upload of the same bytes adopts.
//
// The profile is that of the upload. Only of an upload that a restart of the
// store has left nobody knows it but the caller, zero is Default: its bytes are
// read back first, and if they are not the file named it is UNKNOWN_UPLOAD.
//
// An upload that is not open is NotFound, code UNKNOWN_UPLOAD, unless exactly
// this file is here: then the commit is the repetition of one that succeeded.
// Bytes that are not the file named are Invalid: SIZE_MISMATCH, DIGEST_MISMATCH
// or CID_MISMATCH. Corrupt means that the index is damaged in a way that no
// upload heals. Every error but that of a bad cid or profile, an ended ctx or
// UPLOAD_RESUMING ends the upload.
func (s *Store) CommitFile(ctx context.Context, id string, file FileRef) (duplicate bool, err error) {
	leave, err := s.enter()
	if err != nil {
		return false, err
	}
	defer leave()
	root, err := ParseCID(file.CID)
	if err != nil {
		return false, err
	}
	want := rootInfo{cid: root, file: file.SHA256, size: file.Size, profile: cmp.Or(file.Profile, Default)}
	if err := want.profile.Check(); err != nil {
		return false, err
	}
	u := s.lookup(id)
	if u == nil {
		return s.recommit(ctx, id, want)
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	switch {
	case u.gone:
		return s.recommit(ctx, id, want)
	case u.reading != nil:
		return false, stillReading(id)
	}
	unlock, err := s.commits.lock(ctx, want.file)
	if err != nil {
		return false, fmt.Errorf("blob: commit %s: %w", id, err)
	}
	defer unlock()
	if u.file == nil {
		if err := s.adopt(ctx, u, want); err != nil {
			return false, err
		}
	} else {
		u.dag.finish()
	}
	defer s.drop(u)
	if err := u.check(want); err != nil {
		return false, err
	}
	if err := u.whole(); err != nil {
		return false, err
	}
	want.profile = u.dag.profile
	return s.settle(ctx, u, want)
}

// recommit answers a commit whose upload is not open.
func (s *Store) recommit(ctx context.Context, id string, want rootInfo) (duplicate bool, err error) {
	if err := s.wait(ctx, want.file); err != nil {
		return false, err
	}
	here, err := s.holds(want)
	if err != nil {
		return false, err
	}
	if !here {
		return false, unknownUpload(id)
	}
	s.stats.duplicates.Add(1)
	return true, nil
}

// check compares the bytes received with the file that was named.
func (u *upload) check(want rootInfo) error {
	switch got := u.dag.sha256(); {
	case u.dag.size != want.size:
		return fault.New(fault.Invalid, CodeSizeMismatch, "blob: upload %s has %d bytes, the commit names %d", u.id, u.dag.size, want.size).InField("size")
	case got != want.file:
		return fault.New(fault.Invalid, CodeDigestMismatch, "blob: upload %s has the SHA-256 %x, the commit names %x", u.id, got, want.file).InField("sha256")
	case u.dag.root.cid != want.cid:
		return fault.New(fault.Invalid, CodeCIDMismatch, "blob: upload %s has the CID %s in chunks of %d bytes and %d links, the commit names %s",
			u.id, u.dag.root.cid, u.dag.profile.ChunkSize, u.dag.profile.MaxLinks, want.cid).InField("cid")
	}
	return nil
}

// settle makes a verified upload a stored file. The caller holds the lock of
// its SHA-256.
func (s *Store) settle(ctx context.Context, u *upload, r rootInfo) (duplicate bool, err error) {
	_, known, err := s.findRoot(r.cid)
	if errors.Is(err, errRow) {
		return false, s.damaged([32]byte{}, err)
	}
	if err != nil {
		return false, err
	}
	damaged := s.isDamaged(r.file)
	if known && !damaged && s.present(r) == nil {
		s.stats.duplicates.Add(1)
		return true, nil
	}
	if err := s.place(u, r); err != nil {
		return false, err
	}
	if err := s.addRows(u, r); err != nil {
		return false, err
	}
	if damaged {
		// Lost rows were added, but a row that is there and wrong stays so.
		if err := s.checkFile(ctx, r.file, []rootInfo{r}); err != nil {
			return false, s.readError(r.file, err)
		}
		s.healed(r.file)
		s.cfg.Log.Info("damaged file is whole again", "sha256", fmt.Sprintf("%x", r.file))
	}
	s.stats.commits.Add(1)
	return known, nil
}

// place brings the bytes of u to their final name. Bytes that are there already
// (from an upload in another profile, or from a commit that a crash cut short)
// stay if they are the right ones; else the new ones take their place, which is
// the repair of a damaged file. A repair, which keeps the old ones as evidence, does
// so also with what can not be read.
func (s *Store) place(u *upload, r rootInfo) error {
	fs, path := s.cfg.FS, s.filePath(r.file)
	err := s.verifyFile(r.file, r.size)
	switch {
	case err == nil:
		s.stats.adopted.Add(1)
	case errors.Is(err, os.ErrNotExist) || errors.Is(err, errLost) || u.evidence != "":
		if err := u.file.Sync(); err != nil {
			return diskError(err)
		}
		if !errors.Is(err, os.ErrNotExist) {
			s.cfg.Log.Warn("replacing a damaged file by a fresh upload", "sha256", fmt.Sprintf("%x", r.file), "err", err)
			if err := s.keep(path, u.evidence); err != nil {
				return diskError(err)
			}
		}
		if err := fs.Rename(s.path(dirTemp, u.id), path); err != nil {
			return diskError(err)
		}
	default:
		return err
	}
	if err := pebblex.SyncDir(fs, fs.PathDir(path)); err != nil {
		return diskError(err)
	}
	return nil
}

// indexing is the rows of one commit on their way into the index.
type indexing struct {
	rows []row
	done chan error // buffered; answered once
}

func (i *indexing) size() int {
	n := 0
	for _, r := range i.rows {
		n += len(r.key) + len(r.value)
	}
	return n
}

// addRows makes the rows of a file durable. It does not take a context: whoever
// waits for a commit waits for its end.
func (s *Store) addRows(u *upload, r rootInfo) error {
	item := &indexing{rows: u.rows(r), done: make(chan error, 1)}
	if err := s.index.Submit(context.Background(), item); err != nil {
		return fmt.Errorf("blob: index: %w", err)
	}
	return <-item.done
}

// rows returns all rows of a finished upload, the root last.
func (u *upload) rows(r rootInfo) []row {
	rows := make([]row, 0, len(u.leaves)+len(u.nodes)+2)
	var offset int64
	for _, l := range u.leaves {
		rows = append(rows, leafRef{file: r.file, offset: offset, length: l.length}.row(l.digest))
		offset += l.length
	}
	return append(append(rows, u.nodes...), r.rows()...)
}

// commitRows is the committer's function: one synced batch for all commits that
// were waiting. A row that is there stays: the first reference to a leaf holds.
func (s *Store) commitRows(items []*indexing) {
	err := s.applyRows(items)
	for _, item := range items {
		item.done <- err
	}
}

func (s *Store) applyRows(items []*indexing) (err error) {
	batch := s.db.NewBatch()
	defer func() { err = errors.Join(err, batch.Close()) }()
	it, err := s.db.NewIter(&pebble.IterOptions{UseL6Filters: true})
	if err != nil {
		return indexError(err)
	}
	defer func() { err = errors.Join(err, it.Close()) }()
	taken := make(map[string]bool)
	for _, item := range items {
		for _, r := range item.rows {
			if taken[string(r.key)] {
				continue
			}
			taken[string(r.key)] = true
			there, err := pebblex.Has(it, r.key)
			if err != nil {
				return indexError(err)
			}
			if there {
				continue
			}
			if err := batch.Set(r.key, r.value, nil); err != nil {
				return indexError(err)
			}
		}
	}
	if err := pebblex.AppendOnly(s.db, batch); err != nil {
		return fmt.Errorf("blob: index: %w", err)
	}
	if err := s.db.Apply(batch, pebble.Sync); err != nil {
		return indexError(err)
	}
	return nil
}
