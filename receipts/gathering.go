package receipts

import (
	"context"
	"log/slog"
	"slices"

	"github.com/verae/archive/wire"
)

// MaxPages is how many pages the answer of one archive may have.
const MaxPages = 1 << 12

// A gathering is one fan-out under way. It is used by one goroutine.
type gathering struct {
	question
	drop   func(reason string)
	gone   func() // counts an archive that the question did not reach
	speaks func(wire.ArchiveID, string) bool
	log    *slog.Logger

	doubted      func(wire.ArchiveID) bool
	contradicted func(Silence, wire.RecordID)

	expected []wire.ArchiveID // sorted
	answers  map[wire.ArchiveID]*answer
	silent   int // archives that have nothing by their mirrors
	unheard  int // answers that are not whole
	open     int // answers that are waited for
	held     holdings
	others   strangers
	found    func() // is told of every record that is enough; nil: nobody asks
}

// answer is what one archive has said so far.
type answer struct {
	pages int          // how many there are; 0 before the first
	got   int          // how many of them came
	seen  map[int]bool // which, if there are several
	boot  string       // the process that said it
	of    string       // what its pages have in common, and no other answer of that process
	holes bool         // something of it was lost: it will never be whole

	silence  *Silence // what its mirror said, if it has nothing by that
	believed bool     // that counts as its answer, until it gives one
	sampled  bool     // and it was asked all the same
	gone     bool     // the question did not reach it: it will give none
	doubted  bool     // when it was asked it had lost records: it is heard, and missing all the same

	// Kept by gathering.settle.
	whole  bool // all that it has is here, without holes
	closed bool // nothing more is waited for
}

// take adds a reply, or drops and counts it. Of processes under the id of an
// enrolled archive only the one that the roster knows is looked at, if it does.
func (g *gathering) take(ctx context.Context, r wire.Reply) {
	a, enrolled := g.answers[r.ArchiveID]
	switch {
	case !enrolled:
		g.takeStranger(ctx, r)
		return
	case !g.speaks(r.ArchiveID, r.Boot):
		g.drop(dropUnlisted)
		return
	}
	if a.pages > 0 && a.boot != r.Boot {
		// Two processes answer under one id and nobody knows which is the
		// archive: what either says can not be called complete.
		g.drop(dropTwoProcesses)
		a.holes = true
		g.settle(a)
		return
	}
	if reason := g.page(a, r); reason != "" {
		g.drop(reason)
		g.log.DebugContext(ctx, "reply dropped", "archive", r.ArchiveID, "reason", reason, "page", r.Page, "pages", r.Pages)
		return
	}
	if r.Lost > 0 {
		a.holes = true // it says itself that there was more
	}
	for i := range r.Records {
		seq := r.Records[i].Seq
		record, reason, hole := g.judge(&r.Records[i])
		if reason != "" {
			g.drop(reason)
			if hole {
				a.holes = true
				g.log.WarnContext(ctx, "record dropped, the answer is not complete",
					"archive", r.ArchiveID, "reason", reason, "sha256", g.digest, "record", record.ID, "kind", record.Kind)
			}
			continue
		}
		g.compare(a, r.Boot, seq, record.ID)
		if g.found != nil && g.enough(&record) {
			g.found()
		}
		for _, id := range g.held.add(r.ArchiveID, record) {
			g.drop(dropTooManyHeld)
			g.answers[id].holes = true
			g.settle(g.answers[id])
		}
	}
	g.settle(a)
}

// judge is admit, and spares what was done for another copy of the same record.
func (g *gathering) judge(r *wire.Record) (out wire.Record, reason string, hole bool) {
	if held := g.held.byID[r.ID]; held != nil && held.same(r) {
		out = held.Record
		out.StoredAt, out.Retention = r.StoredAt, nil
		return out, "", false
	}
	return g.admit(*r)
}

// settle renews what is known of one answer. A whole one can still get a hole
// when a cap is reached, and a mirror's word is no answer any more once a mirror
// was wrong.
func (g *gathering) settle(a *answer) {
	whole := a.got == a.pages && !a.holes && (a.pages > 0 || a.believed)
	closed := whole && (a.pages > 0 || !a.sampled) || a.gone
	g.unheard += change(a.whole, whole)
	g.open += change(a.closed, closed)
	a.whole, a.closed = whole, closed
}

// change is what a count of those that are not yet changes by.
func change(was, is bool) int {
	switch {
	case is && !was:
		return -1
	case was && !is:
		return 1
	}
	return 0
}

// leave enters that the question did not reach an archive, and never will.
func (g *gathering) leave(id wire.ArchiveID) {
	if a := g.answers[id]; a != nil && !a.gone {
		a.gone = true
		g.gone()
		g.settle(a)
	}
}

// page enters the page into a, or says why the reply is dropped as a whole.
func (g *gathering) page(a *answer, r wire.Reply) (reason string) {
	if r.SHA256 != g.digest {
		return dropDigest
	}
	page, pages := r.Page, r.Pages
	if page == 0 && pages == 0 {
		page, pages = 1, 1 // a peer that knows no pages
	}
	switch {
	case page < 1 || pages < page || pages > MaxPages:
		return dropPageRange
	case a.pages != 0 && (a.pages != pages || a.of != r.Answer):
		return dropPageTotal
	case a.seen[page] || a.got == a.pages && a.got > 0:
		return dropPageTwice
	}
	a.pages, a.boot, a.of = pages, r.Boot, r.Answer
	if a.got++; pages > 1 {
		if a.seen == nil {
			a.seen = map[int]bool{}
		}
		a.seen[page] = true
	}
	return ""
}

// heard reports whether every expected archive has answered in full, by itself or
// by its mirror. Nobody's silence is not an answer of everybody.
func (g *gathering) heard() bool { return len(g.expected) > 0 && g.unheard == 0 }

// done reports whether nobody can have more to say.
func (g *gathering) done() bool {
	return len(g.expected) > 0 && g.open == 0 && !g.others.may()
}

// missing are the archives that may have more. One that was found to have lost
// records while it was asked is among them.
func (g *gathering) missing() []wire.ArchiveID {
	out := []wire.ArchiveID{}
	for _, id := range g.expected {
		if a := g.answers[id]; !a.whole || a.doubted || g.doubted(id) {
			out = append(out, id)
		}
	}
	return out
}

// late is the result when the wait has passed.
func (g *gathering) late() Gathered {
	g.others.may() // who came meanwhile may have got the question
	return g.result(wire.ReasonDeadline)
}

// over is the result when no more replies can come: because nobody listens, if
// nobody was heard.
func (g *gathering) over() Gathered {
	if len(g.others.ids) > 0 {
		return g.result(wire.ReasonDeadline)
	}
	for _, a := range g.answers {
		if a.pages > 0 || a.believed {
			return g.result(wire.ReasonDeadline)
		}
	}
	return g.result(wire.ReasonNoArchives)
}

// result is what is known now; ended says why the gathering ended, if not
// because all had answered. Strangers are neither expected nor missing: nobody
// knows of them, and where one may be listening nobody can say that all is here.
func (g *gathering) result(ended string) Gathered {
	out := Gathered{
		Records:  g.records(),
		Expected: g.expected,
		Missing:  g.missing(),
		Reason:   ended,
	}
	switch {
	case !g.heard(), g.others.present:
	case len(out.Missing) == 0:
		out.Complete, out.Reason = true, wire.ReasonAll
	default:
		out.Reason = wire.ReasonLost
	}
	var replied []wire.ArchiveID
	for _, held := range out.Records {
		replied = append(replied, held.ArchiveIDs...)
	}
	slices.Sort(replied)
	out.Replied = len(slices.Compact(replied))
	return out
}
