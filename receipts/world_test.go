package receipts_test

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/verae/archive/receipts"
	"github.com/verae/archive/wire"
)

// wait is WAIT_ARCHIVE_MS in these tests.
const wait = 1500 * time.Millisecond

var subject = wire.Digest{0xaa, 1}

const (
	acme   = wire.TenantID("acme")
	globex = wire.TenantID("globex")

	submission1 = wire.SubmissionID("0197f3a0-5c1e-7d43-8a21-9c0d1e2f3a41")
	submission2 = wire.SubmissionID("0197f3a0-5c1e-7d43-8a21-9c0d1e2f3a42")
)

// record returns a whole record of acme under subject, changed by edit before
// its id is computed.
func record(kind wire.Kind, body string, edit ...func(*wire.Record)) wire.Record {
	r := wire.Record{
		Kind: kind, SHA256: subject, TenantID: acme, SubmissionID: submission1,
		AttachedAt: "2026-11-30T14:02:11.000000000Z", StoredAt: "2026-11-30T14:02:12.000000000Z", Seq: 7,
		Body: []byte(body),
	}
	if kind == wire.KindFile {
		r.Body = nil
		r.File = &wire.File{Name: body, Size: 11, SHA256: wire.Digest{0xf1, byte(len(body))},
			CID: "bafkreifzjut3te2nhyekklss27nh3k72ysco7y32koao5eei66wof36n5e"}
	}
	for _, e := range edit {
		e(&r)
	}
	r.BodySHA256 = r.Portable().BodySHA256()
	r.ID = r.ComputeID()
	if r.File != nil {
		r.File.ID = r.ID
	}
	return r
}

func attachedAt(t wire.Time) func(*wire.Record) { return func(r *wire.Record) { r.AttachedAt = t } }
func storedAt(t wire.Time) func(*wire.Record)   { return func(r *wire.Record) { r.StoredAt = t } }
func part(n int) func(*wire.Record)             { return func(r *wire.Record) { r.Part = n } }
func of(t wire.TenantID) func(*wire.Record)     { return func(r *wire.Record) { r.TenantID = t } }
func in(s wire.SubmissionID) func(*wire.Record) {
	return func(r *wire.Record) { r.SubmissionID = s }
}
func shared(t wire.TenantID, mode string) func(*wire.Record) {
	return func(r *wire.Record) { r.ShareWith = append(r.ShareWith, wire.Share{TenantID: t, Mode: mode}) }
}

func reply(id wire.ArchiveID, records ...wire.Record) wire.Reply {
	return wire.Reply{ArchiveID: id, SHA256: subject, Records: records, Page: 1, Pages: 1}
}

func page(n, of int, r wire.Reply) wire.Reply {
	r.Page, r.Pages = n, of
	return r
}

// roster is a list of enrolled archives.
type roster []wire.ArchiveID

func (r roster) Enrolled() []wire.ArchiveID { return slices.Clone(r) }

var three = roster{"archive-a", "archive-b", "archive-c"}

// says is a reply that comes after a time.
type says struct {
	after time.Duration
	reply wire.Reply
}

// asker is a bus that plays a script. It fails the test when it is asked the
// wrong way, and its goroutine lives until stop is called.
type asker struct {
	t      *testing.T
	script []says
	hangUp time.Duration // closes the channel after the script and this time; 0: never
	slow   time.Duration // how long Ask takes
	err    error
	nobody bool                // it may be asked with nobody named
	gone   chan wire.ArchiveID // gets whom the question did not reach; may be nil

	longest time.Duration // how long it may be asked for; 0: wait

	mu    sync.Mutex
	asked []wire.Query
	opens int // askings that gave a channel
	stops int
}

func (a *asker) Ask(ctx context.Context, q wire.Query, expect []wire.ArchiveID, _ bool) (func(context.Context) (wire.Reply, wire.ArchiveID, bool), func(), error) {
	a.mu.Lock()
	a.asked = append(a.asked, q)
	a.mu.Unlock()
	if err := q.Check(); err != nil {
		a.t.Errorf("query: %v", err)
	}
	if !slices.IsSorted(expect) || len(expect) == 0 && !a.nobody {
		a.t.Errorf("expect %v", expect)
	}
	if d, ok := ctx.Deadline(); !ok || time.Until(d) > cmp.Or(a.longest, wait) {
		a.t.Errorf("the query has no deadline, or a late one: %v", d)
	}
	if a.slow > 0 {
		select {
		case <-time.After(a.slow):
		case <-ctx.Done():
			return nil, nil, ctx.Err()
		}
	}
	if a.err != nil {
		return nil, nil, a.err
	}
	a.opens++
	out := make(chan wire.Reply)
	quit := make(chan struct{})
	go a.play(out, quit)
	return hearing(ctx, out, a.gone), func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.stops++
		close(quit) // a second stop panics
	}, nil
}

// hearing is the next of an asker whose words come over channels; those that lie there
// come before the end.
func hearing(asking context.Context, replies <-chan wire.Reply, gone <-chan wire.ArchiveID) func(context.Context) (wire.Reply, wire.ArchiveID, bool) {
	return func(ctx context.Context) (wire.Reply, wire.ArchiveID, bool) {
		select {
		case r, ok := <-replies:
			return r, "", ok
		default:
		}
		select {
		case r, ok := <-replies:
			return r, "", ok
		case id := <-gone:
			return wire.Reply{}, id, true
		case <-ctx.Done():
		case <-asking.Done():
		}
		return wire.Reply{}, "", false
	}
}

func (a *asker) play(out chan<- wire.Reply, quit <-chan struct{}) {
	start := time.Now()
	for _, s := range a.script {
		select {
		case <-time.After(time.Until(start.Add(s.after))):
		case <-quit:
			return
		}
		select {
		case out <- s.reply:
		case <-quit:
			return
		}
	}
	if a.hangUp > 0 {
		time.Sleep(a.hangUp)
		close(out)
	}
	<-quit
}

// gather runs one gathering for acme and checks that it was stopped.
func gather(t *testing.T, a *asker, r receipts.Roster) (receipts.Gathered, time.Duration) {
	t.Helper()
	a.t = t
	g := &receipts.Gatherer{Asker: a, Roster: r, Wait: wait}
	return gatherBy(t, g, a)
}

func gatherBy(t *testing.T, g *receipts.Gatherer, a *asker) (receipts.Gathered, time.Duration) {
	t.Helper()
	start := time.Now()
	out, err := g.Gather(t.Context(), subject, acme, nil)
	if err != nil {
		t.Fatal(err)
	}
	if a.stops != a.opens {
		t.Errorf("asked %d times, stopped %d times", a.opens, a.stops)
	}
	return out, time.Since(start)
}

func ids(g receipts.Gathered) (out []wire.RecordID) {
	for _, h := range g.Records {
		out = append(out, h.Record.ID)
	}
	return out
}
