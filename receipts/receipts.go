// Package receipts asks the archives what they hold under a digest and puts the
// receipts of a job in order.
//
// [Gatherer.Gather] is the fan-out of one lookup. It has one absolute deadline,
// ends as soon as every expected archive has answered all its pages, or surely has
// nothing, and says honestly whether that was the case. What comes back is not believed: ids are
// computed again, the caller's right to each record is checked again, and what
// fails is dropped and counted.
//
// [Assemble] is pure: it turns what was gathered, and the seal, into the job as
// one caller may see it. Together they keep law 7: the same records give the
// same bytes, in whatever order and from however many archives they arrive.
//
// # What a bad reply does
//
// A reply or record that has no business in the answer (another digest, another
// tenant's record, a kind that was not asked for, an archive that is not
// enrolled where there are none) is ignored, and nothing the caller sees depends
// on it. A visible
// record that is damaged, or does not fit into the caps, is a hole in the
// answer: its archive then counts as missing, and the gathering goes on until
// its deadline, because a copy of the record may still come from elsewhere but
// the answer can no longer be called complete.
//
// # Mirrors
//
// Of an archive with a mirror that may be trusted ([Mirrors]) it is known without
// its word whether it may have something for the caller. Where it has nothing it
// is not named in the question, nobody waits for it, and it counts as one that
// answered with nothing. It may still answer with what came since; an older record
// shows that the mirror was wrong, and then no mirror is believed in this gathering
// any more. Who is named depends on what the caller may see and on nothing else.
//
// An archive that the question did not reach is missing, and nobody
// waits for it either.
//
// # Archives that are not enrolled
//
// An archive that knows only the seed's contract says no hello and answers hits
// alone. While one may be listening (Gatherer.Unlisted) its silence can not be
// told from its slowness: the gathering lasts the whole wait and is not
// complete, whatever the enrolled archives say. Such an archive is neither
// expected nor missing. Its records are shown if they admit the caller, under
// ids computed here; their holdings are apart, and displace nothing. The same
// goes for an archive that is enrolled while a gathering runs: it may have got
// the question, but nobody waits for its word.
package receipts

import (
	"context"
	"slices"

	"github.com/verae/archive/wire"
)

// An Asker puts a query to the archives.
type Asker interface {
	// Ask sends q to every archive that listens, or if alone is set to nobody but the
	// named, which answer even if they have nothing. It returns when ctx ends; the
	// deadline of ctx is the deadline of the whole query.
	//
	// next waits for a word: a reply, as it came and unverified, the pages of one
	// archive in any order; or the id of a named archive that the query did not reach,
	// as far as that can be known. It says no when there is none and its context or
	// ctx is done, and early if and only if nobody listens at all. What came in time it
	// hands out afterwards too. It is called by one goroutine at a time, and not after
	// stop, which the caller calls once when it wants no more.
	Ask(ctx context.Context, q wire.Query, named []wire.ArchiveID, alone bool) (next func(context.Context) (reply wire.Reply, gone wire.ArchiveID, ok bool), stop func(), err error)
}

// A Roster knows the archives of which every one must be heard.
type Roster interface {
	// Enrolled returns the ids of all enrolled archives, alive or not. The caller
	// may keep and change the list.
	Enrolled() []wire.ArchiveID
}

// A Speaker is a Roster that also knows processes. Speaks reports whether a
// reply of the process boot is one of the enrolled archive: another process
// under the same id is not believed, for its silence or its empty answer would
// make an incomplete answer look complete.
type Speaker interface {
	Speaks(id wire.ArchiveID, boot string) bool
}

// A Doubter is a Roster that also knows archives which lost records. Doubted
// reports whether an archive's word that it has no more means nothing: what it
// has is shown, and it counts as missing all the same.
type Doubter interface {
	Doubted(id wire.ArchiveID) bool
}

// doubted is Doubted of a roster that has it; others doubt nobody.
func doubted(r Roster) func(wire.ArchiveID) bool {
	if d, ok := r.(Doubter); ok {
		return d.Doubted
	}
	return func(wire.ArchiveID) bool { return false }
}

// A Current is a Roster that is a copy of another one. Current reports whether it
// has every archive that may have been given a record: while it does not, one that
// nobody knows may have something.
type Current interface {
	Current() bool
}

// current is Current of a roster that has it; others are no copies.
func current(r Roster) bool {
	c, ok := r.(Current)
	return !ok || c.Current()
}

// speaks is Speaks of a roster that has it; others believe every process.
func speaks(r Roster) func(wire.ArchiveID, string) bool {
	if s, ok := r.(Speaker); ok {
		return s.Speaks
	}
	return func(wire.ArchiveID, string) bool { return true }
}

// Held is a record and the archives that hold it.
type Held struct {
	Record     wire.Record      // seq is 0: it is local to an archive; storedAt is the earliest
	ArchiveIDs []wire.ArchiveID // sorted, each once
}

// Vouched reports whether an enrolled archive has the record. Of others anybody
// may have sent it, and where only one can count it stands back.
func (g *Gathered) Vouched(h *Held) bool {
	return slices.ContainsFunc(h.ArchiveIDs, func(id wire.ArchiveID) bool { return slices.Contains(g.Expected, id) })
}

// Gathered is what the archives answered. The lists are never nil.
type Gathered struct {
	Records  []Held           // in the order of law 7: by instant, then by id
	Expected []wire.ArchiveID // the enrolled archives, sorted
	Missing  []wire.ArchiveID // those of them that did not answer in full, by themselves or by their mirror, sorted
	Replied  int              // archives that answered with at least one record of Records
	Complete bool             // every expected archive answered in full or has a mirror that did, there is one, and no unlisted one may listen
	Reason   string           // wire.ReasonAll, ReasonDeadline, ReasonLost or ReasonNoArchives
}
