package archive

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/internal/pebblex"
	"github.com/verae/archive/internal/tlogx"
)

const (
	maxMarkFile = 4 << 10 // bytes
	markPerm    = 0o600

	// howToRepair ends every message about a store that is not what it was.
	howToRepair = "do not start it again as it is: `archived repair` builds a whole one from what is here and from the other archives"
)

func (c Config) markPath() string { return c.FS.PathJoin(c.Dir, "highwater") }

// writeMarkFile signs a head and makes it the mark.
func writeMarkFile(c Config, id identity, head treeHead) (mark, error) {
	signed, err := tlogx.Checkpoint{Origin: id.lineage.current().origin(), Size: head.size, Root: head.root}.Sign(id.signer)
	if err != nil {
		return mark{}, fmt.Errorf("archive: sign the mark: %w", err)
	}
	if err := pebblex.WriteFile(c.FS, c.markPath(), signed, markPerm); err != nil {
		return mark{}, fmt.Errorf("archive: the mark: %w", err)
	}
	return mark{head, string(signed)}, nil
}

// readMark reads the mark and verifies that this archive has signed it.
func readMark(c Config, id identity) (mark, error) {
	signed, err := pebblex.ReadFile(c.FS, c.markPath(), maxMarkFile)
	if errors.Is(err, os.ErrNotExist) {
		return mark{}, fault.New(fault.Corrupt, "MARK_MISSING",
			"archive: open %s: the mark %s is not there, so nobody can tell whether records were lost; put it back, or: %s", c.Dir, c.markPath(), howToRepair)
	}
	if err != nil {
		return mark{}, fault.New(fault.Corrupt, "MARK_BAD", "archive: open %s: the mark: %w; %s", c.Dir, err, howToRepair)
	}
	log := id.lineage.current()
	verifier, err := tlogx.NewVerifier(log.origin(), log.PublicKey)
	if err != nil {
		return mark{}, fmt.Errorf("archive: open %s: %w", c.Dir, err)
	}
	p, err := tlogx.OpenCheckpoint(signed, verifier)
	if err != nil {
		return mark{}, fault.New(fault.Corrupt, "MARK_BAD",
			"archive: open %s: %s is not a mark of %s: %w; put the right one back, or: %s", c.Dir, c.markPath(), log.origin(), err, howToRepair)
	}
	return mark{treeHead{seq: log.base() + uint64(p.Size) - 1, size: p.Size, root: p.Root}, string(signed)}, nil
}

// compareMark refuses a log that does not continue what the mark has signed.
func (n *Node) compareMark(m mark) error {
	if m.size > n.tail.edge.Size() {
		return n.lostRecords(m.seq, fmt.Sprintf("the mark %s covers", n.cfg.markPath()))
	}
	root, err := tlog.TreeHash(m.size, n.hashes())
	if err != nil {
		return fmt.Errorf("archive: open %s: the root at the mark: %w", n.cfg.Dir, err)
	}
	if root != m.root {
		return fault.New(fault.Corrupt, "LOG_FORKED",
			"archive: open %s: the log has %d leaves, but the first %d are not those that the mark %s has signed: it is another history, as of a store that was put back and written on; %s",
			n.cfg.Dir, n.tail.edge.Size(), m.size, n.cfg.markPath(), howToRepair)
	}
	return nil
}

// lostRecords says which records were there, as evidence shows, and are not.
func (n *Node) lostRecords(last uint64, evidence string) error {
	first := n.tail.seq + 1
	var what strings.Builder
	for _, e := range n.readBones(first, last, namedBones) {
		fmt.Fprintf(&what, ", seq %d is record %s", e.seq, e.id)
	}
	return fault.New(fault.Corrupt, "LOST_RECORDS",
		"archive: open %s: the log ends at seq %d, and %s seq %d: records %d to %d are lost%s; %s",
		n.cfg.Dir, n.tail.seq, evidence, last, first, last, what.String(), howToRepair)
}

// publish makes a head the mark, and before that its records part of the
// skeleton. It is the keeper's write.
func (n *Node) publish(bones []bone, head treeHead) (mark, error) {
	if err := n.leaves.write(bones, n.rebuildSkeleton); err != nil {
		return mark{}, err
	}
	return writeMarkFile(n.cfg, n.identity, head)
}

// Checkpoint returns the newest published checkpoint, a signed note: what it
// covers is durable in the store and outside it.
func (n *Node) Checkpoint() string { return n.keeper.published.Load().note }
