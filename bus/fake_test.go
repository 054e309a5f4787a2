package bus

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/verae/archive/blob"
	"github.com/verae/archive/bus/server"
	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/wire"
)

const tenantA, tenantB wire.TenantID = "tenant-a", "tenant-b"

// patient waits longer than any machine needs: for tests that fail by an answer,
// not by its absence.
var patient = ArchivesConfig{
	RequestTimeout: 5 * time.Minute, StallTimeout: 5 * time.Minute, CommitTimeout: 5 * time.Minute,
}

// startServer starts a server on a random port and ends it with the test.
func startServer(t testing.TB, cfg server.Config) *server.Server {
	t.Helper()
	if cfg.Port == 0 {
		cfg.Port = server.RandomPort
	}
	s, err := server.Start(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return s
}

// connect connects to s and closes with the test, before the server.
func connect(t testing.TB, s *server.Server, name string) *Conn {
	t.Helper()
	c, err := Connect(Config{URL: s.ClientURL(), Name: name})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// eventually waits until cond holds. It fails the test after a time that no
// machine needs.
func eventually(t testing.TB, what string, cond func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	late := time.After(30 * time.Second)
	for !cond() {
		select {
		case <-tick.C:
		case <-late:
			t.Fatalf("still not: %s", what)
		}
	}
}

// leakCheck fails the test if goroutines are left when it has ended. It must be
// called before anything else registers a cleanup.
func leakCheck(t testing.TB) {
	t.Helper()
	base := runtime.NumGoroutine()
	t.Cleanup(func() {
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		late := time.After(10 * time.Second)
		for runtime.NumGoroutine() > base {
			select {
			case <-tick.C:
			case <-late:
				buf := make([]byte, 1<<20)
				t.Errorf("%d goroutines, %d before the test:\n%s", runtime.NumGoroutine(), base, buf[:runtime.Stack(buf, true)])
				return
			}
		}
	})
}

func count(c prometheus.Collector) int { return int(testutil.ToFloat64(c)) }

// keyOf returns an Ed25519-like public key made of a name.
func keyOf(name string) string {
	sum := sha256.Sum256([]byte(name))
	return base64.StdEncoding.EncodeToString(sum[:])
}

func digestOf(s string) wire.Digest { return sha256.Sum256([]byte(s)) }

// note returns a put of a small record of tenantA under the digest of subject.
func note(subject, body string) wire.Put {
	return wire.Put{PutID: wire.NewPutID(), Record: wire.PutRecord{
		Kind: "note", SHA256: digestOf(subject), TenantID: tenantA, Body: []byte(body),
	}}
}

// fakeNode is an archive in memory. It fails the test when a caller breaks a law
// that the real one relies on.
type fakeNode struct {
	t  testing.TB
	id wire.ArchiveID

	// Hooks, set before the service starts.
	onPut    func(ctx context.Context) error
	onAnswer func(ctx context.Context, q wire.Query) error

	inPut, mostPuts atomic.Int64

	mu      sync.Mutex
	boot    string
	state   string
	byPut   map[wire.PutID]wire.RecordID
	records []wire.Record
	lost    map[[32]byte]bool
	queries int
}

func newFakeNode(t testing.TB, id wire.ArchiveID) *fakeNode {
	return &fakeNode{t: t, id: id, boot: "boot-" + string(id), state: wire.StateUp, byPut: map[wire.PutID]wire.RecordID{}}
}

func (n *fakeNode) Put(ctx context.Context, put wire.Put) (wire.PutAck, error) {
	in := n.inPut.Add(1)
	defer n.inPut.Add(-1)
	for most := n.mostPuts.Load(); in > most && !n.mostPuts.CompareAndSwap(most, in); most = n.mostPuts.Load() {
	}
	if n.onPut != nil {
		if err := n.onPut(ctx); err != nil {
			return wire.PutAck{}, err
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	ack := wire.PutAck{ArchiveID: n.id, Generation: 1, Boot: n.boot, RecordID: put.Record.ID()}
	if had, ok := n.byPut[put.PutID]; put.PutID != "" && ok && had != ack.RecordID {
		return wire.PutAck{}, fault.New(fault.Conflict, "PUT_CONFLICT", "put %s stored another record", put.PutID)
	}
	for i, r := range n.records {
		if r.ID == ack.RecordID {
			ack.Seq, ack.Duplicate = uint64(i+1), true
			return ack, nil
		}
	}
	p := put.Record
	n.records = append(n.records, wire.Record{
		ID: ack.RecordID, Kind: p.Kind, SHA256: p.SHA256, TenantID: p.TenantID, SubmissionID: p.SubmissionID,
		Part: p.Part, AttachedAt: p.AttachedAt, ContentType: p.ContentType, Body: bytes.Clone(p.Body), File: p.File, ShareWith: p.ShareWith,
	})
	n.byPut[put.PutID] = ack.RecordID
	ack.Seq = uint64(len(n.records))
	return ack, nil
}

func (n *fakeNode) Answer(ctx context.Context, q wire.Query) (wire.Reply, bool, error) {
	if err := q.Check(); err != nil {
		n.t.Errorf("the node was handed a query that does not check: %v", err)
	}
	if n.onAnswer != nil {
		if err := n.onAnswer(ctx, q); err != nil {
			return wire.Reply{}, false, err
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.queries++
	reply := wire.Reply{ArchiveID: n.id, SHA256: q.SHA256}
	for _, r := range n.records {
		if r.SHA256 == q.SHA256 && r.TenantID == q.TenantID {
			reply.Records = append(reply.Records, r)
		}
	}
	return reply, len(reply.Records) > 0, nil
}

func (n *fakeNode) FileLost(sha256 [32]byte) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.lost[sha256]
}

func (n *fakeNode) FileOf(_ context.Context, viewer wire.TenantID, cid string, digest [32]byte) (wire.File, bool, error) {
	if c, err := blob.ParseCID(cid); cid != "" && (err != nil || c.Digest != digest) {
		n.t.Errorf("FileOf(%s) with the digest %x", cid, digest)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, r := range n.records {
		if r.Kind == wire.KindFile && r.TenantID == viewer {
			if c, err := blob.ParseCID(r.File.CID); err == nil && c.Digest == digest {
				return *r.File, true, nil
			}
		}
	}
	return wire.File{}, false, nil
}

func (n *fakeNode) Hello() wire.Hello {
	n.mu.Lock()
	defer n.mu.Unlock()
	return wire.Hello{
		Proto: 1, ArchiveID: n.id, Key: keyOf(string(n.id)), Generation: 1, Boot: n.boot,
		Seq: uint64(len(n.records)), Records: uint64(len(n.records)), State: n.state,
		Filter: wire.HelloFilter{Generations: 1, Ready: true},
	}
}

func (n *fakeNode) SetState(state string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.state = state
}

func (n *fakeNode) stored() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.records)
}

func (n *fakeNode) holds(id wire.RecordID) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, r := range n.records {
		if r.ID == id {
			return true
		}
	}
	return false
}

// fakeBlobs keeps files in memory under the rules of blob.Store.
type fakeBlobs struct {
	t       testing.TB
	onWrite func(id string, offset int64) error // set before the service starts
	onRead  func(off int64) error

	mu       sync.Mutex
	open     map[string]*bytes.Buffer
	durable  map[string]int64
	profiles map[string]blob.Profile // of all uploads that ever were
	files    map[string][]byte       // by CID
	aborted  []string
}

func newFakeBlobs(t testing.TB) *fakeBlobs {
	return &fakeBlobs{t: t, open: map[string]*bytes.Buffer{}, durable: map[string]int64{}, profiles: map[string]blob.Profile{}, files: map[string][]byte{}}
}

func (b *fakeBlobs) Open(id string, p blob.Profile) error {
	if err := p.Check(); err != nil {
		b.t.Error(err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.open[id] != nil {
		return fault.New(fault.Conflict, "UPLOAD_EXISTS", "open")
	}
	b.open[id], b.profiles[id] = new(bytes.Buffer), p
	return nil
}

func (b *fakeBlobs) Resume(id string, p blob.Profile, offset int64) (int64, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if up := b.open[id]; up != nil && b.profiles[id] == p && offset <= int64(up.Len()) {
		return int64(up.Len()), nil
	}
	return 0, fault.New(fault.NotFound, CodeUnknownUpload, "unknown upload")
}

func (b *fakeBlobs) Sync(id string) (int64, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	up := b.open[id]
	if up == nil {
		return 0, fault.New(fault.NotFound, CodeUnknownUpload, "unknown upload")
	}
	b.durable[id] = int64(up.Len())
	return b.durable[id], nil
}

func (b *fakeBlobs) Durable(id string) int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.durable[id]
}

func (b *fakeBlobs) Write(id string, offset int64, data []byte) (int64, error) {
	if b.onWrite != nil {
		if err := b.onWrite(id, offset); err != nil {
			return 0, err
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	up := b.open[id]
	if up == nil {
		return 0, fault.New(fault.NotFound, CodeUnknownUpload, "unknown upload")
	}
	if offset+int64(len(data)) <= int64(up.Len()) {
		return int64(up.Len()), nil // a repetition
	}
	if int64(up.Len()) != offset {
		b.t.Errorf("upload %s: fragment at %d, have %d bytes: out of order or lost", id, offset, up.Len())
		return 0, fault.New(fault.Invalid, "BAD_OFFSET", "gap")
	}
	up.Write(data)
	clear(data) // like the real one, which may use it as scratch space
	return int64(up.Len()), nil
}

func (b *fakeBlobs) CommitFile(_ context.Context, id string, file blob.FileRef) (bool, error) {
	size, sum, cid := file.Size, file.SHA256, file.CID
	b.mu.Lock()
	defer b.mu.Unlock()
	up := b.open[id]
	if up == nil {
		if data, ok := b.files[cid]; ok && int64(len(data)) == size && sha256.Sum256(data) == sum {
			return true, nil
		}
		return false, fault.New(fault.NotFound, CodeUnknownUpload, "unknown upload")
	}
	delete(b.open, id)
	want := describeIn(up.Bytes(), b.profiles[id])
	if want.Size != size || want.SHA256 != sum || want.CID != cid {
		return false, fault.New(fault.Invalid, "DIGEST_MISMATCH", "not the file named")
	}
	_, duplicate := b.files[cid]
	b.files[cid] = append([]byte{}, up.Bytes()...) // not nil for an empty file
	return duplicate, nil
}

func (b *fakeBlobs) Abort(id string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.open[id] != nil {
		b.aborted = append(b.aborted, id)
	}
	delete(b.open, id)
	return nil
}

func (b *fakeBlobs) Has(_ context.Context, sum [32]byte, cid string) (bool, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	data, ok := b.files[cid]
	return ok && sha256.Sum256(data) == sum, nil
}

func (b *fakeBlobs) Profile(_ context.Context, _ [32]byte, cid string) (blob.Profile, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, ok := b.files[cid]; !ok {
		return blob.Profile{}, fault.New(fault.NotFound, "UNKNOWN_CID", "no file %s", cid)
	}
	return blob.Default, nil
}

func (b *fakeBlobs) Read(_ context.Context, cid string, off int64, length int) ([]byte, int64, error) {
	if b.onRead != nil {
		if err := b.onRead(off); err != nil {
			return nil, 0, err
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	data, ok := b.files[cid]
	if !ok {
		return nil, 0, fault.New(fault.NotFound, "UNKNOWN_CID", "no file %s", cid)
	}
	end := min(off+int64(length), int64(len(data)))
	if off > end {
		return nil, 0, fault.New(fault.Invalid, "BAD_RANGE", "beyond the end")
	}
	return bytes.Clone(data[off:end]), int64(len(data)), nil
}

func (b *fakeBlobs) ReadBlock(_ context.Context, cid string, digest [32]byte, off int64, length int) ([]byte, int64, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	data, ok := b.files[cid]
	if !ok || sha256.Sum256(data) != digest { // the only block of a small file
		return nil, 0, fault.New(fault.NotFound, "UNKNOWN_CID", "no file %s", cid)
	}
	end := min(off+int64(length), int64(len(data)))
	return bytes.Clone(data[off:end]), int64(len(data)), nil
}

func (b *fakeBlobs) openUploads() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.open)
}

func (b *fakeBlobs) file(cid string) []byte {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.files[cid]
}

// describe returns the commit that fits data.
func describe(data []byte) wire.BlobCommit { return describeIn(data, blob.Default) }

// describeIn is describe for a file in a profile.
func describeIn(data []byte, p blob.Profile) wire.BlobCommit {
	h := blob.NewHasher(p)
	h.Write(data)
	sums := h.Sum()
	return wire.BlobCommit{Size: sums.Size, SHA256: sums.SHA256, CID: sums.CID}
}

// static ranks archives in a fixed order, whatever the key.
type static []wire.ArchiveID

func (s static) Rank([32]byte) []wire.ArchiveID { return s }

// A site is one archive in a test.
type site struct {
	node    *fakeNode
	blobs   *fakeBlobs
	conn    *Conn
	service *ArchiveService
}

// A world is a server, an aggregator's client and some archives.
type world struct {
	server   *server.Server
	conn     *Conn
	archives *Archives
	sites    []*site
	ids      []wire.ArchiveID
}

// startWorld starts n archives, archive-a and on, ranked in that order. prepare
// may change a site before it serves.
func startWorld(t testing.TB, n int, cfg ArchivesConfig, prepare func(i int, s *site)) *world {
	t.Helper()
	leakCheck(t)
	w := &world{server: startServer(t, server.Config{})}
	for i := range n {
		id := wire.ArchiveID(fmt.Sprintf("archive-%c", 'a'+i))
		w.ids = append(w.ids, id)
		s := &site{node: newFakeNode(t, id), blobs: newFakeBlobs(t)}
		if prepare != nil {
			prepare(i, s)
		}
		w.sites = append(w.sites, s)
		w.serve(t, s)
	}
	w.conn = connect(t, w.server, "aggregator")
	var err error
	if w.archives, err = NewArchives(w.conn, static(w.ids), cfg); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.archives.Close() })
	return w
}

// serve starts, or starts again, the service of s.
func (w *world) serve(t testing.TB, s *site) {
	t.Helper()
	s.conn = connect(t, w.server, string(s.node.id))
	var err error
	still := func() time.Time { return time.Unix(1, 0) } // nobody is forgotten because the machine is slow
	if s.service, err = ServeArchive(s.conn, s.node, s.blobs, ArchiveConfig{Now: still}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.service.Drain(context.Background()) })
}

// wantFault fails unless err is a fault of that kind and code.
func wantFault(t testing.TB, err error, kind fault.Kind, code string) {
	t.Helper()
	if err == nil || fault.KindOf(err) != kind || fault.CodeOf(err) != code {
		t.Fatalf("got %v (kind %v, code %q); want kind %v, code %q", err, fault.KindOf(err), fault.CodeOf(err), kind, code)
	}
}

func wantText(t testing.TB, err error, parts ...string) {
	t.Helper()
	for _, p := range parts {
		if err == nil || !strings.Contains(err.Error(), p) {
			t.Errorf("error %v does not say %q", err, p)
		}
	}
}
