package blob

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/verae/archive/internal/pebblex"
)

// checkFile reads a stored file and compares it with its rows.
func (s *Store) checkFile(ctx context.Context, sha256 [32]byte, roots []rootInfo) error {
	stopped, err := s.compare(ctx, sha256, roots, unhurried)
	return errors.Join(stopped, err)
}

func unhurried(ctx context.Context, _ int) error { return ctx.Err() }

// compare imports a stored file again, once for each root, and compares all that
// comes out. stopped says that the work had to end before.
func (s *Store) compare(ctx context.Context, sha256 [32]byte, roots []rootInfo, read func(context.Context, int) error) (stopped, err error) {
	f, err := s.cfg.FS.Open(s.filePath(sha256), vfs.SequentialReadsOption)
	if err != nil {
		return nil, fmt.Errorf("blob: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("blob: read %x: %w", sha256, err)
	}
	rest := info.Size()
	pebblex.Forget(f)
	against := make([]*comparison, len(roots))
	for i, r := range roots {
		against[i] = s.compareWith(r)
	}
	buf := make([]byte, hashStep)
	for {
		if stopped = read(ctx, int(min(max(rest, 0), hashStep))); stopped != nil {
			return stopped, nil
		}
		n, err := io.ReadFull(f, buf)
		if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			return nil, fmt.Errorf("blob: read %x: %w", sha256, err)
		}
		for _, c := range against {
			c.dag.write(buf[:n])
		}
		if err != nil {
			break
		}
		rest -= hashStep
	}
	for _, c := range against {
		if err := c.result(); err != nil {
			return nil, err
		}
	}
	return nil, nil
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
