package archive

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/verae/archive/bloom"
	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/mirror"
	"github.com/verae/archive/wire"
)

const (
	alice wire.TenantID = "alice"
	bob   wire.TenantID = "bob"
	carol wire.TenantID = "carol"
)

// files is what a blob store would know: the blocks of complete files.
type files struct {
	mu     sync.Mutex
	blocks map[[32]byte][][32]byte
	sizes  map[[32]byte]int64
}

func (f *files) add(sha [32]byte, blocks ...[32]byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.blocks == nil {
		f.blocks = make(map[[32]byte][][32]byte)
	}
	f.blocks[sha] = blocks
}

func (f *files) Blocks(_ context.Context, sha [32]byte, cid string) ([][32]byte, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	blocks, ok := f.blocks[sha]
	if !ok {
		return nil, fault.New(fault.NotFound, "NO_FILE", "blob: no file %s", cid)
	}
	return blocks, nil
}

// fileSize is the size of the file of fileRecord, and of every file of which
// nothing else is said.
const fileSize = 3 << 20

func (f *files) Size(_ context.Context, sha [32]byte, _ string) (int64, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if size, ok := f.sizes[sha]; ok {
		return size, nil
	}
	return fileSize, nil
}

func (f *files) Holds(_ context.Context, sha [32]byte) (bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, ok := f.blocks[sha]
	return ok, nil
}

// resize says how large a file is.
func (f *files) resize(sha [32]byte, size int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.sizes == nil {
		f.sizes = make(map[[32]byte]int64)
	}
	f.sizes[sha] = size
}

// testConfig is an archive in memory with a small filter.
func testConfig(fs vfs.FS, id wire.ArchiveID) Config {
	return Config{
		Dir: "data", FS: fs, ID: id, Files: &files{}, Bloom: bloom.Params{Capacity: bloom.MinCapacity},
		CacheSize: 1 << 20, OnFatal: func(reason string) { panic("fatal: " + reason) },
	}
}

func mustInit(t testing.TB, c Config) {
	t.Helper()
	if err := Init(c); err != nil {
		t.Fatalf("init: %v", err)
	}
}

func mustOpen(t testing.TB, c Config) *Node {
	t.Helper()
	n, err := Open(c)
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	<-n.Loaded()
	return n
}

func mustClose(t testing.TB, n *Node) {
	t.Helper()
	if err := n.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
}

// newNode returns an open archive in memory that is closed, and checked, at the
// end of the test.
func newNode(t testing.TB) *Node {
	t.Helper()
	c := testConfig(vfs.NewMem(), "archive-a")
	mustInit(t, c)
	n := mustOpen(t, c)
	t.Cleanup(func() {
		if n.health.damage() == "" {
			if _, err := n.Check(context.Background()); err != nil && fault.CodeOf(err) != "CLOSED" {
				t.Errorf("check at the end: %v", err)
			}
		}
		mustClose(t, n)
	})
	return n
}

func digest(s string) wire.Digest { return sha256.Sum256([]byte(s)) }

// metadata is a record of public metadata about a subject.
func metadata(tenant wire.TenantID, subject wire.Digest, body string) wire.PutRecord {
	return wire.PutRecord{
		Kind: wire.KindMetadata, SHA256: subject, TenantID: tenant, SubmissionID: "018fa2b4-5f03-7cc1-a1b2-0242ac120002",
		AttachedAt: "2025-05-19T12:00:00.000000001Z", ContentType: "application/json", Body: []byte(body),
	}
}

func mustPut(t testing.TB, n *Node, r wire.PutRecord) wire.PutAck {
	t.Helper()
	ack, err := n.Put(t.Context(), wire.Put{PutID: wire.NewPutID(), Record: r})
	if err != nil {
		t.Fatalf("put: %v", err)
	}
	return ack
}

// ask returns the ids of the records that tenant is answered, nil for silence.
func ask(t testing.TB, n *Node, tenant wire.TenantID, d wire.Digest, kinds ...wire.Kind) []wire.RecordID {
	t.Helper()
	reply, ok, err := n.Answer(t.Context(), query(tenant, d, kinds...))
	if err != nil {
		t.Fatalf("answer: %v", err)
	}
	if ok != (len(reply.Records) > 0) {
		t.Fatalf("answered %v with %d records", ok, len(reply.Records))
	}
	var ids []wire.RecordID
	for _, r := range reply.Records {
		ids = append(ids, r.ID)
	}
	return ids
}

func query(tenant wire.TenantID, d wire.Digest, kinds ...wire.Kind) wire.Query {
	return wire.Query{CorrelationID: "c-1", SHA256: d, TenantID: tenant, Kinds: kinds}
}

func TestInitThenOpen(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new", "archive")
	c := Config{Dir: dir, ID: "archive-a", Files: &files{}}
	if _, err := Open(c); !fault.Is(err, fault.NotFound) || !strings.Contains(err.Error(), dir) {
		t.Fatalf("open before init: %v, want NotFound naming %s", err, dir)
	}
	mustInit(t, c)
	if err := Init(c); !fault.Is(err, fault.Conflict) {
		t.Errorf("init twice: %v, want Conflict", err)
	}
	n := mustOpen(t, c)
	if _, err := Open(c); !fault.Is(err, fault.Conflict) || fault.CodeOf(err) != "IN_USE" || !strings.Contains(err.Error(), dir) {
		t.Errorf("open twice: %v, want IN_USE naming %s", err, dir)
	}
	subject := digest("x")
	ack := mustPut(t, n, metadata(alice, subject, `{"a":1}`))
	if ack.ArchiveID != "archive-a" || ack.Generation != 1 || ack.Seq != 1 || ack.Duplicate || ack.Boot == "" {
		t.Errorf("ack %+v", ack)
	}
	hello := n.Hello()
	mustClose(t, n)
	mustClose(t, n) // a second time is harmless

	other := c
	other.ID = "archive-b"
	if _, err := Open(other); !fault.Is(err, fault.Conflict) || fault.CodeOf(err) != "ARCHIVE_ID" {
		t.Errorf("open with another id: %v, want Conflict", err)
	}
	n = mustOpen(t, c)
	defer mustClose(t, n)
	if diff := cmp.Diff([]wire.RecordID{ack.RecordID}, ask(t, n, alice, subject)); diff != "" {
		t.Error(diff)
	}
	again := n.Hello()
	if again.Key != hello.Key || again.Boot == hello.Boot || again.Seq != 1 || again.Records != 1 || !again.Filter.Ready {
		t.Errorf("hello %+v, before the restart %+v", again, hello)
	}
}

func TestInitRefusesAUsedDirectory(t *testing.T) {
	fs := vfs.NewMem()
	c := testConfig(fs, "archive-a")
	if err := fs.MkdirAll("data/lost", 0o700); err != nil {
		t.Fatal(err)
	}
	if err := Init(c); !fault.Is(err, fault.Conflict) || !strings.Contains(err.Error(), "lost") {
		t.Errorf("got %v, want Conflict naming what is there", err)
	}
}

func TestConfigIsChecked(t *testing.T) {
	for _, tc := range []struct {
		change func(*Config)
		want   string
	}{
		{func(c *Config) { c.Dir = "" }, "directory"},
		{func(c *Config) { c.ID = "" }, "id"},
		{func(c *Config) { c.ID = "Archive A" }, "Archive A"},
	} {
		c := testConfig(vfs.NewMem(), "archive-a")
		tc.change(&c)
		for name, open := range map[string]func(Config) error{
			"Init": Init,
			"Open": func(c Config) error { _, err := Open(c); return err },
		} {
			if err := open(c); !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%s: %v, want Invalid naming %q", name, err, tc.want)
			}
		}
	}
}

func TestOpenRefusesAnotherKey(t *testing.T) {
	fs := vfs.NewMem()
	c := testConfig(fs, "archive-a")
	mustInit(t, c)
	c2 := c
	c2.Dir = "data2"
	mustInit(t, c2)
	if err := fs.Rename("data2/key.pem", "data/key.pem"); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(c); !fault.Is(err, fault.Conflict) || fault.CodeOf(err) != "KEY" {
		t.Errorf("with another archive's key: %v", err)
	}
	if err := fs.Remove("data/key.pem"); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(c); err == nil {
		t.Error("without a key: opened")
	}
}

// TestInitThatCrashedOpensNowhere breaks the disk at every write point of Init,
// before and after the point: what is left is whole or it is refused.
func TestInitThatCrashedOpensNowhere(t *testing.T) {
	const most = 400
	for _, persist := range []bool{false, true} {
		at := 0
		for ; at < most; at++ {
			mem := vfs.NewCrashableMem()
			disk := newFaultFS(mem, at, persist)
			c := testConfig(disk, "archive-a")
			c.OnFatal = disk.Fatal
			done := false
			disk.Run(func() { done = Init(c) == nil })
			n, err := Open(testConfig(mem.CrashClone(vfs.CrashCloneCfg{}), "archive-a"))
			if done && err != nil {
				t.Fatalf("write point %d: init succeeded, open: %v", at, err)
			}
			if err == nil {
				mustClose(t, n)
			}
			if done && disk.Ops() <= int64(at) {
				break // there was no fault any more
			}
		}
		if at == 0 || at == most {
			t.Errorf("%d write points", at)
		}
	}
}

func TestStates(t *testing.T) {
	n := newNode(t)
	subject := digest("x")
	id := mustPut(t, n, metadata(alice, subject, `{}`)).RecordID
	for _, tc := range []struct{ set, want, code string }{
		{wire.StateDraining, wire.StateDraining, "DRAINING"},
		{wire.StateReadonly, wire.StateReadonly, "READONLY"},
		{"nonsense", wire.StateReadonly, "READONLY"},
		{wire.StateUp, wire.StateUp, ""},
	} {
		n.SetState(tc.set)
		if got := n.Hello().State; got != tc.want {
			t.Errorf("state %q announced as %q, want %q", tc.set, got, tc.want)
		}
		_, err := n.Put(t.Context(), wire.Put{Record: metadata(alice, subject, `{"n":2}`)})
		if fault.CodeOf(err) != tc.code || err != nil && !fault.Is(err, fault.Transient) {
			t.Errorf("put in state %q: %v, want code %q", tc.set, err, tc.code)
		}
		if got := ask(t, n, alice, subject); len(got) == 0 || got[0] != id {
			t.Errorf("in state %q the answer is %v", tc.set, got)
		}
	}
}

func TestClosedNodeRefusesCalls(t *testing.T) {
	c := testConfig(vfs.NewMem(), "archive-a")
	mustInit(t, c)
	n := mustOpen(t, c)
	subject := digest("x")
	mustPut(t, n, metadata(alice, subject, `{}`))
	mustClose(t, n)
	_, _, err := n.Answer(t.Context(), query(alice, subject))
	_, _, fileErr := n.FileOf(t.Context(), alice, "cid", subject)
	_, checkErr := n.Check(t.Context())
	for i, err := range []error{err, fileErr, checkErr} {
		if fault.CodeOf(err) != "CLOSED" {
			t.Errorf("call %d: %v", i, err)
		}
	}
	if _, err := n.Put(t.Context(), wire.Put{Record: metadata(alice, subject, `{}`)}); !fault.Is(err, fault.Transient) {
		t.Errorf("put: %v", err)
	}
}

func TestMetricsCountSilenceToo(t *testing.T) {
	n := newNode(t)
	subject := digest("x")
	put := wire.Put{PutID: wire.NewPutID(), Record: metadata(alice, subject, `{}`)}
	for range 2 {
		if _, err := n.Put(t.Context(), put); err != nil {
			t.Fatal(err)
		}
	}
	put.Record.Body = []byte(`{"other":1}`)
	if _, err := n.Put(t.Context(), put); !fault.Is(err, fault.Conflict) {
		t.Fatal(err)
	}
	if _, err := n.Put(t.Context(), wire.Put{}); !fault.Is(err, fault.Invalid) {
		t.Fatal(err)
	}
	ask(t, n, alice, subject)
	ask(t, n, bob, subject) // he has nothing there, and the filter views says so
	n.views.set.AddHash(mirror.Pair(n.secret.Key, bob, subject))
	ask(t, n, bob, subject)
	ask(t, n, alice, digest("nothing"))
	n.keys.set.Add(digest("false positive"))
	ask(t, n, alice, digest("false positive"))
	n.views.set.AddHash(mirror.Pair(n.secret.Key, alice, digest("false positive")))
	ask(t, n, alice, digest("false positive"))

	registry := prometheus.NewRegistry()
	for _, c := range n.Metrics() {
		registry.MustRegister(c)
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetName() == "result" {
					got[strings.TrimPrefix(f.GetName(), "verae_archive_")+"/"+l.GetValue()] = m.GetCounter().GetValue()
				}
			}
		}
	}
	want := map[string]float64{
		"queries_total/hit": 1, "queries_total/denied": 1, "queries_total/miss": 3, "queries_total/false_positive": 1, "queries_total/error": 0,
		"puts_total/stored": 1, "puts_total/duplicate": 1, "puts_total/conflict": 1, "puts_total/refused": 1, "puts_total/error": 0,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if s := n.Stats(); s.Seq != 1 || s.State != wire.StateUp || !s.Filters[0].Ready || s.Filters[0].Keys != 3 || s.Filters[1].Name != "views" || s.Created.IsZero() {
		t.Errorf("stats %+v", s)
	}
}

// TestStoredAtRises steps the clock back and lets it stand still.
func TestStoredAtRises(t *testing.T) {
	now := time.Date(2025, 5, 19, 12, 0, 0, 0, time.UTC)
	c := testConfig(vfs.NewMem(), "archive-a")
	c.Now = func() time.Time { return now }
	mustInit(t, c)
	n := mustOpen(t, c)
	subject := digest("x")
	for i, step := range []time.Duration{0, 0, time.Second, -time.Hour, 0} {
		now = now.Add(step)
		if i == 3 { // also across a restart
			mustClose(t, n)
			n = mustOpen(t, c)
		}
		mustPut(t, n, metadata(alice, subject, fmt.Sprintf(`{"n":%d}`, i)))
	}
	reply, _, err := n.Answer(t.Context(), query(alice, subject))
	if err != nil {
		t.Fatal(err)
	}
	var got []wire.Time
	for i, r := range reply.Records {
		got = append(got, r.StoredAt)
		if r.Seq != uint64(i+1) {
			t.Errorf("record %d has seq %d", i, r.Seq)
		}
	}
	want := []wire.Time{
		"2025-05-19T12:00:00.000000000Z", "2025-05-19T12:00:00.000000001Z", "2025-05-19T12:00:01.000000000Z",
		"2025-05-19T12:00:01.000000001Z", "2025-05-19T12:00:01.000000002Z",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	mustClose(t, n)
}

func TestNoSecretIsLogged(t *testing.T) {
	var out bytes.Buffer
	c := testConfig(vfs.NewMem(), "archive-a")
	c.Log = slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug}))
	mustInit(t, c)
	n := mustOpen(t, c)
	mustPut(t, n, metadata(alice, digest("x"), `{"secret":"xyzzy"}`))
	mustClose(t, n)
	if s := out.String(); strings.Contains(s, "xyzzy") || strings.Contains(s, "PRIVATE") || !strings.Contains(s, "archive=archive-a") {
		t.Errorf("log:\n%s", s)
	}
}

// errDisk is what a broken disk says.
var errDisk = errors.New("input/output error")
