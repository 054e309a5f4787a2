package receipts

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/wire"
)

// A Gatherer runs fan-outs. Set its fields before the first use and leave them
// alone; then it may be used from many goroutines.
type Gatherer struct {
	Asker  Asker
	Roster Roster

	// Wait is the absolute limit of a gathering, WAIT_ARCHIVE_MS: from the call
	// of Gather to its return. It must be positive.
	Wait time.Duration

	// Unlisted reports whether an archive that is not enrolled may be listening
	// now, one that knows only the seed's contract. It says yes when it does not
	// know. It is asked when a gathering begins and when all have answered, and
	// must not block. Nil means that there are none.
	Unlisted func() bool

	// Mirrors tell which archives surely have nothing for a caller: nobody waits for
	// those. Nil means that every archive has to answer.
	Mirrors Mirrors

	// SampleEvery replaces the constant of the same name; 0 means that.
	SampleEvery int

	// Direct is from how many enrolled archives on only those are asked of whom an
	// answer is expected, if no unlisted archive may be listening; with fewer it is so
	// where that takes no more messages. 0 means that everybody is asked.
	Direct int

	// Log gets a warning for every record that was lost on the way. Nil discards.
	Log *slog.Logger

	// MaxRecords and MaxBytes replace the caps of the same name; 0 means those.
	MaxRecords, MaxBytes int

	once    sync.Once
	metrics *metrics
	late    atomic.Int64 // questions that may go on beyond their deadline
}

// Gather asks every archive for the records under digest that tenant may see;
// empty kinds mean all but the control kinds. It returns when every enrolled
// archive has answered in full or has nothing by its mirror, and else when g.Wait
// has passed or nobody listens: then the result says who is missing. While an
// unlisted archive may be listening it takes the whole wait, and the result is not
// complete. Where nobody could have anything nobody is asked.
//
// The passed wait is a normal end and no error. If ctx ends first, the caller
// left, and Gather returns the error of ctx. Errors of the Asker are returned
// as they are.
func (g *Gatherer) Gather(ctx context.Context, digest wire.Digest, tenant wire.TenantID, kinds []wire.Kind) (Gathered, error) {
	var f fanout
	defer f.end()
	return g.timed(ctx, question{digest: digest, tenant: tenant, kinds: kinds}, &f)
}

// timed asks within the wait, and counts how it ended.
func (g *Gatherer) timed(ctx context.Context, q question, f *fanout) (Gathered, error) {
	if g.Wait <= 0 {
		return Gathered{}, fault.New(fault.Internal, "", "receipts: Wait is %v; it must be positive", g.Wait)
	}
	start := time.Now()
	within, cancel := context.WithDeadlineCause(ctx, start.Add(g.Wait), errPassed)
	defer cancel()
	if q.enough != nil {
		var stop func()
		within, f.found, stop = cutShort(within)
		defer stop()
	}
	out, err := g.gather(within, q, f)
	if err != nil && ctx.Err() != nil {
		err = ctx.Err()
	}
	took := time.Since(start)
	g.meter().end(out, err, took, q.enough != nil && took < g.Wait)
	return out, err
}

// errPassed is the cause by which the wait ends, as opposed to the caller.
var errPassed = errors.New("receipts: the wait has passed")

func passed(ctx context.Context) bool { return context.Cause(ctx) == errPassed }

// gather runs until ctx, which has the deadline of the wait, ends. The caller
// ends f.
func (g *Gatherer) gather(ctx context.Context, q question, f *fanout) (Gathered, error) {
	expected := g.Roster.Enrolled()
	slices.Sort(expected)
	expected = slices.Compact(expected)
	run := g.begin(q, expected)
	run.found = f.found
	if !run.others.may() && len(expected) == 0 {
		return run.result(wire.ReasonNoArchives), nil
	}
	named := g.silence(run)
	if run.done() {
		g.meter().unasked.Inc()
		g.meter().asked(run, 0)
		return run.result(wire.ReasonAll), nil
	}
	query := wire.Query{
		CorrelationID: wire.NewCorrelationID(), SHA256: q.digest, TenantID: q.tenant,
		Kinds: append([]wire.Kind{}, q.kinds...),
	}
	asked := f.prepare(ctx)
	var err error
	f.next, f.stop, err = g.Asker.Ask(f.asking, query, named, g.alone(run, len(named)))
	asked()
	g.meter().asked(run, len(named)) // while the archives are at it
	switch {
	case err == nil:
		f.run = run
		return f.listen(ctx)
	case passed(ctx):
		return run.late(), nil
	}
	return Gathered{}, fmt.Errorf("receipts: ask for %s: %w", q.digest, err)
}

// alone reports whether nobody but the named archives is asked. A broadcast is one
// message and one to each archive, a question to one is two.
func (g *Gatherer) alone(run *gathering, named int) bool {
	enrolled := len(run.expected)
	return g.Direct > 0 && !run.others.present && (enrolled >= g.Direct || 2*named <= enrolled+1)
}

func (g *Gatherer) begin(q question, expected []wire.ArchiveID) *gathering {
	records, bytes := cmp.Or(g.MaxRecords, MaxRecords), cmp.Or(g.MaxBytes, MaxBytes)
	run := &gathering{
		question: q,
		drop:     g.meter().drop,
		gone:     g.meter().gone.Inc,
		speaks:   speaks(g.Roster),
		doubted:  doubted(g.Roster),
		log:      cmp.Or(g.Log, discard),
		expected: append([]wire.ArchiveID{}, expected...),
		answers:  make(map[wire.ArchiveID]*answer, len(expected)),
		held:     newHoldings(records, bytes),
		others: strangers{
			listen:  func() bool { return g.unlisted() || g.joined(expected) || !current(g.Roster) },
			retired: retired(g.Roster),
			held:    newHoldings(max(1, records/unlistedShare), bytes/unlistedShare),
		},
	}
	answers := make([]answer, len(expected))
	for i, id := range expected {
		answers[i].doubted = run.doubted(id)
		run.answers[id] = &answers[i]
	}
	run.unheard, run.open = len(expected), len(expected)
	if g.Mirrors != nil {
		run.contradicted = g.Mirrors.Contradicted
	}
	return run
}

var discard = slog.New(slog.DiscardHandler)

func (g *Gatherer) unlisted() bool { return g.Unlisted != nil && g.Unlisted() }

// Of what came in time, and still lies there when the wait has passed, so many words
// are taken, and none after so long: what lies there may be a flood, of large replies.
const (
	MaxOverdue  = 64
	overdueTime = 2 * time.Millisecond
)

// listen takes replies until nobody can have more, the wait has passed, or nobody
// listens.
func (f *fanout) listen(ctx context.Context) (Gathered, error) {
	var noticed time.Time // that the wait has passed
	for overdue := 0; !f.run.done(); {
		if ctx.Err() != nil {
			if overdue++; overdue == 1 {
				noticed = time.Now()
			}
		}
		if (overdue == 0 || overdue <= MaxOverdue && time.Since(noticed) < overdueTime) && f.hear(ctx) {
			continue
		}
		switch {
		case ctx.Err() == nil:
			f.run.others.may()
			return f.run.over(), nil
		case !passed(ctx):
			return Gathered{}, ctx.Err()
		}
		return f.run.late(), nil
	}
	return f.run.over(), nil
}

// hear takes the next word, if there is one.
func (f *fanout) hear(ctx context.Context) bool {
	r, gone, ok := f.next(ctx)
	switch {
	case !ok:
	case gone != "":
		f.run.leave(gone)
	default:
		f.run.take(ctx, r)
	}
	return ok
}
