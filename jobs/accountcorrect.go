package jobs

import (
	"maps"
	"slices"

	"github.com/verae/archive/wire"
)

// tally counts what a page of a walk found.
type tally struct {
	records, absent, lost, undecided uint64
	listed                           float64 // rows of the list of lost records, less those taken off it
}

// correctAll corrects the submissions of a page by what the archives said. It
// runs in the committer.
func (e *Engine) correctAll(t *tx, l Loss, list []*submission, found facts, held map[ref]bool) (n tally, err error) {
	for _, s := range list {
		if s.Status == wire.StatusFailed {
			continue
		}
		if !held[s.ref()] {
			n.records += s.acknowledged(l.Archive)
			if s.inDoubt(found) { // it is being worked on: the next walk sees it
				n.undecided++
			}
			continue
		}
		if s, err = t.submission(s.ref()); err != nil {
			return n, err
		}
		if err := e.correct(t, l, s, found, &n); err != nil {
			return n, err
		}
	}
	return n, nil
}

// acknowledged counts the records of s that an archive acknowledged.
func (s *submission) acknowledged(id wire.ArchiveID) (n uint64) {
	for i := range s.Parts {
		if slices.Contains(s.Parts[i].Acks, id) {
			n++
		}
	}
	return n
}

// correct makes the copies of s those that there are. What lacks copies then
// goes on the work list, and what nobody has on the list of lost records.
func (e *Engine) correct(t *tx, l Loss, s *submission, found facts, n *tally) error {
	enrolled := e.cfg.Archives.Enrolled()
	for i := range s.Parts {
		p, said := &s.Parts[i], found[s.Parts[i].RecordID]
		if said == nil {
			continue
		}
		acknowledged := slices.Contains(p.Acks, l.Archive)
		if acknowledged {
			n.records++
		}
		_, outbox, err := t.get(rowKey(rowOutbox, s.ref().key(), ordinal(i)))
		if err != nil {
			return err
		}
		nowhere := !outbox && !slices.Contains(slices.Collect(maps.Values(said)), true)
		if nowhere && !all(said, append(slices.Clone(p.Acks), enrolled...)) {
			n.undecided++ // and as it was: the next walk sees it
			continue
		}
		if acknowledged && !said[l.Archive] {
			n.absent++
		}
		s.believe(p, said)
		if nowhere {
			err = t.list(e, l, s, i, n)
		} else {
			err = t.unlist(s, p, n)
		}
		if err != nil {
			return err
		}
		s.Reopened = s.Reopened || !outbox
	}
	if s.Copied = e.complete(s); !s.Copied {
		t.set(rowKey(rowPending, s.ref().key()), nil)
	}
	return t.putSubmission(s)
}

// all reports whether every one of some archives has said something.
func all(said map[wire.ArchiveID]bool, ids []wire.ArchiveID) bool {
	return !slices.ContainsFunc(ids, func(id wire.ArchiveID) bool { _, asked := said[id]; return !asked })
}

// believe makes the copies of a part, and of the file behind it, those that the
// archives said. Those that were not asked keep what they acknowledged.
func (s *submission) believe(p *part, said map[wire.ArchiveID]bool) {
	for id, has := range said {
		lists := []*[]wire.ArchiveID{&p.Acks}
		if p.File > 0 {
			lists = append(lists, &s.Files[p.File-1].Committed)
		}
		for _, list := range lists {
			if has {
				*list = addArchive(*list, id)
			} else {
				*list = slices.DeleteFunc(*list, func(other wire.ArchiveID) bool { return other == id })
			}
		}
	}
}

// list puts a record on the list of lost ones.
func (t *tx) list(e *Engine, l Loss, s *submission, i int, n *tally) error {
	p := &s.Parts[i]
	if p.Lost != "" {
		return nil
	}
	p.Lost = l.Archive
	row, err := encodeRow(LostRecord{
		RecordID: p.RecordID, Kind: p.Kind, TenantID: s.Tenant, SubmissionID: s.ID, SHA256: s.Digest, FoundAt: wire.At(e.cfg.Now()),
	})
	if err != nil {
		return err
	}
	t.set(lostKey(l.Archive, p.RecordID), row)
	for _, key := range s.vanished(p) {
		t.set(key, nil)
	}
	e.losses.Store(true)
	n.lost++
	n.listed++
	e.cfg.Log.Error("a record that was acknowledged is on no archive", "archive", l.Archive, "record", p.RecordID, "submission", s.ID, "kind", p.Kind)
	return nil
}

// unlist takes a record that was found again off the list.
func (t *tx) unlist(s *submission, p *part, n *tally) error {
	if p.Lost != "" {
		t.del(lostKey(p.Lost, p.RecordID))
		for _, key := range s.vanished(p) {
			t.del(key)
		}
		p.Lost = ""
		n.listed--
	}
	return nil
}
