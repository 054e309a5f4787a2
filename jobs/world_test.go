package jobs

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/verae/archive/blob"
	"github.com/verae/archive/chain"
	"github.com/verae/archive/chain/ledger"
	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/receipts"
	"github.com/verae/archive/splitter"
	"github.com/verae/archive/vault"
	"github.com/verae/archive/wire"
)

// world is an engine among parts that are real where they hold truth (the job
// store, the ledger, the vault) and fakes that assert the laws where they
// stand for the network (archives, uploads, announcements).
type world struct {
	t        testing.TB
	fs       *vfs.MemFS // of the job store
	ledgerFS *vfs.MemFS
	vault    *vault.Vault
	ledger   *countingLedger
	archives *archives
	events   *events
	config   Config
	engine   *Engine
}

// newWorld starts an engine with n archives. configure may be nil.
func newWorld(t testing.TB, n int, configure func(*Config)) *world {
	t.Helper()
	w := &world{t: t, fs: vfs.NewCrashableMem(), ledgerFS: vfs.NewCrashableMem(), archives: newArchives(t, n), events: &events{bytes: map[wire.EventID][]string{}}}
	v, err := vault.Open(vault.Config{Dir: t.TempDir(), Create: true})
	if err != nil {
		t.Fatal(err)
	}
	w.vault = v
	l, err := initLedger(w.ledgerFS)
	if err != nil {
		t.Fatal(err)
	}
	w.ledger = &countingLedger{Ledger: l}
	w.config = Config{
		Dir: "jobs", Create: true, Vault: w.vault, Archives: w.archives, Announce: w,
		PutWait: 2 * time.Second, Gatherer: &receipts.Gatherer{Asker: w.archives, Roster: w.archives, Wait: time.Second},
	}
	if configure != nil {
		configure(&w.config)
	}
	w.open(nil)
	t.Cleanup(func() {
		if err := w.engine.Close(); err != nil {
			t.Error(err)
		}
		if err := w.ledger.Ledger.(*ledger.Ledger).Close(); err != nil {
			t.Error(err)
		}
	})
	return w
}

func initLedger(fs vfs.FS) (*ledger.Ledger, error) {
	c := ledger.Config{Dir: "ledger", FS: fs, Origin: "verae.test/ledger"}
	if err := ledger.Init(c); err != nil {
		return nil, err
	}
	return ledger.Open(c)
}

// open opens the engine on the world's file system; step may be nil.
func (w *world) open(step func(string) error) {
	w.t.Helper()
	c := w.config
	c.FS, c.Ledger = w.fs, w.ledger
	e, err := openWith(c, step)
	if err != nil {
		w.t.Fatal(err)
	}
	w.engine = e
	w.config.Create = false
	w.archives.deliver(e.Watch)
}

// crash gives the store what a power loss at this moment leaves of it, and
// ends the old engine, whose later writes are lost.
func (w *world) crash(unsynced int) *vfs.MemFS {
	return w.fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: unsynced, RNG: rand.New(rand.NewPCG(1, uint64(unsynced)))})
}

// PublishWatch and PublishEvent make the world the engine's Announcer.
func (w *world) PublishWatch(m wire.Watch) error { return w.archives.watch(m) }

func (w *world) PublishEvent(event []byte) error { return w.events.add(w.t, event) }

// submit sends a request through the real splitter.
func (w *world) submit(ctx context.Context, c Caller, body string) (wire.Accepted, error) {
	w.t.Helper()
	if c.SubmissionID == "" {
		c.SubmissionID = wire.NewSubmissionID()
	}
	req, err := splitter.ReadJSON(ctx, strings.NewReader(body), splitter.Config{
		Uploader: w.archives, SubmissionID: c.SubmissionID, TenantID: c.TenantID,
	})
	if err != nil {
		return wire.Accepted{}, err
	}
	return w.engine.Accept(ctx, c, req)
}

// must submits and waits for the end.
func (w *world) must(tenant wire.TenantID, body string) (wire.Accepted, wire.Job) {
	w.t.Helper()
	a, err := w.submit(w.t.Context(), Caller{TenantID: tenant}, body)
	if err != nil {
		w.t.Fatal(err)
	}
	return a, w.ended(tenant, a)
}

// ended waits for the end of a submission and returns its job.
func (w *world) ended(tenant wire.TenantID, a wire.Accepted) wire.Job {
	w.t.Helper()
	ctx, stop := context.WithTimeout(w.t.Context(), time.Minute)
	defer stop()
	if _, err := w.engine.Wait(ctx, tenant, a.SubmissionID); err != nil {
		w.t.Fatal(err)
	}
	job, err := w.engine.Job(ctx, tenant, a.JobID, View{SubmissionID: a.SubmissionID})
	if err != nil {
		w.t.Fatal(err)
	}
	return job
}

// settled waits until the engine has nothing left to do.
func (w *world) settled() {
	w.t.Helper()
	w.left(0)
}

// left waits until n submissions are left to work on.
func (w *world) left(want int) {
	w.t.Helper()
	deadline := time.Now().Add(time.Minute)
	for {
		n, err := w.engine.Pending()
		if err != nil {
			w.t.Fatal(err)
		}
		if n == want {
			return
		}
		if time.Now().After(deadline) {
			w.t.Fatalf("%d submissions are still not done, want %d", n, want)
		}
		time.Sleep(time.Millisecond) // polls the store; nothing is timed by it
	}
}

// announced waits until a submission's end was announced and returns its
// events.
func (w *world) announced(id wire.SubmissionID) []wire.Event {
	w.t.Helper()
	deadline := time.Now().Add(time.Minute)
	for {
		if events := w.events.bySubmission(id); len(events) > 0 || time.Now().After(deadline) {
			return events
		}
		time.Sleep(time.Millisecond) // polls; nothing is timed by it
	}
}

// countingLedger counts what is asked of the chain, and fails on demand.
type countingLedger struct {
	chain.Ledger
	mu        sync.Mutex
	down      error // guarded by mu
	registers int   // guarded by mu
}

func (l *countingLedger) setDown(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.down = err
}

func (l *countingLedger) failing() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.down
}

func (l *countingLedger) Register(ctx context.Context, entries []chain.Entry) ([]chain.Seal, error) {
	if err := l.failing(); err != nil {
		return nil, err
	}
	l.mu.Lock()
	l.registers++
	l.mu.Unlock()
	return l.Ledger.Register(ctx, entries)
}

func (l *countingLedger) Lookup(ctx context.Context, d wire.Digest) (chain.Seal, bool, error) {
	if err := l.failing(); err != nil {
		return chain.Seal{}, false, err
	}
	return l.Ledger.Lookup(ctx, d)
}

// events keeps what was announced and insists that an event's bytes never
// change.
type events struct {
	mu    sync.Mutex
	bytes map[wire.EventID][]string // every announcement, by event
}

func (e *events) add(t testing.TB, b []byte) error {
	event, err := wire.Decode[wire.Event](b)
	if err != nil {
		t.Errorf("an event is not what the contract says: %v: %s", err, b)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, before := range e.bytes[event.ID] {
		if before != string(b) {
			t.Errorf("event %s was announced with two bodies:\n%s\n%s", event.ID, before, b)
		}
	}
	e.bytes[event.ID] = append(e.bytes[event.ID], string(b))
	return nil
}

// bySubmission returns the distinct events of a submission.
func (e *events) bySubmission(id wire.SubmissionID) (list []wire.Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, bodies := range e.bytes {
		var event wire.Event
		if err := json.Unmarshal([]byte(bodies[0]), &event); err == nil && event.SubmissionID == id {
			list = append(list, event)
		}
	}
	return list
}

// archives is a network of archives in memory. Each asserts the laws: records
// are never changed, a put that is repeated is a duplicate, a file record needs
// its file, an upload that is unknown is said to be.
type archives struct {
	t testing.TB

	mu      sync.Mutex // guards everything below
	nodes   map[wire.ArchiveID]*node
	watches func(context.Context, wire.Watch) error
	opened  int // uploads ever opened
	version uint64
}

type node struct {
	up      bool
	uploads map[string][]byte
	files   map[wire.BlobCommit][]byte
	records []wire.Record
	puts    map[wire.PutID]wire.RecordID
	refuse  error // every put and copy gets it

	refusePut    error         // every put of a record gets it
	refuseCommit error         // every commit of an upload gets it
	hold         chan struct{} // copies of files to it wait until it is closed; nil: they do not

	forgetful bool // takes the bytes of an upload and does not know it later
}

func newArchives(t testing.TB, n int) *archives {
	a := &archives{t: t, nodes: map[wire.ArchiveID]*node{}}
	for i := range n {
		a.enrol(wire.ArchiveID("archive-" + string(rune('a'+i))))
	}
	return a
}

// enrol adds a node.
func (a *archives) enrol(id wire.ArchiveID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.version++
	a.nodes[id] = &node{
		up: true, uploads: map[string][]byte{}, files: map[wire.BlobCommit][]byte{}, puts: map[wire.PutID]wire.RecordID{},
	}
}

// retire removes a node and returns it.
func (a *archives) retire(id wire.ArchiveID) *node {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.version++
	was := a.nodes[id]
	delete(a.nodes, id)
	return was
}

// set changes a node.
func (a *archives) set(id wire.ArchiveID, change func(*node)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	change(a.nodes[id])
}

// all changes every node.
func (a *archives) all(change func(*node)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, n := range a.nodes {
		change(n)
	}
}

// restart is what an archive's restart does to its open uploads.
func (n *node) restart() { clear(n.uploads) }

func (a *archives) deliver(watch func(context.Context, wire.Watch) error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.watches = watch
}

func (a *archives) watch(m wire.Watch) error {
	a.mu.Lock()
	deliver := a.watches
	a.mu.Unlock()
	if deliver != nil {
		go func() {
			if err := deliver(context.Background(), m); err != nil && fault.CodeOf(err) != "CLOSING" && fault.CodeOf(err) != "STORE_CLOSED" { // the message may outlive the engine
				a.t.Errorf("watch: %v", err)
			}
		}()
	}
	return nil
}

func (a *archives) Enrolled() []wire.ArchiveID {
	a.mu.Lock()
	defer a.mu.Unlock()
	var ids []wire.ArchiveID
	for id := range a.nodes {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

func (a *archives) Version() uint64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.version
}

func (a *archives) Rank(key [32]byte) []wire.ArchiveID {
	ids := a.Enrolled()
	a.mu.Lock()
	defer a.mu.Unlock()
	ids = slices.DeleteFunc(ids, func(id wire.ArchiveID) bool { return !a.nodes[id].up })
	slices.SortFunc(ids, func(x, y wire.ArchiveID) int {
		return bytes.Compare(score(key, x), score(key, y))
	})
	return ids
}

func score(key [32]byte, id wire.ArchiveID) []byte {
	sum := sha256.Sum256(append(key[:], id...))
	return sum[:]
}

var errDown = fault.New(fault.Transient, "ARCHIVE_UNREACHABLE", "no such archive on the network")

// reach returns a node that is up, with the lock held until the returned
// function is called.
func (a *archives) reach(id wire.ArchiveID) (*node, func(), error) {
	a.mu.Lock()
	n := a.nodes[id]
	if n == nil || !n.up {
		a.mu.Unlock()
		return nil, nil, errDown
	}
	return n, a.mu.Unlock, nil
}

// held waits as long as a node holds copies.
func (a *archives) held(ctx context.Context, id wire.ArchiveID) {
	a.mu.Lock()
	hold := a.nodes[id].hold
	a.mu.Unlock()
	if hold != nil {
		select {
		case <-hold:
		case <-ctx.Done():
		}
	}
}

func (a *archives) Put(_ context.Context, id wire.ArchiveID, p wire.Put) (wire.PutAck, error) {
	n, unlock, err := a.reach(id)
	if err != nil {
		return wire.PutAck{}, err
	}
	defer unlock()
	if p.RosterVersion != a.version {
		a.t.Errorf("a put by roster version %d came at version %d", p.RosterVersion, a.version)
	}
	if err := cmpErr(n.refuse, n.refusePut); err != nil {
		return wire.PutAck{}, err
	}
	if err := p.Record.Check(); err != nil {
		a.t.Errorf("a put that no archive would take: %v", err)
	}
	recordID := p.Record.ID()
	if before, ok := n.puts[p.PutID]; ok && before != recordID {
		a.t.Errorf("put %s came with two contents", p.PutID)
	}
	n.puts[p.PutID] = recordID
	for _, r := range n.records {
		if r.ID == recordID {
			return wire.PutAck{ArchiveID: id, RecordID: recordID, Seq: r.Seq, Duplicate: true}, nil
		}
	}
	if f := p.Record.File; f != nil {
		if _, ok := n.files[wire.BlobCommit{Size: f.Size, SHA256: f.SHA256, CID: f.CID}]; !ok {
			a.t.Errorf("archive %s was asked to record a file that it does not have", id)
			return wire.PutAck{}, fault.New(fault.Transient, "FILE_MISSING", "the file is not here")
		}
	}
	n.records = append(n.records, recordOf(p.Record, uint64(len(n.records)+1)))
	return wire.PutAck{ArchiveID: id, RecordID: recordID, Seq: uint64(len(n.records))}, nil
}

func recordOf(p wire.PutRecord, seq uint64) wire.Record {
	r := wire.Record{
		ID: p.ID(), Kind: p.Kind, SHA256: p.SHA256, TenantID: p.TenantID, SubmissionID: p.SubmissionID, Part: p.Part,
		AttachedAt: p.AttachedAt, StoredAt: wire.At(time.Now()), Seq: seq, ContentType: p.ContentType,
		Body: p.Body, BodySHA256: p.BodySHA256(), ShareWith: p.ShareWith,
	}
	if p.File != nil {
		f := *p.File
		f.ID = r.ID
		r.File = &f
	}
	return r
}

// fileKey is what tells one file from another.
func fileKey(c wire.BlobCommit) wire.BlobCommit {
	return wire.BlobCommit{Size: c.Size, SHA256: c.SHA256, CID: c.CID}
}

// isFile reports whether bytes are the file of a commit, in the profile of it.
func isFile(data []byte, c wire.BlobCommit) bool {
	p := cmp.Or(blob.Profile{ChunkSize: c.ChunkSize, MaxLinks: c.MaxLinks}, blob.Default)
	sums, err := blob.SumReader(bytes.NewReader(data), p)
	return err == nil && sums.Size == c.Size && sums.SHA256 == c.SHA256 && sums.CID == c.CID
}

func (a *archives) CommitUpload(_ context.Context, id wire.ArchiveID, upload string, c wire.BlobCommit) error {
	n, unlock, err := a.reach(id)
	if err != nil {
		return err
	}
	defer unlock()
	if n.refuseCommit != nil {
		return n.refuseCommit
	}
	if _, ok := n.files[fileKey(c)]; ok {
		delete(n.uploads, upload)
		return nil
	}
	data, ok := n.uploads[upload]
	if !ok {
		return fault.New(fault.NotFound, "UNKNOWN_UPLOAD", "there is no such upload")
	}
	if !isFile(data, c) {
		return fault.New(fault.Invalid, "UPLOAD_MISMATCH", "the bytes are not what the commit says")
	}
	delete(n.uploads, upload)
	n.files[fileKey(c)] = data
	return nil
}

func (a *archives) Copy(ctx context.Context, from, to wire.ArchiveID, tenant wire.TenantID, c wire.BlobCommit) error {
	a.held(ctx, to)
	n, unlock, err := a.reach(from)
	if err != nil {
		return err
	}
	data, ok := n.files[fileKey(c)]
	granted := slices.ContainsFunc(n.records, func(r wire.Record) bool { return r.File != nil && r.File.CID == c.CID && r.TenantID == tenant })
	unlock()
	if !ok || !granted {
		return fault.New(fault.NotFound, "FILE_NOT_FOUND", "the file is not here, or not this tenant's")
	}
	n, unlock, err = a.reach(to)
	if err != nil {
		return err
	}
	defer unlock()
	if n.refuse != nil {
		return n.refuse
	}
	if !isFile(data, c) {
		return fault.New(fault.Invalid, "UPLOAD_MISMATCH", "the bytes are not what the commit says")
	}
	n.files[fileKey(c)] = data
	return nil
}

// Ask makes the archives a receipts.Asker.
func (a *archives) Ask(_ context.Context, q wire.Query, _ []wire.ArchiveID, _ bool) (func(context.Context) (wire.Reply, wire.ArchiveID, bool), func(), error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	out := make(chan wire.Reply, len(a.nodes))
	alive := 0
	for id, n := range a.nodes {
		if !n.up {
			continue
		}
		alive++
		reply := wire.Reply{ArchiveID: id, SHA256: q.SHA256, Records: []wire.Record{}, Page: 1, Pages: 1}
		for _, r := range n.records {
			if under(&r, q.SHA256) && (len(q.Kinds) == 0 || slices.Contains(q.Kinds, r.Kind)) {
				r.Retention = n.retention(&r)
				if seen, ok := r.For(q.TenantID); ok {
					reply.Records = append(reply.Records, seen)
				}
			}
		}
		out <- reply
	}
	if alive == 0 {
		close(out)
	}
	return func(ctx context.Context) (wire.Reply, wire.ArchiveID, bool) {
		select {
		case r, ok := <-out:
			return r, "", ok
		case <-ctx.Done():
			return wire.Reply{}, "", false
		}
	}, func() {}, nil
}

// retention is what the control records of a node say of one of its records.
func (n *node) retention(of *wire.Record) *wire.Retention {
	var controls wire.Controls
	for _, r := range n.records {
		if r.TenantID == of.TenantID && r.SHA256 == of.SHA256 && r.Kind.Steers() {
			controls.Add(&r) // it was checked when it was put
		}
	}
	return controls.Of(of.ID)
}

// under reports whether a record is keyed under a digest.
func under(r *wire.Record, d wire.Digest) bool {
	if r.SHA256 == d || wire.Digest(r.ID) == d {
		return true
	}
	if r.File == nil {
		return false
	}
	cid, err := blob.ParseCID(r.File.CID)
	return r.File.SHA256 == d || err == nil && cid.Digest == d
}

// OpenUpload makes the archives a splitter.Uploader.
func (a *archives) OpenUpload(_ context.Context, key [32]byte, _ blob.Profile) (splitter.Upload, error) {
	to := a.Rank(key)
	if len(to) == 0 {
		return nil, fault.New(fault.Transient, "NO_ARCHIVE", "no archive takes files now").After(time.Second)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.opened++
	return &upload{a: a, id: fmt.Sprintf("upload-%d", a.opened), to: to[:min(2, len(to))]}, nil
}

type upload struct {
	a    *archives
	id   string
	to   []wire.ArchiveID
	data bytes.Buffer
	over bool
}

func (u *upload) ID() string { return u.id }

func (u *upload) Write(p []byte) (int, error) {
	if u.over {
		u.a.t.Error("a write after the end of an upload")
		return 0, io.ErrClosedPipe
	}
	return u.data.Write(p)
}

func (u *upload) Finish(context.Context) ([]wire.ArchiveID, error) {
	u.over = true
	u.a.mu.Lock()
	defer u.a.mu.Unlock()
	for _, id := range u.to {
		if n := u.a.nodes[id]; !n.forgetful {
			n.uploads[u.id] = bytes.Clone(u.data.Bytes())
		}
	}
	return slices.Clone(u.to), nil
}

func (u *upload) Abort() {
	u.over = true
	u.a.mu.Lock()
	defer u.a.mu.Unlock()
	for _, id := range u.to {
		delete(u.a.nodes[id].uploads, u.id)
	}
}

// openUploads counts what no request should leave behind.
func (a *archives) openUploads() (n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, node := range a.nodes {
		n += len(node.uploads)
	}
	return n
}

// distinct returns the records of all archives, each once, and checks that
// copies agree.
func (a *archives) distinct() map[wire.RecordID]wire.Record {
	a.mu.Lock()
	defer a.mu.Unlock()
	all := map[wire.RecordID]wire.Record{}
	for _, n := range a.nodes {
		for _, r := range n.records {
			if before, ok := all[r.ID]; ok && !bytes.Equal(before.Body, r.Body) {
				a.t.Errorf("record %s has two bodies", r.ID)
			}
			all[r.ID] = r
		}
	}
	return all
}

// copies returns how many archives hold a record.
func (a *archives) copies(id wire.RecordID) (n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, node := range a.nodes {
		for _, r := range node.records {
			if r.ID == id {
				n++
			}
		}
	}
	return n
}
