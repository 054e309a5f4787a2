package daemon

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/verae/archive/bus"
	"github.com/verae/archive/edge"
	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/internal/pebblex"
	"github.com/verae/archive/jobs"
	"github.com/verae/archive/wire"
)

// Losses returns the archives that lost records and can be asked now, also those
// that say so themselves and are trusted, and those that were retired.
func (a archives) Losses() (list []jobs.Loss) {
	for _, m := range a.roster.Snapshot() {
		switch {
		case m.Lost == nil && m.Stubs == 0, !a.roster.Alone(m.ID):
		case m.Lost != nil:
			list = append(list, jobs.Loss{Archive: m.ID, ID: string(m.Lost.At), Boot: m.Boot})
		default:
			list = append(list, ownLoss(&m))
		}
	}
	for _, f := range a.roster.Retired() {
		list = append(list, jobs.Loss{Archive: f.ID, ID: "retired at version " + strconv.FormatUint(f.Version, 10), Gone: true})
	}
	return list
}

// ownLoss is what a trusted archive says itself that it lost. Another process is
// another loss: a repair before it may have left as many stubs, of other records.
func ownLoss(m *bus.Member) jobs.Loss {
	return jobs.Loss{Archive: m.ID, ID: fmt.Sprintf("%d stubs in generation %d, told by process %s", m.Stubs, m.Accepted, m.Boot)}
}

// Has reports which records an archive has, if nobody else can answer in its
// name.
func (a archives) Has(ctx context.Context, id wire.ArchiveID, ids []wire.RecordID) ([]bool, error) {
	if !a.roster.Alone(id) {
		return nil, fault.New(fault.Transient, bus.CodeUnreachable, "archive %s can not be asked now", id)
	}
	return a.Archives.Has(ctx, id, ids)
}

// Accounted tells the roster that a loss is accounted for.
func (a archives) Accounted(l jobs.Loss, whole bool) {
	if l.Boot != "" {
		a.roster.Accounted(l.Archive, wire.Time(l.ID), l.Boot, whole)
	}
}

// members shows the roster to operators, and does what they decide.
type members struct {
	roster *bus.Roster
	engine *jobs.Engine
	copies int
}

// Archives lists the enrolled archives, sorted by id.
func (m members) Archives() []edge.ArchiveInfo {
	list := []edge.ArchiveInfo{}
	for _, r := range m.roster.Snapshot() {
		info := edge.ArchiveInfo{
			ArchiveID: r.ID, State: r.State, Reason: r.Reason, Records: r.Records, Seq: r.Seq, Generation: r.Generation,
			Accepted: r.Accepted, Remembered: r.Remembered, Stubs: r.Stubs, Advice: advice(&r),
		}
		if !r.LastHello.IsZero() {
			info.LastHelloAt = wire.At(r.LastHello)
		}
		if l := r.Lost; l != nil {
			info.Lost = &edge.ArchiveLoss{Reason: l.Reason, Detail: l.Detail, Generation: l.Generation, Wanted: l.Wanted, Seq: l.Seq, At: l.At}
		}
		if r.Waiting != nil {
			info.Unaccepted = &edge.Unaccepted{Generation: r.Waiting.Generation, Key: r.Waiting.Key}
		}
		if m := r.Mirror; m != nil {
			info.Mirror = &edge.ArchiveMirror{State: m.State, Reason: m.Reason, Lag: m.Lag, LagMs: m.Late.Milliseconds(), Bytes: m.Bytes}
		}
		list = append(list, info)
	}
	return list
}

// advice is what an operator should do about an archive; empty: nothing.
func advice(r *bus.Member) string {
	switch {
	case r.Twin != nil && (r.State == bus.StateQuarantined || r.State == bus.StateLost && r.Waiting != nil):
		return twins(r)
	case r.Waiting != nil:
		return "it was restored as generation " + strconv.Itoa(r.Waiting.Generation) + "; if that was you: " + bus.AcceptCommand(r.ID, r.Waiting.Generation, r.Waiting.Key)
	case r.State == bus.StateFenced:
		return "an older generation than the accepted one runs: stop it, and start the accepted one"
	case r.Lost != nil && r.Accepted > r.Lost.Generation:
		return "nothing: it is trusted again when all that it had acknowledged is found, or listed as lost; verae archives lost " + string(r.ID) + " tells how far that is"
	case r.Lost != nil:
		return "if the wrong disk was started, start the right one. Else this generation is over: restore the archive from a backup (archived restore), start it, and accept its new generation; or retire it. verae archives lost " + string(r.ID) + " lists what nobody has"
	case r.Reason == pebblex.CodeDiskFull:
		return "make room on its disk, or enlarge it: it goes on by itself; until then its records go to other archives"
	case r.Reason == "DAMAGED":
		return "look at its disk and its log, stop it, then archived check and archived repair; what is whole is answered"
	case r.Reason == "ROLLED_BACK", r.Reason == "LOG_FORKED":
		return "other archives remember more of it, or something else, than it has: if the wrong disk was started, start the right one. Else restore it from a backup (archived restore), start it, and accept its new generation; or retire it"
	case r.Reason != "":
		return r.Reason + ": /readyz?verbose on its ADMIN_ADDR says what to do"
	case r.Stubs > 0:
		return "nothing: it proves to have had them; what has a copy elsewhere is copied. verae archives lost " + string(r.ID) + " lists what nobody has"
	}
	return ""
}

// twins is what an operator should do about two live processes with one id.
func twins(r *bus.Member) string {
	text := fmt.Sprintf("two live processes use this id, boot %s (generation %d) and boot %s (generation %d); each logs its boot when it opens. ",
		r.Boot, r.Generation, r.Twin.Boot, r.Twin.Generation)
	switch {
	case r.Twin.Generation < r.Accepted:
		return text + "Stop the second: its generation was replaced"
	case r.Twin.Generation > r.Accepted:
		return text + "Stop one of the two. If the second is a restore that you made, stop the first: verae archives tells then how to accept it"
	}
	return text + "Stop the one that is a copy, or was started by mistake"
}

// Accept admits a generation of an archive.
func (m members) Accept(_ context.Context, id wire.ArchiveID, generation int, key string) error {
	return m.roster.Accept(id, generation, key)
}

// Retire takes an archive out of the roster. Without force it is refused while a
// record would have too few copies without it.
func (m members) Retire(ctx context.Context, id wire.ArchiveID, force bool) error {
	if !force {
		record, submission, needed, err := m.engine.Needed(ctx, id)
		if err != nil {
			return err
		}
		if needed {
			return fault.New(fault.Conflict, "ARCHIVE_NEEDED",
				"archives: %s has acknowledged records with fewer than %d copies elsewhere, such as %s of submission %s: have them copied (archived reconcile), or retire it with --force", id, m.copies, record, submission)
		}
	}
	return m.roster.Retire(id)
}

// Lost lists records that were lost with an archive.
func (m members) Lost(_ context.Context, id wire.ArchiveID, after wire.RecordID) (edge.LostRecords, error) {
	records, more, accounting, err := m.engine.LostRecords(id, after)
	return edge.LostRecords{ArchiveID: id, Accounting: accounting, Records: records, More: more}, err
}

// lossCheck is degraded while an archive is not what it was.
func lossCheck(r *bus.Roster) error {
	var texts []string
	for _, m := range r.Snapshot() {
		switch {
		case m.Lost != nil:
			texts = append(texts, fmt.Sprintf("%s lost records (%s): %s", m.ID, m.Lost.Reason, m.Lost.Detail))
		case m.State == bus.StateFenced, m.Waiting != nil:
			texts = append(texts, fmt.Sprintf("%s: %s", m.ID, advice(&m)))
		}
	}
	if texts == nil {
		return nil
	}
	return fault.New(fault.Corrupt, "LOST_RECORDS", "archives: %s; verae archives tells what to do", strings.Join(texts, "; "))
}

// newMemory is aggregator new-memory.
type newMemory struct{}

// Run begins a new memory of the archives where the old one is lost.
func (newMemory) Run(_ context.Context, env Env[Aggregator]) error {
	path := env.Config.path(fileRoster)
	if err := bus.NewMemory(path); err != nil {
		return err
	}
	env.Log.Warn("a new memory of the archives was begun: what they lost before now is found by their own marks and by other archives only", "path", bus.MemoryPath(path))
	return nil
}
