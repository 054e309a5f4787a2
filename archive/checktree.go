package archive

import (
	"context"
	"errors"

	"github.com/cockroachdb/pebble/v2"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/verae/archive/internal/tlogx"
	"github.com/verae/archive/wire"
)

// tree computes the Merkle trees of all generations anew and compares them with
// the commit rows.
func (c *checker) tree(ctx context.Context) error {
	t := treeChecker{c: c, generation: -1}
	err := c.each(ctx, prefixCommit, func(key, value []byte) error {
		last, ok := keySeq(prefixCommit, key)
		if !ok {
			return c.n.damaged("commit key %x", key)
		}
		if last > c.last {
			return nil // being written now
		}
		row, err := decodeCommit(last, value)
		if err != nil {
			return c.n.damaged("%w", err)
		}
		return t.commit(row)
	})
	if err == nil && t.next != c.last+1 && (c.last != 0 || t.next != 0) {
		return c.n.damaged("the tree ends before place %d, the log in place %d", t.next, c.last)
	}
	return err
}

// treeChecker grows the trees, commit by commit.
type treeChecker struct {
	c          *checker
	generation int // index of the one that is growing
	edge       *tlogx.Edge
	next       uint64 // place of the next leaf
}

// commit grows the tree by the leaves of a commit row.
func (t *treeChecker) commit(row commitRow) error {
	n := t.c.n
	log := n.identity.lineage
	if i := t.generation + 1; i < len(log) && row.first == log[i].base() {
		t.generation, t.edge, t.next = i, new(tlogx.Edge), row.first
	}
	if t.edge == nil || row.first != t.next {
		return n.damaged("commit %d begins in place %d, the tree before it ends before place %d", row.last, row.first, t.next)
	}
	var hashes []tlog.Hash
	for place := row.first; place <= row.last; place++ {
		leaf, err := t.leaf(place)
		if err != nil {
			return err
		}
		t.edge.Append(tlog.RecordHash(leaf), func(_ int64, h tlog.Hash) { hashes = append(hashes, h) })
		if len(hashes) > len(row.hashes) {
			break
		}
	}
	if len(hashes) != len(row.hashes) {
		return n.damaged("commit %d has %d hashes, the log gives %d", row.last, len(row.hashes), len(hashes))
	}
	for i, h := range hashes {
		if h != row.hashes[i] {
			return n.damaged("commit %d is not what the log gives", row.last)
		}
	}
	t.next = row.last + 1
	return nil
}

// leaf returns the bytes of the leaf in a place.
func (t *treeChecker) leaf(place uint64) ([]byte, error) {
	n := t.c.n
	g := n.identity.lineage[t.generation]
	if place < g.FirstSeq {
		return g.genesis()
	}
	data, closer, err := t.c.snap.Get(logKey(place))
	switch {
	case errors.Is(err, pebble.ErrNotFound):
		return nil, n.damaged("the tree has a leaf in place %d, the log has no record there", place)
	case err != nil:
		return nil, n.readError(err)
	}
	f, err := decodeFrame(data)
	if err := errors.Join(err, closer.Close()); err != nil {
		return nil, n.damaged("seq %d: %w", place, err)
	}
	return encodeLeaf(string(n.cfg.ID), g.Generation, bone{f.Seq, f.StoredAt, wire.RecordID(f.RecordID)})
}
