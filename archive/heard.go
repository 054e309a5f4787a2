package archive

import (
	"cmp"
	"fmt"
	"slices"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/internal/tlogx"
	"github.com/verae/archive/wire"
)

// A testimony is a checkpoint of this archive's current generation that somebody
// remembers and that this archive has signed.
type testimony struct {
	by wire.ArchiveID
	tlogx.Checkpoint
}

// Heard compares the log with what others remember of it. A directory that was
// put back as a whole, with its mark, agrees with itself: only they can know that
// there was more.
//
// A checkpoint that this archive signed and that its log does not continue makes
// the archive read-only until it is opened again, with the reason ROLLED_BACK if
// the log is shorter and LOG_FORKED if it is another, and is returned as
// fault.Corrupt with that code. What this archive did not sign proves nothing and
// is ignored, so are the logs of other generations.
func (n *Node) Heard(list []wire.Remembered) error {
	if err := n.enter(); err != nil {
		return err
	}
	defer n.leave()
	signed, err := n.testimonies(list)
	if err != nil {
		return err
	}
	for _, s := range signed {
		if err := n.compareHeard(s); err != nil {
			if fault.CodeOf(err) == codeRolledBack || fault.CodeOf(err) == "LOG_FORKED" {
				n.health.refute(err)
			}
			return err
		}
	}
	return nil
}

// testimonies returns what this archive has signed of what is remembered, the
// longest first.
func (n *Node) testimonies(list []wire.Remembered) (signed []testimony, err error) {
	log := n.identity.lineage.current()
	verifier, err := tlogx.NewVerifier(log.origin(), log.PublicKey)
	if err != nil {
		return nil, fmt.Errorf("archive: what is remembered: %w", err)
	}
	for _, r := range list {
		if r.ArchiveID == n.cfg.ID && r.Generation > log.Generation {
			n.cfg.Log.Warn("a newer generation of this archive is remembered: is this the directory that was replaced?",
				"by", string(r.By), "generation", r.Generation, "own", log.Generation)
		}
		if r.ArchiveID != n.cfg.ID || r.Generation != log.Generation || r.Checkpoint == "" || len(r.Checkpoint) > maxCheckpoint {
			continue
		}
		p, err := tlogx.OpenCheckpoint([]byte(r.Checkpoint), verifier)
		if err != nil {
			n.cfg.Log.Warn("what is remembered was not signed by this archive", "by", string(r.By), "err", err)
			continue
		}
		signed = append(signed, testimony{r.By, p})
	}
	slices.SortStableFunc(signed, func(a, b testimony) int { return cmp.Compare(b.Size, a.Size) })
	return signed, nil
}

// compareHeard refuses a log that does not continue what was signed. Whatever was
// signed was durable before, so a log that grows meanwhile is never behind it.
func (n *Node) compareHeard(s testimony) error {
	base, last := n.identity.lineage.current().base(), n.durable.Load()
	if end := base + uint64(s.Size) - 1; end > last {
		return fault.New(fault.Corrupt, codeRolledBack,
			"archive: the log ends at seq %d, and %s remembers a checkpoint up to seq %d that this archive signed: %s is an older copy of itself; what it has is answered. Stop it and start the right directory, or restore it; `archived repair --dry-run` tells what the others know",
			last, s.by, end, n.cfg.Dir)
	}
	root, err := tlog.TreeHash(s.Size, n.hashes())
	if err != nil {
		return fmt.Errorf("archive: the root over %d leaves: %w", s.Size, err)
	}
	if root != s.Root {
		return fault.New(fault.Corrupt, "LOG_FORKED",
			"archive: the first %d leaves of the log are not those that this archive signed, as %s remembers: %s is an older copy that was written on, or its key is used twice; what it has is answered. Stop it and start the right directory, or restore it; `archived repair --dry-run` tells what the others know",
			s.Size, s.by, n.cfg.Dir)
	}
	return nil
}
