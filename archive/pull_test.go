package archive

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/verae/archive/blob"
	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/wire"
)

// A shelf is an archive with a real store of files, in memory.
type shelf struct {
	*Node
	files *blob.Store
	fs    *vfs.MemFS
	cfg   Config
}

// newShelf makes an archive; what is open at the end of the test is closed.
func newShelf(t testing.TB, id wire.ArchiveID) *shelf {
	t.Helper()
	s := &shelf{fs: vfs.NewMem()}
	s.cfg = testConfig(s.fs, id)
	var err error
	if s.files, err = blob.OpenStore(blob.StoreConfig{Dir: "files", FS: s.fs, Create: true, DiskReserve: 1}); err != nil {
		t.Fatal(err)
	}
	s.cfg.Files = s.files
	mustInit(t, s.cfg)
	s.Node = mustOpen(t, s.cfg)
	t.Cleanup(func() { s.close(t) })
	return s
}

// close closes what is open.
func (s *shelf) close(t testing.TB) {
	t.Helper()
	mustClose(t, s.Node)
	if err := s.files.Close(); err != nil {
		t.Error(err)
	}
}

// reopen closes the shelf and opens it again, as a restart does.
func (s *shelf) reopen(t testing.TB) { s.reopenAfter(t, func() {}) }

// reopenAfter closes the shelf, and opens it again when something was done to it.
func (s *shelf) reopenAfter(t testing.TB, do func()) {
	t.Helper()
	s.close(t)
	do()
	var err error
	if s.files, err = blob.OpenStore(blob.StoreConfig{Dir: "files", FS: s.fs, DiskReserve: 1}); err != nil {
		t.Fatal(err)
	}
	s.cfg.Files = s.files
	s.Node = mustOpen(t, s.cfg)
}

// scan puts a file with a record of it, and returns the record.
func (s *shelf) scan(t testing.TB, seed uint64, size int) wire.PutRecord {
	t.Helper()
	return s.scanIn(t, blob.Default, seed, size)
}

// scanIn is scan for a file in a profile.
func (s *shelf) scanIn(t testing.TB, p blob.Profile, seed uint64, size int) wire.PutRecord {
	t.Helper()
	r, data := scanInOf(p, seed, size)
	if err := s.files.Open("scan", p); err != nil {
		t.Fatal(err)
	}
	if _, err := s.files.Write("scan", 0, bytes.Clone(data)); err != nil {
		t.Fatal(err)
	}
	if _, err := s.files.Commit(t.Context(), "scan", r.File.Size, r.File.SHA256, r.File.CID); err != nil {
		t.Fatal(err)
	}
	mustPut(t, s.Node, r)
	return r
}

// scanOf makes up a file and a record of it.
func scanOf(seed uint64, size int) (wire.PutRecord, []byte) {
	return scanInOf(blob.Default, seed, size)
}

func scanInOf(p blob.Profile, seed uint64, size int) (wire.PutRecord, []byte) {
	data := make([]byte, size)
	random := rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8)})
	random.Read(data)
	h := blob.NewHasher(p)
	h.Write(data)
	sums := h.Sum()
	r := fileRecord(alice, digest(fmt.Sprint("subject ", seed)))
	r.File = &wire.File{Name: "scan", Size: sums.Size, SHA256: sums.SHA256, CID: sums.CID}
	return r, data
}

// peersOf are the shelves of a test as Peers. Hooks make them lie and die.
type peersOf struct {
	shelves map[wire.ArchiveID]*shelf

	mu       sync.Mutex
	onRecord func(from wire.ArchiveID, rec *wire.PutRecord) error
	onFile   func(from wire.ArchiveID, off int64, data []byte) ([]byte, error)
	records  map[wire.ArchiveID]int // asked for
	bytes    map[wire.ArchiveID]int64

	onProfile func(told blob.Profile) (blob.Profile, error)
	lies      blob.Profile // what archive-c says of every file; zero: the truth
}

func peersWith(all ...*shelf) *peersOf {
	p := &peersOf{shelves: map[wire.ArchiveID]*shelf{}, records: map[wire.ArchiveID]int{}, bytes: map[wire.ArchiveID]int64{}}
	for _, s := range all {
		p.shelves[s.cfg.ID] = s
	}
	return p
}

var errAway = fault.New(fault.Transient, "ARCHIVE_UNREACHABLE", "nobody listens")

func (p *peersOf) Has(ctx context.Context, a wire.ArchiveID, ids []wire.RecordID) ([]bool, error) {
	s := p.shelves[a]
	if s == nil {
		return nil, errAway
	}
	return s.HasRecords(ctx, ids)
}

func (p *peersOf) Record(ctx context.Context, a wire.ArchiveID, id wire.RecordID) (wire.PutRecord, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.records[a]++
	s := p.shelves[a]
	if s == nil {
		return wire.PutRecord{}, errAway
	}
	rec, err := s.Portable(ctx, id)
	if err == nil && p.onRecord != nil {
		err = p.onRecord(a, &rec)
	}
	return rec, err
}

func (p *peersOf) FileProfile(ctx context.Context, a wire.ArchiveID, sum wire.Digest, cid string) (blob.Profile, error) {
	s := p.shelves[a]
	if s == nil {
		return blob.Profile{}, errAway
	}
	if a == "archive-c" && p.lies != (blob.Profile{}) {
		return p.lies, nil
	}
	told, err := s.files.Profile(ctx, sum, cid)
	if err == nil && p.onProfile != nil {
		return p.onProfile(told)
	}
	return told, err
}

func (p *peersOf) File(ctx context.Context, a wire.ArchiveID, sum wire.Digest, cid string, off int64, n int) ([]byte, int64, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.shelves[a]
	if s == nil {
		return nil, 0, errAway
	}
	data, size, err := s.files.Read(ctx, cid, off, n)
	if err == nil && p.onFile != nil {
		data, err = p.onFile(a, off, data)
	}
	if err == nil {
		p.bytes[a] += int64(len(data))
	}
	return data, size, err
}

func (p *peersOf) Alive() (ids []wire.ArchiveID) {
	for id := range p.shelves {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

func (p *peersOf) Remembered(context.Context, wire.ArchiveID) ([]wire.Remembered, error) {
	return nil, nil
}

func newTestPuller(t testing.TB, s *shelf, peers Peers) *Puller {
	t.Helper()
	p := NewPuller(s.Node, s.files, peers, nil)
	t.Cleanup(p.Close)
	return p
}

// one pulls one record and waits for the end.
func one(t testing.TB, p *Puller, id wire.RecordID, from ...wire.ArchiveID) Pulled {
	t.Helper()
	out := p.Pull(t.Context(), []wire.RecordID{id}, from)
	if len(out) != 1 || out[0].ID != id {
		t.Fatalf("pulled %v", out)
	}
	return out[0]
}

func wrongAnswers(p *Puller, from wire.ArchiveID) int {
	return int(testutil.ToFloat64(p.metrics.wrong.WithLabelValues(string(from))))
}

func TestPullBringsRecordsAndTheirFiles(t *testing.T) {
	a, b := newShelf(t, "archive-a"), newShelf(t, "archive-b")
	note := metadata(alice, digest("subject"), `{"a": 1 }`)
	mustPut(t, a.Node, note)
	scan := a.scan(t, 1, 3*wire.FragmentSize+17)
	empty := a.scan(t, 2, 0)
	peers := peersWith(a)
	p := newTestPuller(t, b, peers)
	ids := []wire.RecordID{note.ID(), scan.ID(), empty.ID(), note.ID()}
	for _, out := range p.Pull(t.Context(), ids, []wire.ArchiveID{"archive-x", "archive-a"}) {
		if out.Err != nil || out.Seq == 0 {
			t.Fatalf("%+v", out)
		}
	}
	requireHas(t, b.Node, ids, true, true, true, true)
	if peers.bytes["archive-a"] != scan.File.Size {
		t.Errorf("%d bytes were sent for a file of %d", peers.bytes["archive-a"], scan.File.Size)
	}
	asked := peers.records["archive-a"]
	if out := one(t, p, scan.ID(), "archive-a"); out.Err != nil || !out.Duplicate {
		t.Errorf("again: %+v", out)
	}
	if peers.records["archive-a"] != asked || peers.bytes["archive-a"] != scan.File.Size {
		t.Error("what is here was fetched again")
	}
	if _, err := b.Check(t.Context()); err != nil {
		t.Error(err)
	}
}

// Nothing that a peer says is believed. Each lie is named, counted, and made up
// for by the next archive.
func TestLyingPeersAreNotBelieved(t *testing.T) {
	other := metadata(bob, digest("other"), `{"b":2}`)
	tests := []struct {
		name     string
		onRecord func(*wire.PutRecord) error
		onFile   func(off int64, data []byte) ([]byte, error)
		lies     int
	}{
		{"another record", func(r *wire.PutRecord) error { *r = other; return nil }, nil, 1},
		{"another tenant", func(r *wire.PutRecord) error { r.TenantID = bob; return nil }, nil, 1},
		{"another file", func(r *wire.PutRecord) error { r.File.SHA256 = digest("mine"); return nil }, nil, 1},
		{"no record at all", func(r *wire.PutRecord) error { *r = wire.PutRecord{}; return nil }, nil, 1},
		{"a bit of the file", nil, func(_ int64, d []byte) ([]byte, error) { d[len(d)-1] ^= 1; return d, nil }, 1},
		{"more than asked for", nil, func(_ int64, d []byte) ([]byte, error) { return append(d, 0), nil }, 1},
		{"an end before the end", nil, func(off int64, d []byte) ([]byte, error) {
			if off > 0 {
				d = nil
			}
			return d, nil
		}, 1},
		{"damage of its own", nil, func(int64, []byte) ([]byte, error) {
			return nil, fault.New(fault.Corrupt, "BLOB_CORRUPT", "rotten")
		}, 0},
		{"a refusal", func(*wire.PutRecord) error { return fault.New(fault.Denied, "X", "no") }, nil, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			a, b, c := newShelf(t, "archive-a"), newShelf(t, "archive-b"), newShelf(t, "archive-c")
			scan := a.scan(t, 1, 3*wire.FragmentSize)
			b.scan(t, 1, 3*wire.FragmentSize)
			peers := peersWith(a, b)
			peers.onRecord = func(from wire.ArchiveID, r *wire.PutRecord) error {
				if from == "archive-a" && tt.onRecord != nil {
					r.File = new(*r.File)
					return tt.onRecord(r)
				}
				return nil
			}
			peers.onFile = func(from wire.ArchiveID, off int64, d []byte) ([]byte, error) {
				if from == "archive-a" && tt.onFile != nil {
					return tt.onFile(off, bytes.Clone(d))
				}
				return d, nil
			}
			p := newTestPuller(t, c, peers)
			if out := one(t, p, scan.ID(), "archive-a"); out.Err == nil || c.Seq() != 0 {
				t.Errorf("from the liar alone: %+v, %d records are stored", out, c.Seq())
			}
			out := one(t, p, scan.ID(), "archive-a", "archive-b")
			if out.Err != nil {
				t.Fatal(out.Err)
			}
			requireHas(t, c.Node, []wire.RecordID{scan.ID()}, true)
			if got := wrongAnswers(p, "archive-a"); (got > 0) != (tt.lies > 0) || wrongAnswers(p, "archive-b") != 0 {
				t.Errorf("%d lies of a and %d of b were counted", got, wrongAnswers(p, "archive-b"))
			}
			if _, err := c.Check(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

// A peer that dies in the middle costs what it had not sent: the next one, or
// the next try, goes on from there.
func TestAFileGoesOnWhereAPeerDied(t *testing.T) {
	const size = 8 * wire.FragmentSize
	for _, next := range []wire.ArchiveID{"archive-a", "archive-b"} {
		t.Run(string(next), func(t *testing.T) {
			a, b, c := newShelf(t, "archive-a"), newShelf(t, "archive-b"), newShelf(t, "archive-c")
			scan := a.scan(t, 1, size)
			b.scan(t, 1, size)
			peers := peersWith(a, b)
			dead := true
			peers.onFile = func(from wire.ArchiveID, off int64, d []byte) ([]byte, error) {
				if from == "archive-a" && dead && off >= size/2 {
					return nil, errAway
				}
				return d, nil
			}
			p := newTestPuller(t, c, peers)
			if out := one(t, p, scan.ID(), "archive-a"); !fault.Is(out.Err, fault.Transient) {
				t.Fatalf("with a dead archive: %+v", out)
			}
			peers.mu.Lock()
			dead = next == "archive-b"
			peers.mu.Unlock()
			if out := one(t, p, scan.ID(), next); out.Err != nil {
				t.Fatal(out.Err)
			}
			if sum := peers.bytes["archive-a"] + peers.bytes["archive-b"]; sum != size {
				t.Errorf("%d bytes were sent for a file of %d", sum, size)
			}
		})
	}
}

// Bytes of several archives that do not fit together are fetched anew from each
// alone, and only the one that lied is blamed.
func TestMixedBytesBlameTheLiarOnly(t *testing.T) {
	const size = 4 * wire.FragmentSize
	a, b, c := newShelf(t, "archive-a"), newShelf(t, "archive-b"), newShelf(t, "archive-c")
	scan := a.scan(t, 1, size)
	b.scan(t, 1, size)
	peers := peersWith(a, b)
	died := false
	peers.onFile = func(from wire.ArchiveID, off int64, d []byte) ([]byte, error) {
		if from == "archive-a" {
			if off >= size/2 && !died {
				died = true
				return nil, errAway
			}
			d = bytes.Clone(d)
			d[0] ^= 1
		}
		return d, nil
	}
	p := newTestPuller(t, c, peers)
	if out := one(t, p, scan.ID(), "archive-a", "archive-b"); out.Err != nil {
		t.Fatal(out.Err)
	}
	if wrongAnswers(p, "archive-a") != 1 || wrongAnswers(p, "archive-b") != 0 {
		t.Errorf("%d lies of a and %d of b were counted", wrongAnswers(p, "archive-a"), wrongAnswers(p, "archive-b"))
	}
}

// The bytes of a file come before its record: no record is acknowledged by an
// archive that lacks them.
func TestNoRecordWithoutItsFile(t *testing.T) {
	a, c := newShelf(t, "archive-a"), newShelf(t, "archive-c")
	scan := a.scan(t, 1, wire.FragmentSize)
	peers := peersWith(a)
	peers.onFile = func(wire.ArchiveID, int64, []byte) ([]byte, error) {
		if c.Seq() != 0 {
			t.Error("the record was stored first")
		}
		return nil, errAway
	}
	p := newTestPuller(t, c, peers)
	if out := one(t, p, scan.ID(), "archive-a"); out.Err == nil || c.Seq() != 0 {
		t.Errorf("%+v, %d records", out, c.Seq())
	}
}

// A file that was lost here is fetched again for the record that is still here.
func TestPullHealsALostFile(t *testing.T) {
	a, b := newShelf(t, "archive-a"), newShelf(t, "archive-b")
	scan := a.scan(t, 1, wire.FragmentSize)
	b.scan(t, 1, wire.FragmentSize)
	name := fmt.Sprintf("files/files/%x/%x", scan.File.SHA256[:1], scan.File.SHA256[:])
	if err := b.fs.Remove(name); err != nil {
		t.Fatal(err)
	}
	requireHas(t, b.Node, []wire.RecordID{scan.ID()}, false)
	out := one(t, newTestPuller(t, b, peersWith(a)), scan.ID(), "archive-a")
	if out.Err != nil || !out.Duplicate || out.Seq != 1 {
		t.Errorf("%+v", out)
	}
	requireHas(t, b.Node, []wire.RecordID{scan.ID()}, true)
}

// A file of any profile is fetched: whoever has it says in which it is. One who
// tells another is not believed, and nobody needs to tell of the usual ones.
func TestPullBringsAFileInItsProfile(t *testing.T) {
	odd := blob.Profile{ChunkSize: 100_000, MaxLinks: 17}
	for _, c := range []struct {
		profile, liar blob.Profile
		silent, comes bool
	}{
		{profile: odd, comes: true}, {profile: odd, liar: blob.Legacy, comes: true}, {profile: odd, silent: true},
		{profile: blob.Legacy, silent: true, comes: true}, {profile: blob.Profile{ChunkSize: 1 << 20, MaxLinks: 174}, silent: true, comes: true},
		{profile: blob.Default, liar: odd, comes: true},
	} {
		a, b := newShelf(t, "archive-a"), newShelf(t, "archive-b")
		scan := a.scanIn(t, c.profile, 1, 2<<20+1)
		peers := peersWith(a)
		peers.onProfile = func(told blob.Profile) (blob.Profile, error) {
			if c.silent {
				return told, errAway
			}
			return told, nil
		}
		from := []wire.ArchiveID{"archive-a"}
		if c.liar != (blob.Profile{}) {
			liar := newShelf(t, "archive-c")
			liar.scanIn(t, c.profile, 1, 2<<20+1)
			peers.shelves["archive-c"], peers.lies = liar, c.liar
			from = []wire.ArchiveID{"archive-c", "archive-a"}
		}
		out := newTestPuller(t, b, peers).Pull(t.Context(), []wire.RecordID{scan.ID()}, from)[0]
		for tries := 0; fault.CodeOf(out.Err) == CodePullPending && tries < 100; tries++ {
			out = newTestPuller(t, b, peers).Pull(t.Context(), []wire.RecordID{scan.ID()}, from)[0]
		}
		if (out.Err == nil) != c.comes {
			t.Errorf("%+v: %+v", c, out)
		}
		if c.comes {
			if _, err := b.files.Profile(t.Context(), scan.File.SHA256, scan.File.CID); err != nil {
				t.Errorf("%+v: it is not here: %v", c, err)
			}
		}
	}
}

// A pull outlives the request for it: the next request gets its outcome. Two
// requests for a record are one fetch.
func TestAPullOutlivesItsRequest(t *testing.T) {
	a, b := newShelf(t, "archive-a"), newShelf(t, "archive-b")
	note := metadata(alice, digest("subject"), `{}`)
	mustPut(t, a.Node, note)
	peers := peersWith(a)
	asked, block := make(chan struct{}), make(chan struct{})
	peers.onRecord = func(wire.ArchiveID, *wire.PutRecord) error { close(asked); <-block; return nil }
	p := newTestPuller(t, b, peers)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	ids, from := []wire.RecordID{note.ID()}, []wire.ArchiveID{"archive-a"}
	for range 2 {
		if out := p.Pull(ended, ids, from)[0]; fault.CodeOf(out.Err) != CodePullPending {
			t.Errorf("%+v", out)
		}
	}
	<-asked
	close(block)
	if out := p.Pull(t.Context(), ids, from)[0]; out.Err != nil || out.Seq != 1 || out.Duplicate {
		t.Errorf("%+v", out)
	}
	if peers.records["archive-a"] != 1 {
		t.Errorf("asked %d times", peers.records["archive-a"])
	}
}

// Files that take long hold up no records.
func TestFilesDoNotHoldUpRecords(t *testing.T) {
	a, b := newShelf(t, "archive-a"), newShelf(t, "archive-b")
	note := metadata(alice, digest("subject"), `{}`)
	mustPut(t, a.Node, note)
	var scans []wire.RecordID
	for i := range pullSlots + fileSlots {
		scans = append(scans, a.scan(t, uint64(i), 10).ID())
	}
	peers := &slowFiles{peersOf: peersWith(a), block: make(chan struct{})}
	p := newTestPuller(t, b, peers)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	p.Pull(ended, scans, []wire.ArchiveID{"archive-a"})
	if out := one(t, p, note.ID(), "archive-a"); out.Err != nil || b.Seq() != 1 {
		t.Errorf("%+v, %d records", out, b.Seq())
	}
	close(peers.block)
	for _, out := range p.Pull(t.Context(), scans, []wire.ArchiveID{"archive-a"}) {
		if out.Err != nil {
			t.Error(out.Err)
		}
	}
}

// slowFiles gives no file until block is closed.
type slowFiles struct {
	*peersOf
	block chan struct{}
}

func (p *slowFiles) File(ctx context.Context, a wire.ArchiveID, sum wire.Digest, cid string, off int64, n int) ([]byte, int64, error) {
	<-p.block
	return p.peersOf.File(ctx, a, sum, cid, off, n)
}

func TestPullEndsWithClose(t *testing.T) {
	a, b := newShelf(t, "archive-a"), newShelf(t, "archive-b")
	note := metadata(alice, digest("subject"), `{}`)
	mustPut(t, a.Node, note)
	peers := &hangingPeers{peersWith(a), make(chan struct{}, 100)}
	p := NewPuller(b.Node, b.files, peers, nil)
	outs := make(chan Pulled, 1)
	go func() {
		outs <- p.Pull(context.Background(), []wire.RecordID{note.ID()}, []wire.ArchiveID{"archive-a"})[0]
	}()
	<-peers.asked
	p.Close()
	if out := <-outs; !errors.Is(out.Err, context.Canceled) || !fault.Is(out.Err, fault.Transient) {
		t.Errorf("%+v", out)
	}
	if out := one(t, p, note.ID(), "archive-a"); fault.CodeOf(out.Err) != "CLOSED" {
		t.Errorf("after close: %+v", out)
	}
}

// hangingPeers never answer.
type hangingPeers struct {
	*peersOf
	asked chan struct{}
}

func (p *hangingPeers) Record(ctx context.Context, _ wire.ArchiveID, _ wire.RecordID) (wire.PutRecord, error) {
	p.asked <- struct{}{}
	<-ctx.Done()
	return wire.PutRecord{}, ctx.Err()
}
