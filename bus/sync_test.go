package bus

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"

	"github.com/verae/archive/archive"
	"github.com/verae/archive/blob"
	"github.com/verae/archive/bus/server"
	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/wire"
)

// A depot is a whole archive on disk and on NATS.
type depot struct {
	id         wire.ArchiveID
	dir        string
	change     func(*archive.Config) // of its configuration; nil: none
	node       *archive.Node
	files      *blob.Store
	conn       *Conn
	peers      *Peers
	puller     *archive.Puller
	reconciler *archive.Reconciler
	service    *ArchiveService
	sync       *SyncService
}

// fleet is a server, an aggregator's roster and depots.
type fleet struct {
	server *server.Server
	roster *Roster
	depots []*depot
}

func startFleet(t testing.TB, ids ...wire.ArchiveID) *fleet {
	t.Helper()
	leakCheck(t)
	f := &fleet{server: startServer(t, server.Config{})}
	aggregator := connect(t, f.server, "aggregator")
	var err error
	if f.roster, err = OpenRoster(RosterConfig{Path: filepath.Join(t.TempDir(), "roster.json"), Create: true, Open: true}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.roster.Close() })
	if err := f.roster.Listen(aggregator); err != nil {
		t.Fatal(err)
	}
	stop, err := f.roster.ServeRoster(aggregator)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	for _, id := range ids {
		f.add(t, id)
	}
	return f
}

// add makes a new, empty archive and starts it.
func (f *fleet) add(t testing.TB, id wire.ArchiveID) *depot {
	t.Helper()
	return f.addWith(t, id, nil)
}

// addWith is add with another configuration.
func (f *fleet) addWith(t testing.TB, id wire.ArchiveID, change func(*archive.Config)) *depot {
	t.Helper()
	d := &depot{id: id, dir: t.TempDir(), change: change}
	files, err := blob.OpenStore(blob.StoreConfig{Dir: filepath.Join(d.dir, "files"), Create: true, DiskReserve: 1})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(files.Close(), archive.Init(archive.Config{Dir: filepath.Join(d.dir, "records"), ID: id})); err != nil {
		t.Fatal(err)
	}
	f.depots = append(f.depots, d)
	f.start(t, d)
	t.Cleanup(func() { d.stop(t) })
	return d
}

func (f *fleet) start(t testing.TB, d *depot) {
	t.Helper()
	must := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	var err error
	d.files, err = blob.OpenStore(blob.StoreConfig{Dir: filepath.Join(d.dir, "files"), DiskReserve: 1})
	must(err)
	c := archive.Config{Dir: filepath.Join(d.dir, "records"), ID: d.id, Files: d.files}
	if d.change != nil {
		d.change(&c)
	}
	d.node, err = archive.Open(c)
	must(err)
	d.conn, err = Connect(Config{URL: f.server.ClientURL(), Name: string(d.id)})
	must(err)
	d.peers, err = NewPeers(d.conn, PeersConfig{Self: d.id})
	must(err)
	d.puller = archive.NewPuller(d.node, d.files, d.peers, nil)
	d.reconciler = archive.NewReconciler(archive.ReconcilerConfig{Node: d.node, Puller: d.puller, Fleet: d.peers, Copies: 2})
	d.service, err = ServeArchive(d.conn, d.node, d.files, ArchiveConfig{})
	must(err)
	d.sync, err = ServeSync(d.conn, SyncConfig{Node: d.node, Blobs: d.files, Peers: d.peers, Puller: d.puller, Reconciler: d.reconciler, Queries: d.service})
	must(err)
	eventually(t, string(d.id)+" is enrolled and heard, and alive if it takes records", func() bool {
		hello := d.node.Hello()
		return f.roster.Speaks(d.id, hello.Boot) && (hello.State != wire.StateUp || slices.Contains(f.roster.Alive(), d.id))
	})
}

// stop ends an archive in the order in which a program does; again is harmless.
func (d *depot) stop(t testing.TB) {
	t.Helper()
	if d.conn == nil {
		return
	}
	ctx := context.Background()
	err := errors.Join(d.sync.Drain(ctx), d.service.Drain(ctx))
	d.puller.Close()
	d.peers.Close()
	if err := errors.Join(err, d.conn.Close(), d.node.Close(), d.files.Close()); err != nil {
		t.Error(err)
	}
	d.conn = nil
}

func (d *depot) put(t testing.TB, rec wire.PutRecord) wire.RecordID {
	t.Helper()
	ack, err := d.node.Put(t.Context(), wire.Put{PutID: wire.NewPutID(), Record: rec})
	if err != nil {
		t.Fatal(err)
	}
	return ack.RecordID
}

// scan stores a made-up file and puts a record of it.
func (d *depot) scan(t testing.TB, seed byte, size int) wire.PutRecord {
	t.Helper()
	data := make([]byte, size)
	random := rand.NewChaCha8([32]byte{seed})
	random.Read(data)
	c := describe(data)
	err := d.files.Open("scan", blob.Default)
	if err == nil {
		_, err = d.files.Write("scan", 0, data)
	}
	if err == nil {
		_, err = d.files.Commit(t.Context(), "scan", c.Size, c.SHA256, c.CID)
	}
	if err != nil {
		t.Fatal(err)
	}
	rec := wire.PutRecord{
		Kind: wire.KindFile, SHA256: digestOf(fmt.Sprint("scan ", seed)), TenantID: tenantA,
		File: &wire.File{Name: "scan", Size: c.Size, SHA256: c.SHA256, CID: c.CID},
	}
	d.put(t, rec)
	return rec
}

// copies counts the running archives that can read a record.
func (f *fleet) copies(t testing.TB, id wire.RecordID) (n int) {
	t.Helper()
	for _, d := range f.depots {
		if d.conn == nil {
			continue
		}
		have, err := d.node.HasRecords(t.Context(), []wire.RecordID{id})
		if err != nil {
			t.Fatal(err)
		}
		if have[0] {
			n++
		}
	}
	return n
}

// An archive of three is lost for good and an empty one enrolled in its place.
// After the others reconciled every record and file has PUT_COPIES live copies.
func TestReconcileOverNATSReplacesALostArchive(t *testing.T) {
	f := startFleet(t, "archive-a", "archive-b", "archive-c")
	a, b, c := f.depots[0], f.depots[1], f.depots[2]
	var ids []wire.RecordID
	pairs := [][]*depot{{a, b}, {b, c}, {c, a}}
	for i := range 60 {
		for _, d := range pairs[i%3] {
			ids = append(ids, d.put(t, note(fmt.Sprint(i), fmt.Sprint("body ", i)).Record))
		}
	}
	for i, pair := range pairs {
		for _, d := range pair {
			ids = append(ids, d.scan(t, byte(i), wire.FragmentSize*3/2).ID())
		}
	}
	c.stop(t)
	eventually(t, "the loss is noticed", func() bool {
		return len(f.roster.Alive()) == 2 && len(a.peers.Alive()) == 1 && len(b.peers.Alive()) == 1
	})
	fresh := f.add(t, "archive-d")
	eventually(t, "the new one is heard", func() bool { return len(a.peers.Writable()) == 2 && len(b.peers.Writable()) == 2 })
	operator := newTestPeers(t, connect(t, f.server, "operator"), "")
	copied := uint64(0)
	for _, d := range []*depot{a, b} {
		p, err := operator.Reconcile(t.Context(), d.id, true)
		if err != nil || !p.Running {
			t.Fatalf("%+v, %v", p, err)
		}
		if err := d.reconciler.Reconcile(t.Context()); err != nil {
			t.Fatal(err)
		}
		if p, err = operator.Reconcile(t.Context(), d.id, false); err != nil || p.Running || p.Failed != 0 || p.Missing != p.Copied {
			t.Errorf("%s: %+v, %v", d.id, p, err)
		}
		copied += p.Copied
	}
	for _, id := range ids {
		if n := f.copies(t, id); n != 2 {
			t.Errorf("record %s has %d live copies", id, n)
		}
	}
	if want := uint64(40 + 2); copied != want || fresh.node.Seq() == 0 {
		t.Errorf("%d copies were made, %d were lost; %d on the new archive", copied, want, fresh.node.Seq())
	}
	status, err := operator.Status(t.Context(), "archive-a")
	if err != nil || status.Reconcile.DoneAt == "" || status.Hello.ArchiveID != "archive-a" {
		t.Errorf("status: %+v, %v", status, err)
	}
	proof, err := f.roster.prove(t.Context(), "archive-a", 1)
	if err != nil || proof.Checkpoint == "" {
		t.Errorf("proof: %+v, %v", proof, err)
	}
}

// A pull over NATS brings what is asked for, and says of the rest why not.
func TestPullOverNATS(t *testing.T) {
	f := startFleet(t, "archive-a", "archive-b")
	a, b := f.depots[0], f.depots[1]
	large := note("large", "").Record
	large.Body = bytes.Repeat([]byte{0xfe, 0, 7}, wire.MaxBody/3)
	ids := []wire.RecordID{a.put(t, note("x", "body").Record), a.put(t, large), a.scan(t, 1, 2*wire.FragmentSize+1).ID(), {1, 2, 3}}
	operator := newTestPeers(t, connect(t, f.server, "operator"), "")
	for round := range 2 {
		got, err := operator.Pull(t.Context(), "archive-b", ids, []wire.ArchiveID{"archive-away", "archive-a"})
		if err != nil {
			t.Fatal(err)
		}
		for i, r := range got[:3] {
			if r.Problem != nil || r.Seq == 0 || r.Duplicate != (round > 0) {
				t.Errorf("round %d: record %d: %+v %+v", round, i, r, r.Problem)
			}
		}
		if p := got[3].Problem; p == nil || p.Code != archive.CodeNoRecord || p.Kind != fault.Transient.String() {
			t.Errorf("round %d: a record that nobody has: %+v", round, p)
		}
	}
	if have, err := operator.Has(t.Context(), "archive-b", ids); err != nil || !slices.Equal(have, []bool{true, true, true, false}) {
		t.Errorf("has %v, %v", have, err)
	}
	got, err := operator.Record(t.Context(), "archive-b", ids[1])
	if err != nil || !bytes.Equal(got.Body, large.Body) {
		t.Errorf("%d bytes of %d, %v", len(got.Body), len(large.Body), err)
	}
	page, err := operator.IDs(t.Context(), "archive-b", 1, 1)
	if err != nil || len(page.Records) != 1 || page.Records[0].Seq != 2 || page.Next != 2 || page.End != 3 {
		t.Errorf("page %+v, %v", page, err)
	}
	if _, err := b.node.Check(t.Context()); err != nil {
		t.Error(err)
	}
}

// The archive that sends dies in the middle of a file; it comes back, and the
// file goes on where it was.
// An archive tells another in which profile it has a file.
func TestFilesProfileIsTold(t *testing.T) {
	f := startFleet(t, "archive-a", "archive-b")
	a, b := f.depots[0], f.depots[1]
	data := bytes.Repeat([]byte("0123456789abcdef"), 20_000)
	odd := blob.Profile{ChunkSize: 100_000, MaxLinks: 17}
	c := describeIn(data, odd)
	err := a.files.Open("odd", odd)
	if err == nil {
		_, err = a.files.Write("odd", 0, bytes.Clone(data))
	}
	if err == nil {
		_, err = a.files.Commit(t.Context(), "odd", c.Size, c.SHA256, c.CID)
	}
	if err != nil {
		t.Fatal(err)
	}
	if got, err := b.peers.FileProfile(t.Context(), "archive-a", c.SHA256, c.CID); err != nil || got != odd {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err := b.peers.FileProfile(t.Context(), "archive-a", c.SHA256, describe([]byte("other")).CID); err == nil {
		t.Errorf("of a file that is not there: %+v", got)
	}
}

func TestAFileGoesOnAfterItsArchiveDied(t *testing.T) {
	f := startFleet(t, "archive-a", "archive-b")
	a, b := f.depots[0], f.depots[1]
	const fragments = 8
	scan := a.scan(t, 1, fragments*wire.FragmentSize)
	dying := &dyingPeers{Peers: b.peers, after: fragments / 2, die: func() { a.stop(t) }}
	p := archive.NewPuller(b.node, b.files, dying, nil)
	defer p.Close()
	ids, from := []wire.RecordID{scan.ID()}, []wire.ArchiveID{"archive-a"}
	if out := p.Pull(t.Context(), ids, from)[0]; !fault.Is(out.Err, fault.Transient) {
		t.Fatalf("%+v", out)
	}
	f.start(t, a)
	if out := p.Pull(t.Context(), ids, from)[0]; out.Err != nil {
		t.Fatal(out.Err)
	}
	if dying.got != fragments {
		t.Errorf("%d fragments were sent for a file of %d", dying.got, fragments)
	}
	if n := f.copies(t, scan.ID()); n != 2 {
		t.Errorf("%d copies", n)
	}
}

// dyingPeers end the archive they read from after some fragments, once.
type dyingPeers struct {
	*Peers
	after, got int
	die        func()
}

func (p *dyingPeers) File(ctx context.Context, id wire.ArchiveID, sum wire.Digest, cid string, off int64, n int) ([]byte, int64, error) {
	if p.got == p.after && p.die != nil {
		p.die()
		p.die = nil
	}
	data, size, err := p.Peers.File(ctx, id, sum, cid, off, n)
	if err == nil {
		p.got++
	}
	return data, size, err
}
