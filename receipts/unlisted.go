package receipts

import (
	"bytes"
	"context"
	"slices"

	"github.com/verae/archive/wire"
)

// What archives that are not enrolled may add to one gathering. They have room
// of their own, so that nothing they send can displace what an enrolled archive
// answers; what is beyond it is dropped and counted.
const (
	// MaxUnlisted is how many such archives are told apart.
	MaxUnlisted = 64

	// unlistedShare is the part of MaxRecords and of MaxBytes for all of them.
	unlistedShare = 8
)

// A Retirer is a Roster that also knows the archives which were retired. What
// those say is dropped: they were dismissed, and are no strangers.
type Retirer interface {
	WasRetired(id wire.ArchiveID) bool
}

// retired is WasRetired of a roster that has it.
func retired(r Roster) func(wire.ArchiveID) bool {
	if q, ok := r.(Retirer); ok {
		return q.WasRetired
	}
	return func(wire.ArchiveID) bool { return false }
}

// strangers are the archives that are not enrolled, as one gathering sees them.
// They know only the seed's contract: a hit is answered, a miss is silence. So
// nobody can tell when they have said all, and while one may be listening the
// gathering lasts as long as it may and is not complete.
type strangers struct {
	listen  func() bool // reports whether one may be listening now, or was enrolled after the question began
	present bool        // one was, at some moment of this gathering
	retired func(wire.ArchiveID) bool
	ids     map[wire.ArchiveID]bool // of which a record is held
	held    holdings
}

// may reports whether a stranger got the question, as far as can be known. One
// that came while the gathering ran counts, and one that left as well.
func (s *strangers) may() bool {
	s.present = s.present || s.listen()
	return s.present
}

// joined reports whether an archive was enrolled since expected was. It may have
// got the question, and nobody waits for its word. To be asked behind the census:
// whom that takes for enrolled is in the roster then.
func (g *Gatherer) joined(expected []wire.ArchiveID) bool {
	return slices.ContainsFunc(g.Roster.Enrolled(), func(id wire.ArchiveID) bool {
		_, known := slices.BinarySearch(expected, id)
		return !known
	})
}

// takeStranger adds the records of an archive that is not enrolled. Nothing is
// known of it and nothing is believed: the right of the caller is judged by the
// record, its id is computed here, and what only an enrolled archive can know of
// it is left out.
func (g *gathering) takeStranger(ctx context.Context, r wire.Reply) {
	if _, err := wire.ParseArchiveID(string(r.ArchiveID)); err != nil || g.others.retired(r.ArchiveID) || !g.others.may() {
		g.drop(dropUnlisted)
		return
	}
	if r.SHA256 != g.digest {
		g.drop(dropDigest)
		return
	}
	for _, record := range r.Records {
		record, reason, _ := g.admit(anonymous(record))
		if reason == "" && record.Kind == wire.KindPrivateMetadata && !bytes.HasPrefix(record.Body, []byte(wire.SealedMagic)) {
			reason = dropMalformed // nobody could open it
		}
		if reason == "" && !g.others.add(r.ArchiveID, record) {
			reason = dropTooManyHeld
		}
		if reason != "" {
			g.drop(reason)
			g.log.DebugContext(ctx, "record of an archive that is not enrolled dropped", "archive", r.ArchiveID, "reason", reason)
		}
	}
}

// anonymous is r without what its sender says of it beside its content.
func anonymous(r wire.Record) wire.Record {
	r.ID, r.Seq, r.Retention = wire.RecordID{}, 0, nil
	if r.File != nil {
		f := *r.File
		f.ID = wire.RecordID{}
		r.File = &f
	}
	return r
}

// add holds an admitted record, if there is room.
func (s *strangers) add(id wire.ArchiveID, r wire.Record) bool {
	if !s.ids[id] && len(s.ids) >= MaxUnlisted {
		return false
	}
	if s.ids == nil {
		s.ids = map[wire.ArchiveID]bool{}
	}
	s.ids[id] = true
	return len(s.held.add(id, r)) == 0
}

// records are all records that are held. Of one that an enrolled archive has,
// a stranger only adds that he has it too.
func (g *gathering) records() []Held {
	list := g.held.list()
	if len(g.others.held.byID) == 0 {
		return list
	}
	for i := range list {
		if same, ok := g.others.held.byID[list[i].Record.ID]; ok {
			list[i].ArchiveIDs = union(list[i].ArchiveIDs, same.ArchiveIDs)
		}
	}
	cut := g.held.cut
	for id, held := range g.others.held.byID {
		if _, ok := g.held.byID[id]; !ok && (cut == nil || bytes.Compare(id[:], cut[:]) < 0) {
			list = append(list, *held)
		}
	}
	return inOrder(list)
}
