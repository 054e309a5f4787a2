package archive

import (
	"fmt"
	"math"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/verae/archive/internal/tlogx"
	"github.com/verae/archive/wire"
)

// growTo adds all leaves in places before place that no record told of, as the
// tree has them stored: the genesis of a generation, and what is missing.
func (w *logWalk) growTo(place uint64) {
	p, log := w.c.pos, w.c.n.identity.lineage
	for next := p.Generation + 1; next < len(log) && (next == 0 || place > log[next].base()); next++ {
		if next > 0 {
			w.fill(log[next].PrevSize + 1)
		}
		w.enter(next)
	}
	if p.Generation >= 0 {
		w.fill(place)
	}
}

// fill adds the leaves of the current generation that are stored in the places
// before end.
func (w *logWalk) fill(end uint64) {
	p := w.c.pos
	base := w.c.n.identity.lineage[p.Generation].base()
	for at := base + uint64(p.edge.Size()); at < end && !p.Blind; at++ {
		w.grow(at, nil, false, wire.RecordID{})
	}
}

// enter ends the tree of a generation and begins that of the next.
func (w *logWalk) enter(i int) {
	c, p, log := w.c, w.c.pos, w.c.n.identity.lineage
	if i > 0 && !p.Blind {
		first, last := log.kept(i-1, log[i].PrevSize)
		if root := p.edge.Root(); last >= first && [32]byte(log[i].PrevRoot) != root {
			c.found(Finding{Kind: FindingTree, What: fmt.Sprintf("generation %d ends with root %s, generation %d continues %s", log[i-1].Generation, root, log[i].Generation, tlog.Hash(log[i].PrevRoot)), Damage: true})
		}
	}
	p.Generation, p.edge, p.Blind = i, new(tlogx.Edge), false
	w.row = commitRow{}
	if g := log[i]; g.base() < g.FirstSeq {
		genesis, err := g.genesis()
		if err != nil {
			c.found(Finding{Kind: FindingGeneration, What: err.Error(), Damage: true})
			return
		}
		h := tlog.RecordHash(genesis)
		w.grow(g.base(), &h, false, wire.RecordID{})
	}
}

// grow adds the leaf in a place, and compares what it completes with what is
// stored. Where nothing tells the leaf, it is the stored one. Where both do and
// differ, the tree goes on with the one that is likely to be right, so that one
// leaf is not many findings: doubt says that it is the stored one.
func (w *logWalk) grow(place uint64, leaf *tlog.Hash, doubt bool, id wire.RecordID) {
	c, p := w.c, w.c.pos
	if p.Blind {
		return
	}
	base := c.n.identity.lineage[p.Generation].base()
	bad := func(format string, args ...any) {
		c.found(Finding{Kind: FindingTree, What: fmt.Sprintf(format, args...), Damage: true, Seq: place, Record: id})
	}
	if place != base+uint64(p.edge.Size()) {
		return
	}
	stored, begin := w.rowOf(place, base)
	at := func(index int64) *tlog.Hash {
		if i := index - begin; stored && i >= 0 && i < int64(len(w.row.hashes)) {
			return &w.row.hashes[i]
		}
		return nil
	}
	of := at(tlog.StoredHashIndex(0, p.edge.Size()))
	switch {
	case of == nil && leaf == nil:
		p.Blind = true // no leaf behind this one can be proved
		return
	case leaf == nil:
		leaf = of
	case of != nil && *of != *leaf:
		bad("the leaf of seq %d is not that of its record", place)
		if doubt {
			leaf = of
		}
	}
	p.edge.Append(*leaf, func(index int64, h tlog.Hash) {
		if s := at(index); s != nil && *s != h && s != of {
			bad("stored hash %d of the tree, which leaf %d completes, is wrong", index, place)
		}
	})
	p.Report.Leaves++
	if p.Generation == len(c.n.identity.lineage)-1 && p.edge.Size() == p.Mark.Size && p.edge.Root() != tlog.Hash(p.Mark.Root) {
		c.found(Finding{Kind: FindingMark, What: fmt.Sprintf("the root over %d leaves is not the one that the mark has signed", p.Mark.Size), Damage: true})
	}
}

// rowOf makes row the commit that has the leaf in a place. It returns whether
// there is one, and the index of its first hash.
func (w *logWalk) rowOf(place, base uint64) (ok bool, begin int64) {
	if w.row.first != 0 && place >= w.row.first && place <= w.row.last {
		return true, tlog.StoredHashCount(int64(w.row.first - base))
	}
	if place <= w.bad {
		return false, 0
	}
	bad := func(last uint64, format string, args ...any) {
		w.bad = max(last, place)
		w.c.found(Finding{Kind: FindingTree, What: fmt.Sprintf(format, args...), Damage: true, Seq: place})
	}
	begun := w.row.first != 0 // the commit before it ended right here
	w.row = commitRow{}
	next := uint64(math.MaxUint64)
	for valid := w.commits.SeekGE(commitKey(place)); valid; valid = w.commits.Next() {
		last, known := keySeq(prefixCommit, w.commits.Key())
		if !known {
			bad(place, "commit key %x", w.commits.Key())
			continue
		}
		row, err := decodeCommit(last, w.commits.Value())
		if err != nil {
			bad(last, "%v", err)
			continue
		}
		if next = row.first - 1; next >= place {
			break
		}
		want := tlog.StoredHashCount(int64(row.last-base)+1) - tlog.StoredHashCount(int64(row.first-base))
		if row.first < base || int64(len(row.hashes)) != want || begun && row.first != place {
			bad(last, "commit %d has %d hashes from place %d; the tree needs %d there, and its next leaf is in place %d", last, len(row.hashes), row.first, want, place)
			continue
		}
		w.row = row
		return true, tlog.StoredHashCount(int64(row.first - base))
	}
	switch err := w.commits.Error(); {
	case err != nil:
		w.bad = place
		w.c.unreadable(FindingTree, fmt.Sprintf("the commit of the leaf in place %d", place), err)
	case place > w.bad:
		bad(next, "no commit has the leaf in place %d", place)
	}
	return false, 0
}
