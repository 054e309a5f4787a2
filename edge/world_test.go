package edge

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/verae/archive/blob"
	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/internal/serve"
	"github.com/verae/archive/jobs"
	"github.com/verae/archive/splitter"
	"github.com/verae/archive/wire"
)

// world is a Server over an in-memory network, with everything below it faked.
// The fakes keep the laws of the interfaces they stand for, and the world fails
// its test if, at the end, anything was left open.
type world struct {
	t        *testing.T
	server   *Server
	http     *http.Server
	listener *pipeListener
	client   *http.Client
	keyFile  string

	jobs     *fakeJobs
	uploads  *fakeUploads
	store    *fakeStore
	controls *fakeControls
	log      *logBuffer
}

// Tenants of the worlds.
const (
	acme  wire.TenantID = "acme"
	other wire.TenantID = "other"
)

// newWorld starts a world; change may alter its configuration first.
func newWorld(t *testing.T, change ...func(*Config)) *world {
	t.Helper()
	w := &world{
		t: t, keyFile: filepath.Join(t.TempDir(), "keys.json"), log: &logBuffer{},
		uploads: &fakeUploads{t: t}, store: &fakeStore{t: t}, controls: &fakeControls{},
	}
	w.jobs = &fakeJobs{t: t, uploads: w.uploads, ends: map[wire.SubmissionID]chan struct{}{}, seen: map[wire.SubmissionID]bool{}}
	if err := os.WriteFile(w.keyFile, []byte("[]"), 0o600); err != nil {
		t.Fatal(err)
	}
	keys, err := OpenKeyring(w.keyFile, nil)
	if err != nil {
		t.Fatal(err)
	}
	c := Config{
		Jobs: w.jobs, Contents: w.store, Controls: w.controls, Files: w.store, Uploader: w.uploads, Keys: keys, Roster: fakeRoster{},
		URLKey: ed25519.NewKeyFromSeed(bytes.Repeat([]byte{'u'}, ed25519.SeedSize)),
	}
	if c.Log, _, err = serve.NewLogger(w.log, func(string) string { return "" }); err != nil {
		t.Fatal(err)
	}
	for _, f := range change {
		f(&c)
	}
	if w.server, err = New(c); err != nil {
		t.Fatal(err)
	}
	w.listener = newPipeListener()
	w.client = &http.Client{
		Transport:     &http.Transport{DialContext: w.listener.dial, MaxIdleConnsPerHost: 200},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	w.http = w.server.HTTPServer("")
	var serving sync.WaitGroup
	serving.Go(func() {
		if err := w.http.Serve(w.listener); !errors.Is(err, http.ErrServerClosed) {
			t.Errorf("serve: %v", err)
		}
	})
	t.Cleanup(func() {
		w.client.CloseIdleConnections()
		if err := w.http.Shutdown(context.Background()); err != nil {
			t.Errorf("shutdown: %v", err)
		}
		serving.Wait()
		w.checkNothingOpen()
	})
	return w
}

// checkNothingOpen fails the test if a request left something behind.
func (w *world) checkNothingOpen() {
	w.t.Helper()
	if n := w.uploads.open(); n != 0 {
		w.t.Errorf("%d uploads were left open", n)
	}
	if n := w.jobs.waiting(); n != 0 {
		w.t.Errorf("%d waits were left behind", n)
	}
	if n := w.store.open(); n != 0 {
		w.t.Errorf("%d file readers were not closed", n)
	}
	w.server.bounds.mu.Lock()
	defer w.server.bounds.mu.Unlock()
	if n := len(w.server.bounds.loads); n != 0 {
		w.t.Errorf("%d keys still count something as under way", n)
	}
}

// key makes a key and returns its text.
func (w *world) key(tenant wire.TenantID, scopes ...Scope) string {
	w.t.Helper()
	text, _, err := CreateKey(w.keyFile, KeySpec{TenantID: tenant, Scopes: scopes})
	if err != nil {
		w.t.Fatal(err)
	}
	w.reloadKeys()
	return text
}

// reloadKeys makes the server see the key file now.
func (w *world) reloadKeys() {
	w.t.Helper()
	ring := w.server.Keys.(*Keyring)
	ring.checked.Store(0)
	if err := ring.Ready(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
}

// allKey makes a key that may do everything.
func (w *world) allKey(tenant wire.TenantID) string { return w.key(tenant, Scopes()...) }

// request builds a request; headers are pairs.
func (w *world) request(method, path, body string, headers ...string) *http.Request {
	w.t.Helper()
	var in io.Reader
	if body != "" {
		in = strings.NewReader(body)
	}
	r, err := http.NewRequestWithContext(w.t.Context(), method, "http://edge"+path, in)
	if err != nil {
		w.t.Fatal(err)
	}
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	return r
}

// answered is an answer that was read to its end.
type answered struct {
	*http.Response
	body []byte
}

// do sends a request and reads the answer.
func (w *world) do(r *http.Request) answered {
	w.t.Helper()
	res, err := w.client.Do(r)
	if err != nil {
		w.t.Fatalf("%s %s: %v", r.Method, r.URL, err)
	}
	a, err := readAll(res)
	if err != nil {
		w.t.Fatalf("%s %s: read the answer: %v", r.Method, r.URL, err)
	}
	return a
}

// readAll reads an answer; the error says that it was cut.
func readAll(res *http.Response) (answered, error) {
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	return answered{res, body}, err
}

// problem reads the answer as a problem, and checks what all problems promise.
func (a answered) problem(t *testing.T) Problem {
	t.Helper()
	if got := a.Header.Get("Content-Type"); got != typeProblem {
		t.Fatalf("status %d, Content-Type %q: not a problem: %s", a.StatusCode, got, a.body)
	}
	p, err := wire.Decode[Problem](a.body)
	if err != nil {
		t.Fatalf("problem: %v: %s", err, a.body)
	}
	if p.Status != a.StatusCode || p.Title != http.StatusText(p.Status) || p.Type != "about:blank" {
		t.Errorf("problem does not fit its answer, status %d: %s", a.StatusCode, a.body)
	}
	if p.Code == "" || p.Detail == "" || p.RequestID == "" || p.RequestID != a.Header.Get("X-Request-Id") {
		t.Errorf("problem lacks a code, a detail or the request's id: %s", a.body)
	}
	if got := a.Header.Get("Cache-Control"); got != "no-store" {
		t.Errorf("problem with Cache-Control %q", got)
	}
	for _, name := range []string{"ETag", "Content-Disposition", "Location", "Preference-Applied", "Repr-Digest"} {
		if got := a.Header.Get(name); got != "" {
			t.Errorf("problem with %s: %s", name, got)
		}
	}
	if (p.Status == 429 || p.Status == 503) != (a.Header.Get("Retry-After") != "") {
		t.Errorf("status %d with Retry-After %q", p.Status, a.Header.Get("Retry-After"))
	}
	if (p.Status == 401 || p.Status == 403) != (a.Header.Get("WWW-Authenticate") != "") {
		t.Errorf("status %d with WWW-Authenticate %q", p.Status, a.Header.Get("WWW-Authenticate"))
	}
	return p
}

// fakeJobs stands for jobs.Engine. It keeps its laws, and checks that the edge
// keeps its own.
type fakeJobs struct {
	t         *testing.T
	uploads   *fakeUploads
	acceptErr error
	room      error // answer of Room
	jobErr    error
	ended     bool          // submissions end at once
	assemble  time.Duration // how long Job takes for an ended submission

	mu       sync.Mutex
	accepted []acceptance
	seen     map[wire.SubmissionID]bool
	ends     map[wire.SubmissionID]chan struct{}
	waits    int
	views    []jobs.View
	asked    []string // calls of Receipts
}

// acceptance is one call of Accept.
type acceptance struct {
	caller  jobs.Caller
	request *splitter.Request
}

const fakeJobID wire.JobID = "01890a5d-ac96-774b-bcce-b302099a8057"

func (f *fakeJobs) Room() error { return f.room }

func (f *fakeJobs) Accept(ctx context.Context, c jobs.Caller, req *splitter.Request) (wire.Accepted, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, err := wire.ParseSubmissionID(string(c.SubmissionID)); err != nil || f.seen[c.SubmissionID] {
		f.t.Errorf("Accept with the submission id %q, which is no new one: %v", c.SubmissionID, err)
	}
	f.seen[c.SubmissionID] = true
	if f.acceptErr != nil {
		req.Abort()
		return wire.Accepted{}, f.acceptErr
	}
	if err := ctx.Err(); err != nil {
		req.Abort()
		return wire.Accepted{}, err
	}
	for _, file := range req.Files {
		f.uploads.commit(file.UploadID)
	}
	f.accepted = append(f.accepted, acceptance{c, req})
	if req.Unsealed { // it has no job, and nothing to wait for
		return wire.Accepted{SubmissionID: c.SubmissionID, Status: wire.StatusCompleted, SHA256: req.Subject, HashedFrom: req.HashedFrom}, nil
	}
	end := make(chan struct{})
	f.ends[c.SubmissionID] = end
	if f.ended {
		close(end)
	}
	return wire.Accepted{
		JobID: fakeJobID, SubmissionID: c.SubmissionID, Status: wire.StatusPending, SHA256: req.Subject, HashedFrom: req.HashedFrom,
		StatusURL: "/zapier/v1/timestamp/" + string(fakeJobID) + "?submission=" + string(c.SubmissionID), Parts: []wire.AcceptedPart{},
	}, nil
}

func (f *fakeJobs) Wait(ctx context.Context, tenant wire.TenantID, id wire.SubmissionID) (jobs.Ended, error) {
	f.mu.Lock()
	end := f.ends[id]
	f.waits++
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		f.waits--
		f.mu.Unlock()
	}()
	if end == nil {
		return jobs.Ended{}, fault.New(fault.NotFound, "SUBMISSION_NOT_FOUND", "there is no such submission")
	}
	select {
	case <-end:
		return jobs.Ended{}, nil
	default:
	}
	select {
	case <-end:
		return jobs.Ended{}, nil
	case <-ctx.Done():
		return jobs.Ended{}, ctx.Err()
	}
}

func (f *fakeJobs) Job(ctx context.Context, tenant wire.TenantID, id wire.JobID, v jobs.View) (wire.Job, error) {
	f.mu.Lock()
	f.views = append(f.views, v)
	if f.jobErr != nil {
		defer f.mu.Unlock()
		return wire.Job{}, f.jobErr
	}
	j := wire.Job{JobID: id, Status: wire.StatusPending, SubmissionID: v.SubmissionID}
	if v.SubmissionID == "" && len(f.accepted) > 0 {
		j.SubmissionID = f.accepted[len(f.accepted)-1].caller.SubmissionID
	}
	end := f.ends[j.SubmissionID]
	f.mu.Unlock()
	if end == nil {
		return wire.Job{}, fault.New(fault.NotFound, "JOB_NOT_FOUND", "jobId: there is no such job for this key's tenant")
	}
	select {
	case <-end:
		j.Status, j.Complete, j.CompleteReason = wire.StatusCompleted, true, wire.ReasonAll
		j.Receipts = []wire.Receipt{{Kind: wire.ReceiptSeal, Certificate: "c2sp.org/tlog-proof@v1"}}
		j.ArchivesQueried = v.IncludeAttached != nil && *v.IncludeAttached
		select {
		case <-time.After(f.assemble):
		case <-ctx.Done():
			return wire.Job{}, ctx.Err()
		}
	default:
	}
	return j, nil
}

func (f *fakeJobs) Receipts(ctx context.Context, tenant wire.TenantID, d wire.Digest, include bool, kinds []wire.Kind) (wire.Job, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked = append(f.asked, fmt.Sprintf("%s %s include=%t kinds=%q", tenant, d, include, kinds))
	if f.jobErr != nil {
		return wire.Job{}, f.jobErr
	}
	return wire.Job{JobID: fakeJobID, Status: wire.StatusCompleted, SHA256: d, ArchivesQueried: include}, nil
}

// end ends all submissions.
func (f *fakeJobs) end() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.ends {
		close(c)
	}
}

func (f *fakeJobs) waiting() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.waits
}

func (f *fakeJobs) acceptances() []acceptance {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.accepted)
}

// fakeUploads stands for the archives that take files.
type fakeUploads struct {
	t    *testing.T
	err  error         // of OpenUpload
	gate chan struct{} // when not nil, Finish waits for it

	mu   sync.Mutex
	list []*fakeUpload
}

// fakeUpload fails its test when it is used against splitter.Upload's rules.
type fakeUpload struct {
	in    *fakeUploads
	id    string
	state string // open, finished, committed, aborted
	bytes int64
}

func (f *fakeUploads) OpenUpload(_ context.Context, key [32]byte, _ blob.Profile) (splitter.Upload, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err != nil {
		return nil, f.err
	}
	if key == ([32]byte{}) {
		f.t.Error("an upload was opened without a placement key")
	}
	u := &fakeUpload{in: f, id: fmt.Sprintf("upload-%d", len(f.list)), state: "open"}
	f.list = append(f.list, u)
	return u, nil
}

func (u *fakeUpload) ID() string { return u.id }

func (u *fakeUpload) Write(p []byte) (int, error) {
	u.in.mu.Lock()
	defer u.in.mu.Unlock()
	if u.state != "open" {
		u.in.t.Errorf("%s: a write when %s", u.id, u.state)
	}
	u.bytes += int64(len(p))
	return len(p), nil
}

func (u *fakeUpload) Finish(ctx context.Context) ([]wire.ArchiveID, error) {
	if u.in.gate != nil {
		select {
		case <-u.in.gate:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	u.to("open", "finished")
	return []wire.ArchiveID{"archive-a", "archive-b"}, nil
}

func (u *fakeUpload) Abort() {
	u.in.mu.Lock()
	defer u.in.mu.Unlock()
	if u.state == "committed" || u.state == "aborted" {
		u.in.t.Errorf("%s: an abort when %s", u.id, u.state)
	}
	u.state = "aborted"
}

func (u *fakeUpload) to(from, state string) {
	u.in.mu.Lock()
	defer u.in.mu.Unlock()
	if u.state != from {
		u.in.t.Errorf("%s: %s when %s", u.id, state, u.state)
	}
	u.state = state
}

func (f *fakeUploads) commit(id string) {
	f.mu.Lock()
	i := slices.IndexFunc(f.list, func(u *fakeUpload) bool { return u.id == id })
	f.mu.Unlock()
	if i < 0 {
		f.t.Errorf("a commit of %q, which was never opened", id)
		return
	}
	f.list[i].to("finished", "committed")
}

// open counts the uploads that were neither committed nor aborted.
func (f *fakeUploads) open() int { return f.count("open") + f.count("finished") }

func (f *fakeUploads) count(state string) (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, u := range f.list {
		if u.state == state {
			n++
		}
	}
	return n
}

// fakeStore stands for the archives that hold records and files.
type fakeStore struct {
	t          *testing.T
	records    map[wire.RecordID]map[wire.TenantID]jobs.Body
	files      map[wire.RecordID]map[wire.TenantID]jobs.File
	content    map[string][]byte                         // by CID
	blocks     map[string]map[wire.Digest][]byte         // of a file, by CID, beside the one with its own digest
	err        error                                     // of every look-up
	blockAgain func(context.Context) (jobs.Block, error) // of every block
	statErr    error                                     // of every look-up of a block's size
	readErr    error                                     // after half of a file's bytes
	openErr    error                                     // before the first
	tooMuch    bool                                      // one byte more than was asked for

	mu      sync.Mutex
	readers int
}

func (f *fakeStore) Record(_ context.Context, tenant wire.TenantID, id wire.RecordID, sealed bool) (jobs.Body, error) {
	if f.err != nil {
		return jobs.Body{}, f.err
	}
	b, ok := f.records[id][tenant]
	if !ok {
		return jobs.Body{}, fault.New(fault.NotFound, "RECORD_NOT_FOUND", "id: there is no such record for this key's tenant")
	}
	if sealed {
		b.ContentType, b.Bytes = "application/octet-stream", []byte("ciphertext")
		b.SHA256 = sha256.Sum256(b.Bytes)
	}
	return b, nil
}

func (f *fakeStore) File(_ context.Context, tenant wire.TenantID, id wire.RecordID) (jobs.File, error) {
	if f.err != nil {
		return jobs.File{}, f.err
	}
	file, ok := f.files[id][tenant]
	if !ok {
		return jobs.File{}, fault.New(fault.NotFound, "FILE_NOT_FOUND", "id: there is no such file for this key's tenant")
	}
	return file, nil
}

func (f *fakeStore) FileByCID(ctx context.Context, tenant wire.TenantID, cid string, digest wire.Digest) (jobs.File, error) {
	if c, err := blob.ParseCID(cid); err != nil || c.Digest != digest {
		f.t.Errorf("FileByCID of %q, which is not canonical or not of %s: %v", cid, digest, err)
	}
	if f.err != nil {
		return jobs.File{}, f.err
	}
	for _, by := range f.files {
		if file, ok := by[tenant]; ok && file.CID == cid {
			return file, nil
		}
	}
	return jobs.File{}, fault.New(fault.NotFound, "CID_NOT_FOUND", "cid: there is no such file for this key's tenant")
}

func (f *fakeStore) ReadFile(ctx context.Context, ids []wire.ArchiveID, tenant wire.TenantID, cid string, off, length int64) (io.ReadCloser, error) {
	if f.openErr != nil {
		return nil, f.openErr
	}
	content, ok := f.content[cid]
	if !ok || len(ids) == 0 || tenant == "" {
		return nil, fault.New(fault.Transient, "ARCHIVES_MISSING", "no archive could deliver the file").After(1500 * time.Millisecond)
	}
	return f.reader(content, off, length), nil
}

// reader gives what an archive would: the bytes asked for, as far as it has them.
func (f *fakeStore) reader(content []byte, off, length int64) io.ReadCloser {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.readers++
	size := int64(len(content))
	if content = content[min(off, size):min(off+length, size)]; f.tooMuch {
		content = append(bytes.Clone(content), 0)
	}
	in := io.Reader(bytes.NewReader(content))
	if f.readErr != nil {
		in = io.MultiReader(bytes.NewReader(content[:len(content)/2]), failingReader{f.readErr})
	}
	return &fakeFile{in, f, false}
}

func (f *fakeStore) Block(_ context.Context, tenant wire.TenantID, digest wire.Digest) (jobs.Block, error) {
	if f.err != nil {
		return jobs.Block{}, f.err
	}
	for _, by := range f.files {
		if file, ok := by[tenant]; ok && f.blockOf(file, digest) != nil {
			return jobs.Block{ArchiveIDs: file.ArchiveIDs, AllHeard: file.AllHeard, Again: f.blockAgain}, nil
		}
	}
	return jobs.Block{}, fault.New(fault.NotFound, "CID_NOT_FOUND", "cid: there is no such block for this key's tenant")
}

func (f *fakeStore) StatBlock(_ context.Context, ids []wire.ArchiveID, tenant wire.TenantID, digest wire.Digest) (wire.Block, error) {
	if f.statErr != nil {
		return wire.Block{}, f.statErr
	}
	for _, by := range f.files {
		if file, ok := by[tenant]; ok {
			if block := f.blockOf(file, digest); block != nil && len(ids) > 0 {
				return wire.Block{Size: int64(len(block)), Public: file.Public}, nil
			}
		}
	}
	return wire.Block{}, fault.New(fault.NotFound, "NOT_FOUND", "no such file")
}

func (f *fakeStore) ReadBlock(_ context.Context, ids []wire.ArchiveID, tenant wire.TenantID, digest wire.Digest, off, length int64) (io.ReadCloser, error) {
	if f.openErr != nil {
		return nil, f.openErr
	}
	for _, by := range f.files {
		if file, ok := by[tenant]; ok {
			if block := f.blockOf(file, digest); block != nil && len(ids) > 0 {
				return f.reader(block, off, length), nil
			}
		}
	}
	return nil, fault.New(fault.NotFound, "NOT_FOUND", "no such file")
}

// blockOf returns a block of a file, or nil: the whole of it under the digest of
// its CID, or one of those that a test put there.
func (f *fakeStore) blockOf(file jobs.File, digest wire.Digest) []byte {
	if c, err := blob.ParseCID(file.CID); err == nil && c.Digest == digest {
		return append([]byte{}, f.content[file.CID]...)
	}
	return f.blocks[file.CID][digest]
}

func (f *fakeStore) open() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.readers
}

type failingReader struct{ err error }

func (r failingReader) Read([]byte) (int, error) { return 0, r.err }

type fakeFile struct {
	io.Reader
	in     *fakeStore
	closed bool
}

func (f *fakeFile) Close() error {
	f.in.mu.Lock()
	defer f.in.mu.Unlock()
	if !f.closed {
		f.closed = true
		f.in.readers--
	}
	return nil
}

// pipeListener is a network in memory, so that a synctest bubble sees when all
// is idle.
type pipeListener struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func newPipeListener() *pipeListener {
	return &pipeListener{conns: make(chan net.Conn), done: make(chan struct{})}
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error {
	l.once.Do(func() { close(l.done) })
	return nil
}

func (l *pipeListener) Addr() net.Addr { return &net.UnixAddr{Name: "pipe", Net: "pipe"} }

func (l *pipeListener) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	client, server := net.Pipe()
	select {
	case l.conns <- server:
		return client, nil
	case <-l.done:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// logBuffer keeps what was logged.
type logBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// digestOf is the digest of a text.
func digestOf(s string) wire.Digest { return sha256.Sum256([]byte(s)) }
