package archive

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"slices"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/internal/tlogx"
)

// findMarks finds out what the log must have: the mark, and what other archives
// have seen this one sign. They can not make anything up, but they may have seen
// more than a directory that was put back knows of.
func (r *repairer) findMarks(ctx context.Context) error {
	own, err := readMark(r.Config, r.relic.identity)
	switch {
	case err == nil:
		r.marks, r.own, r.report.Mark = append(r.marks, own), own.seq, MarkOwn
	case fault.Is(err, fault.Corrupt):
		r.relic.damage("%v", err)
	default:
		return err
	}
	remembered, err := r.remembered(ctx)
	if err != nil && len(r.marks) == 0 && !r.TrustStore {
		return fmt.Errorf("archive: repair %s: the mark is lost, and the other archives could not be asked for it: %w", r.Dir, err)
	}
	if err != nil {
		r.Log.Warn("nobody says what is remembered of this archive: an older copy of the directory would pass for the newest", "err", err)
	}
	if len(r.marks) == 0 && len(remembered) > 0 {
		r.report.Mark = MarkPeers
	}
	r.marks = append(r.marks, remembered...)
	slices.SortFunc(r.marks, func(a, b mark) int { return int(a.size - b.size) })
	for i := 1; i < len(r.marks); i++ {
		if a, b := r.marks[i-1], r.marks[i]; a.size == b.size && a.root != b.root {
			return r.refuse("LOG_FORKED", "this archive has signed two roots over %d leaves: its key was used by two logs", a.size)
		}
	}
	if len(r.marks) > 0 {
		r.report.MarkSeq = r.marks[len(r.marks)-1].seq
		return nil
	}
	if !r.TrustStore {
		return fault.New(fault.Corrupt, "MARK_MISSING",
			"archive: repair %s: there is no mark, and no other archive remembers one, so nobody can tell where the log ended. Put %s back, or start other archives that knew this one; or, if you know that nothing is missing at the end, give --trust-store: what is left then passes for all there was",
			r.Dir, r.markPath())
	}
	r.report.Mark = MarkNone
	return nil
}

// remembered returns the checkpoints of the current generation that other
// archives have heard, as far as this archive's key has signed them.
func (r *repairer) remembered(ctx context.Context) (marks []mark, err error) {
	if r.Peers == nil {
		return nil, nil
	}
	answers, err := r.Peers.Remembered(ctx, r.ID)
	if err != nil {
		return nil, err
	}
	log := r.relic.identity.lineage.current()
	verifier, err := tlogx.NewVerifier(log.origin(), log.PublicKey)
	if err != nil {
		return nil, fmt.Errorf("archive: repair: %w", err)
	}
	key := base64.StdEncoding.EncodeToString(log.PublicKey)
	for _, a := range answers {
		if a.Generation == log.Generation && a.Key == key {
			r.report.HeardSeq = max(r.report.HeardSeq, a.Seq)
		}
		if a.Generation != log.Generation || a.Checkpoint == "" {
			continue
		}
		p, err := tlogx.OpenCheckpoint([]byte(a.Checkpoint), verifier)
		if err != nil {
			r.relic.damage("what archive %s remembers of this one was not signed by it: %v", a.By, err)
			continue
		}
		marks = append(marks, mark{treeHead{seq: log.base() + uint64(p.Size) - 1, size: p.Size, root: p.Root}, a.Checkpoint})
	}
	return marks, nil
}

// prove computes the trees and holds them against the marks, and those of older
// generations against what the next one has signed of them.
func (r *repairer) prove() error {
	t, err := newForest(r.relic.identity.lineage)
	if err != nil {
		return err
	}
	marks := r.marks
	check := func() error {
		for ; len(marks) > 0 && t.last() && t.edge.Size() == marks[0].size; marks = marks[1:] {
			if t.edge.Root() != marks[0].root {
				return r.refuse("LOG_FORKED", "the root over the first %d leaves is not the one that was signed: one of these records is not the one that was promised, and nothing tells which", marks[0].size)
			}
		}
		return nil
	}
	for _, s := range r.slots {
		if err := r.advance(t, s.index); err != nil {
			return err
		}
		if err := check(); err != nil {
			return err
		}
		if _, err := t.append(s.bone); err != nil {
			return err
		}
	}
	if err := r.advance(t, len(t.log)-1); err != nil {
		return err
	}
	if err := check(); err != nil {
		return err
	}
	if len(marks) > 0 {
		m := marks[len(marks)-1]
		return r.refuse(codeRolledBack, "%d leaves were signed, and neither store nor skeleton knows of more than %d: this is an older copy of the directory, or both were cut", m.size, t.edge.Size())
	}
	return nil
}

// advance goes on to the tree of a later generation, each of which has signed the
// root of the one before.
func (r *repairer) advance(t *forest, index int) error {
	for t.index < index {
		root, next := t.edge.Root(), t.log[t.index+1]
		first, last := t.log.kept(t.index, 0)
		if last >= first && !bytes.Equal(root[:], next.PrevRoot) {
			return r.refuse("LOG_FORKED", "the records of generation %d are not those that generation %d continues", t.log[t.index].Generation, next.Generation)
		}
		if _, err := t.begin(t.index + 1); err != nil {
			return err
		}
	}
	return nil
}

// forest grows the trees of all generations, one after the other.
type forest struct {
	log   lineage
	index int // of the generation whose tree is growing
	edge  *tlogx.Edge
}

func newForest(log lineage) (*forest, error) {
	t := &forest{log: log}
	_, err := t.begin(0)
	return t, err
}

// last reports whether the tree is that of the current generation.
func (t *forest) last() bool { return t.index == len(t.log)-1 }

// begin begins the tree of a generation and returns what its genesis adds, if it
// has one.
func (t *forest) begin(index int) (hashes []tlog.Hash, err error) {
	t.index, t.edge = index, new(tlogx.Edge)
	g := t.log[index]
	if g.Generation == firstGeneration {
		return nil, nil
	}
	leaf, err := g.genesis()
	if err != nil {
		return nil, err
	}
	return t.grow(leaf), nil
}

// append adds the leaf of a record and returns the hashes that come with it.
func (t *forest) append(e bone) ([]tlog.Hash, error) {
	g := t.log[t.index]
	leaf, err := encodeLeaf(g.ArchiveID, g.Generation, e)
	if err != nil {
		return nil, err
	}
	return t.grow(leaf), nil
}

func (t *forest) grow(leaf []byte) (hashes []tlog.Hash) {
	t.edge.Append(tlog.RecordHash(leaf), func(_ int64, h tlog.Hash) { hashes = append(hashes, h) })
	return hashes
}
