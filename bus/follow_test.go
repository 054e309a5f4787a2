package bus

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/verae/archive/bloom"
	"github.com/verae/archive/bus/server"
	"github.com/verae/archive/internal/boottime"
	"github.com/verae/archive/mirror"
	"github.com/verae/archive/wire"
)

// fleetKey is the filter key of tests.
var fleetKey = bloom.Secret{ID: 0x5eed0001, Key: [16]byte{1, 2, 3}}

// skewed is a clock that a test moves on.
type skewed struct{ ahead atomic.Int64 }

func (c *skewed) now() time.Duration { return boottime.Now() + time.Duration(c.ahead.Load()) }

// viewsNode is an archive in memory with a filter that is mirrored, in the order
// in which a real one works: bits, feed, store, then the wait for holders.
type viewsNode struct {
	*fakeNode
	set   *bloom.Set
	feed  *mirror.Feed
	keyID string

	committing sync.Mutex
	writing    func(io.Writer) io.Writer // of snapshots; nil: as it is
	refuse     atomic.Pointer[error]     // of snapshots
	unsafe     bool                      // acknowledges without waiting
}

func newViewsNode(t testing.TB, id wire.ArchiveID, boot string, secret bloom.Secret, lease time.Duration) *viewsNode {
	n := &viewsNode{fakeNode: newFakeNode(t, id), set: bloom.New(bloom.Params{Secret: secret}), keyID: fmt.Sprintf("%08x", secret.ID)}
	n.boot = boot
	n.set.Complete()
	n.feed = mirror.NewFeed(mirror.FeedConfig{Archive: id, ID: boot + ".1", KeyID: n.keyID, Lease: lease})
	return n
}

func (n *viewsNode) Hello() wire.Hello {
	h := n.fakeNode.Hello()
	h.Filter.KeyID = n.keyID
	return h
}

func (n *viewsNode) Feed() *mirror.Feed { return n.feed }

func (n *viewsNode) ViewsSnapshot() (wire.SnapshotHead, func(io.Writer) (int64, error), error) {
	if err := n.refuse.Load(); err != nil {
		return wire.SnapshotHead{}, nil, *err
	}
	feed, at, seq := n.feed.Follow()
	n.committing.Lock()
	defer n.committing.Unlock()
	size, write, err := n.set.Snapshot(bloom.Mark{Seq: seq})
	if n.writing != nil {
		plain := write
		write = func(w io.Writer) (int64, error) { return plain(n.writing(w)) }
	}
	return wire.SnapshotHead{ArchiveID: n.id, Feed: feed, KeyID: n.keyID, At: at, Seq: seq, Size: uint64(size)}, write, err
}

func (n *viewsNode) Put(ctx context.Context, put wire.Put) (wire.PutAck, error) {
	n.committing.Lock()
	seq := uint64(n.stored()) + 1
	hashes := []bloom.Hash{mirror.Pair(fleetKey.Key, put.Record.TenantID, put.Record.SHA256)}
	for _, s := range put.Record.ShareWith {
		hashes = append(hashes, mirror.Pair(fleetKey.Key, s.TenantID, put.Record.SHA256))
	}
	for _, h := range hashes {
		n.set.AddHash(h)
	}
	n.feed.Append(seq, hashes)
	at, _ := n.feed.Position()
	ack, err := n.fakeNode.Put(ctx, put)
	n.committing.Unlock()
	if err != nil || n.unsafe {
		return ack, err
	}
	return ack, n.feed.Await(ctx, at)
}

func (n *viewsNode) HasRecords(context.Context, []wire.RecordID) ([]bool, error) { return nil, nil }

func (n *viewsNode) Portable(context.Context, wire.RecordID) (wire.PutRecord, error) {
	return wire.PutRecord{}, errors.New("not here")
}

func (n *viewsNode) RecordIDs(context.Context, uint64, int) (wire.SyncPage, error) {
	return wire.SyncPage{}, nil
}

// A gallery is a server with archives that are mirrored, and aggregators.
type gallery struct {
	t      testing.TB
	server *server.Server
	sites  []*mirroredSite
	watch  []*watcher
}

type mirroredSite struct {
	node    *viewsNode
	conn    *Conn
	service *ArchiveService
	sync    *SyncService
}

// A watcher is an aggregator.
type watcher struct {
	conn     *Conn
	roster   *Roster
	archives *Archives
	mirrors  *Mirrors
	clock    skewed
}

const testLease = 10 * time.Second

func newGallery(t testing.TB, nodes ...*viewsNode) *gallery {
	t.Helper()
	leakCheck(t)
	g := &gallery{t: t, server: startServer(t, server.Config{})}
	for _, n := range nodes {
		g.serve(n)
	}
	return g
}

func (g *gallery) serve(n *viewsNode) *mirroredSite {
	g.t.Helper()
	s := &mirroredSite{node: n, conn: connect(g.t, g.server, string(n.id))}
	var err error
	if s.service, err = ServeArchive(s.conn, n, newFakeBlobs(g.t), ArchiveConfig{}); err != nil {
		g.t.Fatal(err)
	}
	if s.sync, err = ServeSync(s.conn, SyncConfig{Node: n, Blobs: newFakeBlobs(g.t)}); err != nil {
		g.t.Fatal(err)
	}
	g.sites = append(g.sites, s)
	g.t.Cleanup(func() { s.drain(g.t) })
	return s
}

func (s *mirroredSite) drain(t testing.TB) {
	t.Helper()
	if err := errors.Join(s.sync.Drain(context.Background()), s.service.Drain(context.Background())); err != nil {
		t.Error(err)
	}
}

// kill ends an archive without a word.
func (s *mirroredSite) kill() {
	s.conn.ctl.Close()
	s.conn.bulk.Close()
}

// aggregator starts one. change may change its configuration.
func (g *gallery) aggregator(change func(*MirrorConfig)) *watcher {
	g.t.Helper()
	return g.aggregatorOn(connect(g.t, g.server, fmt.Sprintf("aggregator-%d", len(g.watch))), change)
}

// aggregatorOn starts one on a connection.
func (g *gallery) aggregatorOn(conn *Conn, change func(*MirrorConfig)) *watcher {
	g.t.Helper()
	t, w := g.t, &watcher{conn: conn}
	var err error
	if w.roster, err = OpenRoster(RosterConfig{Path: filepath.Join(t.TempDir(), "roster.json"), Create: true, Open: true}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.roster.Close() })
	if err := w.roster.Listen(w.conn); err != nil {
		t.Fatal(err)
	}
	if w.archives, err = NewArchives(w.conn, w.roster, patient); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.archives.Close() })
	cfg := MirrorConfig{Secret: fleetKey, Clock: w.clock.now}
	if change != nil {
		change(&cfg)
	}
	if w.mirrors, err = Follow(w.conn, w.roster, cfg); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.mirrors.Close() })
	for _, s := range g.sites {
		s.service.Announce() // not to wait for the next hello
	}
	g.watch = append(g.watch, w)
	return w
}

// trusts waits until the mirror of an archive is trusted, and the archive vouched
// for.
func (w *watcher) trusts(t testing.TB, id wire.ArchiveID) {
	t.Helper()
	eventually(t, fmt.Sprintf("the mirror of %s is trusted: %+v", id, w.mirrors.State(id)), func() bool {
		return len(w.mirrors.Silent("nobody", digestOf("nothing"), []wire.ArchiveID{id})) == 1
	})
}

// state waits for a state of a mirror, and a reason.
func (w *watcher) state(t testing.TB, id wire.ArchiveID, want, reason string) {
	t.Helper()
	eventually(t, fmt.Sprintf("the mirror of %s is %s, %s", id, want, reason), func() bool {
		s := w.mirrors.State(id)
		return s.State == want && strings.Contains(s.Reason, reason)
	})
}

// silent reports whether an archive is said to have nothing for tenantA.
func (w *watcher) silent(id wire.ArchiveID, subject string) bool {
	return len(w.mirrors.Silent(tenantA, digestOf(subject), []wire.ArchiveID{id})) == 1
}

func (g *gallery) put(w *watcher, id wire.ArchiveID, subject string) wire.PutAck {
	g.t.Helper()
	ack, err := w.archives.Put(g.t.Context(), id, note(subject, "body"))
	if err != nil {
		g.t.Fatal(err)
	}
	return ack
}

// A mirror is loaded, leased and fed: what an archive acknowledged is never denied,
// and what it does not have is.
func TestAMirrorKnowsWhatWasAcknowledged(t *testing.T) {
	a := newViewsNode(t, "archive-a", "boot1", fleetKey, testLease)
	for i := range 500 {
		if _, err := a.Put(t.Context(), note(fmt.Sprint("old ", i), "body")); err != nil {
			t.Fatal(err)
		}
	}
	g := newGallery(t, a)
	w := g.aggregator(nil)
	w.trusts(t, "archive-a")
	for i := range 500 {
		if w.silent("archive-a", fmt.Sprint("old ", i)) {
			t.Fatalf("record %d of before is denied", i)
		}
	}
	denied := 0
	for i := range 200 {
		subject := fmt.Sprint("new ", i)
		if w.silent("archive-a", subject) {
			denied++
		}
		g.put(w, "archive-a", subject)
		if w.silent("archive-a", subject) {
			t.Fatalf("record %d is denied after its acknowledgement", i)
		}
	}
	if denied < 190 {
		t.Errorf("%d of 200 that were not there were known to be absent", denied)
	}
	shared := note("shared", "body")
	shared.Record.ShareWith = []wire.Share{{TenantID: wire.Public, Mode: wire.ModeProofs}}
	if _, err := w.archives.Put(t.Context(), "archive-a", shared); err != nil {
		t.Fatal(err)
	}
	if got := w.mirrors.Silent("anybody", digestOf("shared"), []wire.ArchiveID{"archive-a"}); len(got) != 0 {
		t.Errorf("a record that everybody may see is denied: %+v", got)
	}
	silent := w.mirrors.Silent("anybody", digestOf("new 1"), []wire.ArchiveID{"archive-a", "archive-unknown"})
	if len(silent) != 1 || silent[0] != (mirror.Silence{ID: "archive-a", Boot: "boot1", Seq: 701}) {
		t.Errorf("silent for another tenant: %+v", silent)
	}
	if n := count(w.mirrors.metrics.contradictions.WithLabelValues("acknowledgement")); n != 0 {
		t.Errorf("%d contradictions", n)
	}
	if s := a.feed.Stats(); s.Holders != 1 || s.Waits == 0 || s.RanOut != 0 {
		t.Errorf("%+v", s)
	}
	row := w.roster.Snapshot()[0].Mirror
	if row == nil || row.State != MirrorTrusted || row.Reason != "" || row.At != 702 || row.Lag != 0 || row.Bytes == 0 {
		t.Errorf("operators are shown %+v", row)
	}
}

// Several aggregators are waited for, each of them.
func TestEveryAggregatorHasWhatOneGotAcknowledged(t *testing.T) {
	const writers = 8
	puts := 10_000
	if testing.Short() {
		puts = 1_000
	}
	a := newViewsNode(t, "archive-a", "boot1", fleetKey, time.Minute)
	g := newGallery(t, a)
	for range 3 {
		g.aggregator(nil)
	}
	for _, w := range g.watch {
		w.trusts(t, "archive-a")
	}
	var wg sync.WaitGroup
	var untrusted atomic.Int64
	for k := range writers {
		wg.Go(func() {
			w := g.watch[k%len(g.watch)]
			for i := range puts / writers {
				subject := fmt.Sprint(k, "/", i)
				if _, err := w.archives.Put(t.Context(), "archive-a", note(subject, "")); err != nil {
					t.Error(err)
					return
				}
				for j, other := range g.watch {
					if other.silent("archive-a", subject) {
						t.Errorf("aggregator %d denies what aggregator %d got acknowledged", j, k%len(g.watch))
					}
					if other.mirrors.State("archive-a").State != MirrorTrusted {
						untrusted.Add(1)
					}
				}
			}
		})
	}
	wg.Wait()
	if n := untrusted.Load(); n > 0 {
		t.Logf("a mirror was not trusted %d times", n)
	}
	if s := a.feed.Stats(); s.Holders != 3 || s.RanOut != 0 {
		t.Errorf("%+v", s)
	}
}

// An aggregator that stands still is waited for no longer than its lease, and
// believes nothing afterwards.
func TestAnAggregatorThatStandsStillIsNotBelieved(t *testing.T) {
	a := newViewsNode(t, "archive-a", "boot1", fleetKey, time.Second)
	g := newGallery(t, a)
	w := g.aggregator(nil)
	w.trusts(t, "archive-a")
	still := newCopied(t, w, a)
	g.put(w, "archive-a", "meanwhile")
	if still.mirror.Trusted() {
		t.Error("a put was acknowledged before who knows nothing of it ceased to be believed")
	}
	if s := a.feed.Stats(); s.RanOut < 1 {
		t.Errorf("%+v", s)
	}
	asleep := newCopied(t, w, a)
	w.clock.ahead.Store(int64(time.Hour))
	if asleep.mirror.Trusted() {
		t.Error("a lease from before the machine slept is relied upon")
	}
	w.trusts(t, "archive-a")
}

// newCopied loads and leases a mirror of a node by hand, which nobody feeds.
func newCopied(t testing.TB, w *watcher, n *viewsNode) *copied {
	t.Helper()
	f := newFollower(w.mirrors, n.id)
	f.work = t.Context()
	c, err := f.fetch(t.Context(), w.roster.sight(n.id))
	if err != nil {
		t.Fatal(err)
	}
	f.serving.Store(c)
	f.repair(c)
	f.renew(c)
	if !c.mirror.Trusted() {
		t.Fatal("the mirror is not trusted")
	}
	return c
}
