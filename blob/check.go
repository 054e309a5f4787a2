package blob

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"iter"
	"strings"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// Finding is something Check did not find as it should be.
type Finding struct {
	SHA256 [32]byte // of the file, if its name tells
	Path   string   // where its bytes rest or should rest
	What   string
	// Damage says that stored bytes are lost or changed. Otherwise no loss is
	// proved: a file without rows is the trace of a crash before its commit was
	// acknowledged, or of rows that were lost.
	Damage bool
}

// Check reads every file of the store and compares it with its SHA-256, with
// every root it is kept under, and with all rows of its tree. It yields what is
// wrong, and an error when it cannot go on. Damaged files are remembered as if
// a reader had met them. The store stays in use meanwhile; files committed
// during the check may or may not be looked at.
func (s *Store) Check(ctx context.Context) iter.Seq2[Finding, error] {
	return func(yield func(Finding, error) bool) {
		for i := range 256 {
			findings, err := s.checkDir(ctx, byte(i))
			for _, f := range findings {
				if !yield(f, nil) {
					return
				}
			}
			if err != nil {
				yield(Finding{}, fmt.Errorf("blob: check: %w", err))
				return
			}
		}
	}
}

// checkDir checks the files whose SHA-256 begins with a byte.
func (s *Store) checkDir(ctx context.Context, first byte) (findings []Finding, err error) {
	leave, err := s.enter()
	if err != nil {
		return nil, err
	}
	defer leave()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	roots, findings, err := s.rootsOf(first)
	if err != nil {
		return findings, err
	}
	for sha256, list := range roots {
		if err := s.wait(ctx, sha256); err != nil {
			return findings, err
		}
		if err := s.checkFile(ctx, sha256, list); err != nil {
			if ctx.Err() != nil {
				return findings, err
			}
			findings = append(findings, Finding{SHA256: sha256, Path: s.filePath(sha256), What: s.readError(sha256, err).Error(), Damage: s.isDamaged(sha256)})
		}
	}
	strays, err := s.strays(ctx, first, roots)
	return append(findings, strays...), err
}

// strays finds the files that no row names.
func (s *Store) strays(ctx context.Context, first byte, roots map[[32]byte][]rootInfo) (findings []Finding, err error) {
	dir := s.path(dirFiles, hex.EncodeToString([]byte{first}))
	names, err := s.cfg.FS.List(dir)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		path := s.cfg.FS.PathJoin(dir, name)
		sum, err := hex.DecodeString(name)
		if err != nil || len(sum) != digestLen || name != strings.ToLower(name) {
			findings = append(findings, Finding{Path: path, What: "not a file of this store"})
			continue
		}
		sha256 := [32]byte(sum)
		if roots[sha256] != nil {
			continue
		}
		// It may have come since, or be on its way in: then its rows follow.
		if err := s.wait(ctx, sha256); err != nil {
			return findings, err
		}
		named, err := s.named(sha256)
		if err != nil {
			return findings, err
		}
		if !named {
			findings = append(findings, Finding{SHA256: sha256, Path: path, What: "no row names this file; the next upload of its bytes adopts it"})
		}
	}
	return findings, nil
}

// named reports whether any row is about a file.
func (s *Store) named(sha256 [32]byte) (ok bool, err error) {
	key := append([]byte{rowFile}, sha256[:]...)
	it, err := s.db.NewIter(&pebble.IterOptions{LowerBound: key, UpperBound: append(key[:len(key):len(key)], 0xff)})
	if err != nil {
		return false, indexError(err)
	}
	defer func() { err = errors.Join(err, it.Close()) }()
	return it.First(), indexErrorOrNil(it.Error())
}

// rootsOf returns the roots of all files whose SHA-256 begins with a byte. A file
// none of whose roots can be told has an empty list.
func (s *Store) rootsOf(first byte) (roots map[[32]byte][]rootInfo, findings []Finding, err error) {
	it, err := s.db.NewIter(&pebble.IterOptions{LowerBound: []byte{rowFile, first}, UpperBound: after(rowFile, first)})
	if err != nil {
		return nil, nil, indexError(err)
	}
	defer func() { err = errors.Join(err, it.Close()) }()
	roots = make(map[[32]byte][]rootInfo)
	for it.First(); it.Valid(); it.Next() {
		sha256, c, size, err := parseFile(it.Key(), it.Value())
		if roots[sha256] == nil {
			roots[sha256] = []rootInfo{}
		}
		if err == nil {
			var r rootInfo
			if r, err = s.rootFor(sha256, c, size); err == nil {
				roots[sha256] = append(roots[sha256], r)
				continue
			}
		}
		findings = append(findings, Finding{SHA256: sha256, Path: s.path(dirIndex), What: s.damaged(sha256, err).Error(), Damage: true})
	}
	return roots, findings, indexErrorOrNil(it.Error())
}

// after is the least key behind all keys that begin with kind and first.
func after(kind, first byte) []byte {
	if first == 0xff {
		return []byte{kind + 1}
	}
	return []byte{kind, first + 1}
}

func indexErrorOrNil(err error) error {
	if err == nil {
		return nil
	}
	return indexError(err)
}

// rootFor returns the root row that a file row promises.
func (s *Store) rootFor(sha256 [32]byte, c CID, size int64) (rootInfo, error) {
	r, ok, err := s.findRoot(c)
	switch {
	case err != nil:
		return r, err
	case !ok || r.file != sha256 || r.size != size:
		return r, fmt.Errorf("%w: the row of root %s is missing or names another file", errLost, c)
	}
	return r, nil
}

// checkFile imports a stored file again, once for each root, and compares all
// that comes out.
func (s *Store) checkFile(ctx context.Context, sha256 [32]byte, roots []rootInfo) (err error) {
	f, err := s.cfg.FS.Open(s.filePath(sha256), vfs.SequentialReadsOption)
	if err != nil {
		return fmt.Errorf("blob: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	against := make([]*comparison, len(roots))
	for i, r := range roots {
		against[i] = s.compareWith(r)
	}
	buf := make([]byte, hashStep)
	for {
		n, err := f.Read(buf)
		for _, c := range against {
			c.dag.write(buf[:n])
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("blob: read %x: %w", sha256, err)
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	for _, c := range against {
		if err := c.result(); err != nil {
			return err
		}
	}
	return nil
}

// comparison is a second import of a stored file, held against its rows.
type comparison struct {
	store *Store
	root  rootInfo
	dag   *importer
	err   error // the first difference in a row
}

func (s *Store) compareWith(r rootInfo) *comparison {
	c := &comparison{store: s, root: r, dag: newImporter(r.profile)}
	c.dag.onLeaf = func(digest [32]byte, _, length int64) {
		if c.err == nil {
			c.err = s.checkLeafRow(digest, length)
		}
	}
	c.dag.tree.onNode = func(digest [32]byte, _ []byte) {
		if c.err == nil {
			_, c.err = s.nodeBytes(digest)
		}
	}
	return c
}

// result ends the import. A file that changed explains rows that are missing
// for what it is now, so it is named first.
func (c *comparison) result() error {
	got := c.dag.finish().cid
	if sum := c.dag.sha256(); sum != c.root.file || c.dag.size != c.root.size || got != c.root.cid {
		return fmt.Errorf("%w: the file has %d bytes, SHA-256 %x and CID %s; its rows name %d, %x and %s",
			errLost, c.dag.size, sum, got, c.root.size, c.root.file, c.root.cid)
	}
	return c.err
}

func (s *Store) checkLeafRow(digest [32]byte, length int64) error {
	key := leafKey(digest)
	value, ok, err := s.get(key)
	if err != nil {
		return err
	}
	if !ok {
		return fmt.Errorf("%w: leaf %x is not in the index", errLost, digest)
	}
	l, err := parseLeaf(key, value)
	if err == nil && l.length != length {
		err = fmt.Errorf("%w: leaf %x has %d bytes, its row says %d", errLost, digest, length, l.length)
	}
	return err
}
