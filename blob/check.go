package blob

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"iter"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/cockroachdb/pebble/v2"
)

// Kinds of findings.
const (
	FindingFile         = "file"         // the bytes of a file, or the rows of its tree
	FindingIndex        = "index"        // a file of the index, or a row that belongs to no single file
	FindingStray        = "stray"        // a file that no row names
	FindingUnreferenced = "unreferenced" // a row that no file needs
)

// Finding is something a check did not find as it should be.
type Finding struct {
	Kind   string
	SHA256 [32]byte // of the file, if its name tells
	Path   string   // where its bytes rest or should rest
	What   string
	// Damage says that stored bytes are lost or changed. Otherwise no loss is
	// proved: a file without rows is the trace of a crash before its commit was
	// acknowledged, or of rows that were lost.
	Damage bool
}

// Check reads every file of the store and compares it with its SHA-256, with
// every root it is kept under, and with all rows of its tree; then it looks for
// rows that no file needs. It yields what is wrong, and an error when it cannot
// go on. Damaged files are remembered as if a reader had met them. The store
// stays in use meanwhile; files committed during the check may or may not be
// looked at. It keeps 16 bytes in memory for each block of a file.
func (s *Store) Check(ctx context.Context) iter.Seq2[Finding, error] {
	return func(yield func(Finding, error) bool) {
		for f, err := range s.CheckFiles(ctx, CheckOptions{}) {
			if !yield(f, err) || err != nil {
				return
			}
		}
		for f, err := range s.CheckRows(ctx) {
			if !yield(f, err) || err != nil {
				return
			}
		}
	}
}

// CheckOptions say how files are checked.
type CheckOptions struct {
	// After is the SHA-256 of the last file that need not be checked: a check
	// goes by their order. The zero value means all.
	After [32]byte
	// Read is called before so many bytes of a file are read, and may wait. An
	// error ends the check. Nil means that files are read side by side, as fast
	// as they come.
	Read func(ctx context.Context, bytes int) error
	// Done is told of every file that was checked, in order; nil for none.
	Done func(sha256 [32]byte, size int64)
}

// CheckFiles is Check without [Store.CheckRows].
func (s *Store) CheckFiles(ctx context.Context, o CheckOptions) iter.Seq2[Finding, error] {
	if o.Done == nil {
		o.Done = func([32]byte, int64) {}
	}
	return func(yield func(Finding, error) bool) {
		for i := int(o.After[0]); i < 256; i++ {
			findings, err := s.checkDir(ctx, byte(i), o)
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
func (s *Store) checkDir(ctx context.Context, first byte, o CheckOptions) (findings []Finding, err error) {
	roots, findings, err := s.filesOf(ctx, first)
	if err != nil {
		return findings, err
	}
	order := slices.SortedFunc(maps.Keys(roots), func(a, b [32]byte) int { return bytes.Compare(a[:], b[:]) })
	order = slices.DeleteFunc(order, func(sha256 [32]byte) bool { return bytes.Compare(sha256[:], o.After[:]) <= 0 && o.After != [32]byte{} })
	side := 1
	if o.Read == nil {
		side = 2 * runtime.GOMAXPROCS(0) // some wait for the disk, the others hash
		o.Read = unhurried
	}
	for batch := range slices.Chunk(order, side) {
		found := make([]*Finding, len(batch))
		errs := make([]error, len(batch))
		var wg sync.WaitGroup
		for i, sha256 := range batch {
			wg.Go(func() { found[i], errs[i] = s.checkOne(ctx, sha256, roots[sha256], o) })
		}
		wg.Wait()
		for _, f := range found {
			if f != nil {
				findings = append(findings, *f)
			}
		}
		if err := errors.Join(errs...); err != nil {
			return findings, err
		}
		for _, sha256 := range batch {
			size := int64(0)
			for _, r := range roots[sha256] {
				size = r.size
			}
			o.Done(sha256, size)
		}
	}
	strays, err := s.strays(ctx, first, roots)
	return append(findings, strays...), err
}

// filesOf is rootsOf for a store that may be closed at any time.
func (s *Store) filesOf(ctx context.Context, first byte) (roots map[[32]byte][]rootInfo, findings []Finding, err error) {
	leave, err := s.enter()
	if err != nil {
		return nil, nil, err
	}
	defer leave()
	if err := ctx.Err(); err != nil {
		return nil, nil, err
	}
	return s.rootsOf(first)
}

// checkOne checks a file under all its roots. The error says that the check can
// not go on.
func (s *Store) checkOne(ctx context.Context, sha256 [32]byte, roots []rootInfo, o CheckOptions) (*Finding, error) {
	g := gate{store: s, read: o.Read}
	if err := g.enter(); err != nil {
		return nil, err
	}
	defer g.leave()
	if err := s.wait(ctx, sha256); err != nil {
		return nil, err
	}
	stopped, err := s.compare(ctx, sha256, roots, g.wait)
	if stopped != nil || err == nil {
		return nil, stopped
	}
	what := s.readError(sha256, err).Error()
	return &Finding{Kind: FindingFile, SHA256: sha256, Path: s.filePath(sha256), What: what, Damage: s.isDamaged(sha256)}, nil
}

// strays finds the files that no row names.
func (s *Store) strays(ctx context.Context, first byte, roots map[[32]byte][]rootInfo) (findings []Finding, err error) {
	leave, err := s.enter()
	if err != nil {
		return nil, err
	}
	defer leave()
	dir := s.path(dirFiles, hex.EncodeToString([]byte{first}))
	names, err := s.cfg.FS.List(dir)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		path := s.cfg.FS.PathJoin(dir, name)
		sum, err := hex.DecodeString(name)
		if err != nil || len(sum) != digestLen || name != strings.ToLower(name) {
			findings = append(findings, Finding{Kind: FindingStray, Path: path, What: "not a file of this store"})
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
			findings = append(findings, Finding{Kind: FindingStray, SHA256: sha256, Path: path, What: "no row names this file; the next upload of its bytes adopts it"})
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
		findings = append(findings, Finding{Kind: FindingFile, SHA256: sha256, Path: s.path(dirIndex), What: s.damaged(sha256, err).Error(), Damage: true})
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
