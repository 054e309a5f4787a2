package archive

import (
	"fmt"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/internal/tlogx"
	"github.com/verae/archive/wire"
)

// Proof returns the newest published checkpoint and the hashes that prove the
// tree of from leaves, of the same generation, to be a prefix of it (RFC 6962,
// section 2.1.2). It is empty from 0 and between equal sizes. A size that the
// checkpoint does not reach is fault.NotFound with code NO_CHECKPOINT.
func (n *Node) Proof(from uint64) (wire.CtlProof, error) {
	m := n.keeper.published.Load()
	if from > uint64(m.size) {
		return wire.CtlProof{}, fault.New(fault.NotFound, "NO_CHECKPOINT",
			"archive: the newest checkpoint has %d leaves, there is no proof from %d", m.size, from).InField("from")
	}
	hashes, err := n.Consistency(int64(from), m.size)
	out := wire.CtlProof{Checkpoint: m.note, Proof: make([][]byte, len(hashes))}
	for i := range hashes {
		out.Proof[i] = hashes[i][:]
	}
	return out, err
}

// Consistency returns the hashes that prove the tree of from leaves to be a
// prefix of that of to leaves, both of the current generation. Sizes that a
// published checkpoint does not cover are fault.NotFound with code NO_CHECKPOINT.
func (n *Node) Consistency(from, to int64) ([]tlog.Hash, error) {
	if m := n.keeper.published.Load(); from < 0 || from > to || to > m.size {
		return nil, fault.New(fault.NotFound, "NO_CHECKPOINT",
			"archive: the newest checkpoint has %d leaves, there is no proof from %d to %d", m.size, from, to)
	}
	if err := n.enter(); err != nil {
		return nil, err
	}
	defer n.leave()
	hashes, err := tlogx.Consistency(from, to, n.hashes())
	if err != nil {
		return nil, fmt.Errorf("archive: prove %d leaves from %d: %w", to, from, err)
	}
	return hashes, nil
}

// Inclusion proves under the newest published checkpoint that the log has the
// record with the number seq, or had it: the leaf, which is the proof's extra, is
// the same for a lost one. A number that the checkpoint does not cover, or of
// another generation, is fault.NotFound with code NO_LEAF.
func (n *Node) Inclusion(seq uint64) (tlogx.Proof, error) {
	m, g := n.keeper.published.Load(), n.identity.lineage.current()
	if seq < g.FirstSeq || seq > m.seq {
		return tlogx.Proof{}, fault.New(fault.NotFound, "NO_LEAF",
			"archive: the newest checkpoint is of generation %d, seq %d to %d; seq %d is not under it", g.Generation, g.FirstSeq, m.seq, seq)
	}
	if err := n.enter(); err != nil {
		return tlogx.Proof{}, err
	}
	defer n.leave()
	p := tlogx.Proof{Index: int64(seq - g.base()), Checkpoint: []byte(m.note)}
	err := n.bones(seq, func(e bone) (err error) {
		if e.seq != seq {
			return n.damaged("seq %d is not in the log", seq)
		}
		p.Extra, err = encodeLeaf(string(n.cfg.ID), n.identity.generation, e)
		if err != nil {
			return err
		}
		return errStop
	})
	if err != nil {
		return tlogx.Proof{}, err
	}
	p.Hashes, err = tlog.ProveRecord(m.size, p.Index, n.hashes())
	if err != nil {
		return tlogx.Proof{}, fmt.Errorf("archive: prove seq %d: %w", seq, err)
	}
	return p, nil
}
