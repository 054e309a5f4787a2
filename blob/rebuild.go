package blob

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/internal/pebblex"
)

// salvage returns every root that can still be read of the old index, those of
// one file beside each other. Of a root whose own row is lost the profile is
// unknown, and zero.
func (r *repair) salvage(ctx context.Context) (roots []rootInfo, err error) {
	old, err := pebblex.OpenSalvage(ctx, r.cfg.FS, r.swap.Dir)
	if err != nil {
		return nil, err
	}
	for _, d := range old.Damages() {
		r.damage("%v", d)
	}
	for e, err := range old.Range(ownerKey, append(ownerKey[:len(ownerKey):len(ownerKey)], 0)) {
		if err != nil {
			return nil, err
		}
		if owner, err := unseal(e.Key, e.Value); err == nil && r.cfg.Owner != "" && string(owner) != r.cfg.Owner {
			return nil, fault.New(fault.Conflict, CodeForeign, "blob: these are the files of %q, not of %q; give the right directory, or mount the right volume", owner, r.cfg.Owner)
		}
	}
	known := make(map[string]bool)
	add := func(root rootInfo) {
		if key := string(fileKey(root.file, root.cid)); !known[key] {
			known[key] = true
			roots = append(roots, root)
		}
	}
	for _, kind := range []byte{rowRoot, rowFile} {
		for e, err := range old.Range([]byte{kind}, []byte{kind + 1}) {
			if err != nil {
				return nil, err
			}
			if len(e.Others) > 0 {
				r.damage("%s: row %x has %d values", e.Source, e.Key, 1+len(e.Others))
			}
			// Every value that can be right is tried; only one gives its CID.
			for _, value := range slices.Concat([][]byte{e.Value}, others(e)) {
				root, err := parseEither(e.Key, value)
				if err != nil {
					r.damage("%s: %v", e.Source, err)
					continue
				}
				add(root)
			}
		}
	}
	slices.SortStableFunc(roots, func(a, b rootInfo) int { return cmp.Compare(string(a.file[:]), string(b.file[:])) })
	return roots, nil
}

func others(e pebblex.Salvaged) (values [][]byte) {
	for _, v := range e.Others {
		values = append(values, v.Value)
	}
	return values
}

// parseEither reads a root row or a file row.
func parseEither(key, value []byte) (rootInfo, error) {
	if key[0] == rowRoot {
		return parseRoot(key, value)
	}
	sha256, c, size, err := parseFile(key, value)
	return rootInfo{cid: c, file: sha256, size: size}, err
}

// missing lists the files that a new index would name and whose bytes are not
// here.
func (r *repair) missing(ctx context.Context, roots []rootInfo) error {
	s := newStore(r.cfg)
	for _, root := range roots {
		if err := ctx.Err(); err != nil {
			return err
		}
		if s.verifyFile(root.file, root.size) != nil {
			r.report.Missing = append(r.report.Missing, root.ref())
		}
	}
	return nil
}

// build makes the new index and checks it.
func (r *repair) build(ctx context.Context, roots []rootInfo) error {
	s := newStore(r.cfg)
	db, err := pebblex.Open(pebblex.Options{Dir: s.path(dirNew), FS: r.cfg.FS, Create: true, Log: r.cfg.Log, OnFatal: r.cfg.OnFatal})
	if err != nil {
		return err
	}
	s.db = db
	err = r.fill(ctx, s, roots)
	if err == nil {
		err = writeMeta(db, r.cfg.Owner)
	}
	if err := errors.Join(err, db.Flush(), db.Close()); err != nil {
		return fmt.Errorf("blob: build a new index: %w", err)
	}
	if s, err = r.openAside(dirNew); err != nil {
		return err
	}
	sound, err := r.compare(ctx, s)
	if err := errors.Join(err, s.Close()); err != nil {
		return err
	}
	if !sound {
		return fault.New(fault.Corrupt, CodeCorrupt, "blob: the new index is not what the files give; is the disk changing them?")
	}
	return pebblex.SyncDir(r.cfg.FS, r.cfg.Dir)
}

// fill writes the rows of every file whose bytes are here.
func (r *repair) fill(ctx context.Context, s *Store, roots []rootInfo) error {
	var items []*indexing
	bytes := 0
	flush := func() error {
		err := s.applyRows(items)
		items, bytes = nil, 0
		return err
	}
	for _, root := range roots {
		if s.verifyFile(root.file, root.size) != nil {
			r.report.Missing = append(r.report.Missing, root.ref())
			continue
		}
		rows, err := s.importFile(ctx, root)
		if err != nil {
			return err
		}
		if rows == nil {
			r.damage("no profile gives file %x the root %s, it is not indexed under it", root.file, root.cid)
			continue
		}
		item := &indexing{rows: rows}
		items, bytes = append(items, item), bytes+item.size()
		if bytes >= maxIndexing {
			if err := flush(); err != nil {
				return err
			}
		}
	}
	return flush()
}

// importFile returns the rows of a stored file under a root; none if the bytes do
// not give it in the root's profile or, if that is unknown, in any usual one.
func (s *Store) importFile(ctx context.Context, root rootInfo) ([]row, error) {
	profiles := []Profile{root.profile}
	if root.profile == (Profile{}) {
		profiles = Usual()
	}
	for _, p := range profiles {
		u := &upload{intake: newIntake(p)}
		if err := s.readInto(ctx, u, root.file); err != nil {
			return nil, err
		}
		if u.dag.finish().cid == root.cid {
			root.profile = p
			return u.rows(root), nil
		}
	}
	return nil, nil
}

func (s *Store) readInto(ctx context.Context, u *upload, sha256 [32]byte) (err error) {
	f, err := s.cfg.FS.Open(s.filePath(sha256), vfs.SequentialReadsOption)
	if err != nil {
		return fmt.Errorf("blob: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return eachChunk(ctx, f, func(b []byte) error { u.dag.write(b); return nil })
}

// eachChunk calls f with all that r has, piece by piece.
func eachChunk(ctx context.Context, r io.Reader, f func([]byte) error) error {
	buf := make([]byte, hashStep)
	for {
		n, err := r.Read(buf)
		if n > 0 {
			if err := f(buf[:n]); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return fmt.Errorf("blob: read: %w", err)
		}
	}
}
