package archive

import (
	"context"
	"errors"
	"fmt"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/internal/pebblex"
	"github.com/verae/archive/wire"
)

// RepairConfig says what is to be repaired, and with what help.
type RepairConfig struct {
	// Config is that of the archive. Its Files must be whole, but for what Refetch
	// can mend.
	Config
	// Peers are the other archives; nil asks nobody, and what is not here is lost.
	Peers Peers
	// Unheard, if it is not nil, says why not everybody was asked who may have what
	// is missing. Then nothing is given up that was not before: Repair ends with
	// this error instead, and has changed nothing. Refetch must do the same.
	Unheard error
	// Refetch makes a file whole that a record names: it is called when Files does
	// not have it. An error that is fault.NotFound says that nobody has it. Nil
	// means that there is nobody to ask.
	Refetch func(ctx context.Context, f wire.File) error
	// TrustStore takes the end of what is left for the end of the log when there is
	// no mark, and nobody remembers one: whatever was after it is not missed.
	TrustStore bool
	// DryRun reports what would be done and changes nothing. The peers are only
	// asked what they have.
	DryRun bool
}

// RepairReport tells what Repair found and did, or would do.
type RepairReport struct {
	ArchiveID  wire.ArchiveID `json:"archiveId"`
	Generation int            `json:"generation"`
	DryRun     bool           `json:"dryRun,omitzero"`
	Whole      bool           `json:"whole"`    // nothing was wrong with the records, nothing was changed
	Resumed    bool           `json:"resumed"`  // an earlier repair was ended
	Mark       string         `json:"mark"`     // whose word the end of the log is: MarkOwn, MarkPeers, MarkNone
	MarkSeq    uint64         `json:"markSeq"`  // the last number that the mark covers
	HeardSeq   uint64         `json:"heardSeq"` // the highest that another archive has heard this one tell; 0: none did
	Seq        uint64         `json:"seq"`      // the last number of the repaired log
	Damages    []string       `json:"damages"`  // what was wrong, for people
	Carried    uint64         `json:"carried"`  // records and stubs that were taken over byte for byte
	Fetched    []RepairEntry  `json:"fetched"`  // records that came from other archives
	Lost       []RepairEntry  `json:"lost"`     // records of which there are only stubs now
	LeftOut    []RepairEntry  `json:"leftOut"`  // records behind a gap after the mark: they stay in the evidence only
	Files      []RepairFile   `json:"files"`    // files that records name and that were not whole
	Evidence   string         `json:"evidence"` // where the old directory is now; empty if it was not touched
}

// RepairEntry is one record of a report.
type RepairEntry struct {
	Seq  uint64         `json:"seq"`
	ID   wire.RecordID  `json:"id"`
	From wire.ArchiveID `json:"from,omitzero"`
}

// RepairFile is one file of a report.
type RepairFile struct {
	Seq    uint64      `json:"seq"` // of the first record that names it
	SHA256 wire.Digest `json:"sha256"`
	CID    string      `json:"cid"`
	Lost   bool        `json:"lost"`           // no copy was found; else it was fetched
	Known  bool        `json:"known,omitzero"` // an earlier repair has found that it is lost
}

// The words of RepairReport.Mark.
const (
	MarkOwn   = "own"   // the archive's own mark
	MarkPeers = "peers" // the newest checkpoint that another archive remembers
	MarkNone  = "none"  // nobody's: the operator trusts the store
)

// Clean reports whether the archive is whole now: no record and no file was found
// to be lost.
func (r *RepairReport) Clean() bool {
	for _, f := range r.Files {
		if f.Lost && !f.Known {
			return false
		}
	}
	return len(r.Lost) == 0 && len(r.LeftOut) == 0 && !r.Behind()
}

// Behind reports whether the archive has told more than is left of it. What it
// was is unknown: it came in the second before a crash, when neither mark nor
// skeleton had it. The repaired archive must not go on, since it would give out
// numbers again: a restored backup of it, as a new generation, may.
func (r *RepairReport) Behind() bool { return r.HeardSeq > r.Seq }

// Repair makes a damaged archive whole: never in place, and never by changing
// what the log is. It reads what is left without opening it and builds a new
// directory beside it:
//
//   - Records that verify are taken over byte for byte.
//   - Of a record that is damaged or missing up to the mark, skeleton or index say
//     which it was and where it stood. It is fetched from another archive by its
//     id, which proves the content, and gets back its envelope, so that its leaf
//     is the same.
//   - What nobody has becomes a stub that proves the leaf and holds no content. A
//     file that nobody has is put on the list of lost files.
//   - Index, tenants, put ids, tree, skeleton and mark are made from that anew.
//
// The root at the mark must then be the root that the mark has signed; else the
// log is not the one that was promised, and Repair refuses. The new directory is
// opened and checked as a whole before it takes the place of the old one, which
// is kept beside it as evidence. After a crash at any point, run it again.
//
// An archive of which nothing is wrong is left as it is. Memory: 80 bytes a
// record.
//
// Errors: fault.Conflict if it is in use or another archive, fault.Corrupt if it
// can not be repaired (the message says what can be done), fault.Transient if an
// archive that may have a record did not answer; and Unheard.
func Repair(ctx context.Context, c RepairConfig) (report *RepairReport, err error) {
	c.Config, err = c.withDefaults()
	if err != nil {
		return nil, err
	}
	r := &repairer{
		RepairConfig: c, mended: map[string]*mendedFile{}, swap: pebblex.Swap{FS: c.FS, Dir: c.Dir, Now: c.Now},
		report: &RepairReport{
			ArchiveID: c.ID, DryRun: c.DryRun,
			Damages: []string{}, Fetched: []RepairEntry{}, Lost: []RepairEntry{}, LeftOut: []RepairEntry{}, Files: []RepairFile{},
		},
	}
	if !c.DryRun {
		if r.report.Resumed, err = r.swap.Resume(); err != nil {
			return r.report, fmt.Errorf("archive: repair: %w", err)
		}
	}
	hold, err := pebblex.Hold(c.FS, c.storeDir())
	if err != nil {
		return r.report, fmt.Errorf("archive: repair %s: %w", c.Dir, err)
	}
	r.knownLost()
	err = r.run(ctx)
	if err == nil && !c.DryRun {
		err = r.listLost()
	}
	return r.report, errors.Join(err, hold.Close())
}

// repairer is one run of Repair.
type repairer struct {
	RepairConfig
	swap   pebblex.Swap
	report *RepairReport
	relic  *relic
	marks  []mark // that the log must continue, the newest last
	own    uint64 // the last number that its own mark covers; 0 without one
	slots  []slot // the log, in order
	// holes are the slots without a frame that can be carried, by number.
	holes map[uint64]*hole
	// spared are rows of the old index for records whose file or content may be
	// lost; broken are the files of those that are there, by number.
	spared   map[uint64][]spare
	broken   map[uint64]string
	boneless uint64 // records under the mark that the skeleton does not name
	// mended has the outcome of every file that was not whole.
	mended map[string]*mendedFile
	// gone are the files that earlier repairs have found to be lost.
	gone map[wire.Digest]lostFile
}

func (r *repairer) run(ctx context.Context) (err error) {
	if r.relic, err = openRelic(ctx, r.Config); err != nil {
		return err
	}
	defer func() {
		r.report.Damages = append(r.report.Damages, r.relic.damages...)
		err = errors.Join(err, r.relic.close())
	}()
	r.report.Generation = r.relic.identity.generation
	if err := r.findMarks(ctx); err != nil {
		return err
	}
	if err := r.plan(ctx); err != nil {
		return err
	}
	if err := r.prove(); err != nil {
		return err
	}
	if r.boneless > 0 {
		r.relic.damage("%s: %d entries can not be read", r.skeletonPath(), r.boneless)
	} else if len(r.holes) == 0 {
		whole, err := r.opens(ctx)
		if err != nil {
			return err
		}
		if r.report.Whole = whole; whole {
			return nil
		}
	}
	if r.DryRun {
		return r.ask(ctx)
	}
	if err := r.build(ctx); err != nil {
		return errors.Join(err, r.swap.Discard())
	}
	r.report.Evidence, err = r.swap.Commit()
	return err
}

// Codes of refusals of a repair.
const (
	codeRolledBack  = "ROLLED_BACK"    // others know more than the directory
	codeNothingLeft = "RECORD_UNKNOWN" // not even the id of a record is known
)

// instead is what can be done where nothing can be repaired. A backup of the
// directory is not: what is not the log that was signed is not copied either.
const instead = "restore the newest backup of it with `archived restore`, which makes a new generation; or, without one, make a new archive with another id, reconcile the others, and retire this one (in the operations manual: An archive was lost for good). The directory stays as evidence"

// refuse is the end of a repair that can not be.
func (r *repairer) refuse(code, format string, args ...any) error {
	help := instead
	if code == codeRolledBack {
		help = "start the right directory, if there is a newer one; else " + instead
	}
	return fault.New(fault.Corrupt, code, "archive: repair %s: "+format+"; nothing was changed. What to do: %s",
		append(append([]any{r.Dir}, args...), help)...)
}
