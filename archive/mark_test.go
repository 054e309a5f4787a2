package archive

import (
	"bytes"
	"crypto/ed25519"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/internal/pebblex"
	"github.com/verae/archive/internal/tlogx"
	"github.com/verae/archive/wire"
)

func (n *Node) testVerifier(t testing.TB) note.Verifier {
	t.Helper()
	public, ok := n.identity.key.Public().(ed25519.PublicKey)
	if !ok {
		t.Fatal("no public key")
	}
	v, err := tlogx.NewVerifier(n.identity.lineage.current().origin(), public)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func mustCheckpoint(t testing.TB, n *Node, signed string) tlogx.Checkpoint {
	t.Helper()
	c, err := tlogx.OpenCheckpoint([]byte(signed), n.testVerifier(t))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// mustMark stores a record whose acknowledgement has to wait for the mark.
func mustMark(t testing.TB, n *Node, r wire.PutRecord) wire.PutAck {
	t.Helper()
	ack, err := n.Put(t.Context(), wire.Put{PutID: wire.NewPutID(), Record: r, Checkpoint: true})
	if err != nil {
		t.Fatal(err)
	}
	return ack
}

// TestLaw8TheMarkCoversTheLog: what asks for it gets a signed checkpoint that
// covers it, which is on disk, over a tree of the leaves as they are stored, and
// everything that the archive says carries the newest.
func TestLaw8TheMarkCoversTheLog(t *testing.T) {
	n := newNode(t)
	if c := mustCheckpoint(t, n, n.Checkpoint()); c.Size != 0 || c.Origin != "archive-a/g1" {
		t.Errorf("a new archive: %+v", c)
	}
	edge := new(tlogx.Edge)
	for i := range 20 {
		r := metadata(alice, digest(fmt.Sprint(i)), `{}`)
		ack := mustMark(t, n, r)
		f := mustDecode(t, get(t, n.db, logKey(ack.Seq)))
		leaf, err := leafBytes(f)
		if err != nil {
			t.Fatal(err)
		}
		edge.Append(tlog.RecordHash(leaf), func(int64, tlog.Hash) {})
		want := tlogx.Checkpoint{Origin: "archive-a/g1", Size: int64(i + 1), Root: edge.Root()}
		if got := mustCheckpoint(t, n, ack.Checkpoint); got != want {
			t.Fatalf("record %d is acknowledged with %+v, want %+v", i, got, want)
		}
		onDisk, err := pebblex.ReadFile(n.cfg.FS, n.cfg.markPath(), maxMarkFile)
		if err != nil || string(onDisk) != ack.Checkpoint {
			t.Fatalf("the mark on disk is %q, %v", onDisk, err)
		}
		again, err := n.Put(t.Context(), wire.Put{Record: r, Checkpoint: true})
		if err != nil || !again.Duplicate || mustCheckpoint(t, n, again.Checkpoint).Size < int64(again.Seq) {
			t.Fatalf("a duplicate: %+v, %v", again, err)
		}
	}
	reply, _, err := n.Answer(t.Context(), query(alice, digest("7")))
	if err != nil || reply.Checkpoint != n.Checkpoint() || n.Hello().Checkpoint != n.Checkpoint() {
		t.Errorf("%v; reply %q, hello %q", err, reply.Checkpoint, n.Hello().Checkpoint)
	}
	if ack := mustPut(t, n, metadata(alice, digest("x"), `{}`)); mustCheckpoint(t, n, ack.Checkpoint).Size < 20 {
		t.Errorf("a put that does not ask: %+v", ack)
	}
}

// TestProofsVerify checks every proof of a small log with the verifiers that
// others have.
func TestProofsVerify(t *testing.T) {
	n := newNode(t)
	const records = 23
	var checkpoints []tlogx.Checkpoint
	for i := range records {
		ack := mustMark(t, n, metadata(alice, digest(fmt.Sprint(i)), `{}`))
		checkpoints = append(checkpoints, mustCheckpoint(t, n, ack.Checkpoint))
	}
	newest := checkpoints[records-1]
	for _, old := range checkpoints {
		p, err := n.Proof(uint64(old.Size))
		if err != nil || p.Checkpoint != n.Checkpoint() {
			t.Fatal(err)
		}
		if err := tlogx.CheckConsistency(old, newest, p.Proof); err != nil {
			t.Error(err)
		}
		for _, later := range checkpoints[old.Size-1:] {
			hashes, err := n.Consistency(old.Size, later.Size)
			if err != nil {
				t.Fatal(err)
			}
			if later.Size > old.Size && tlog.CheckTree(hashes, later.Size, later.Root, old.Size, old.Root) != nil {
				t.Errorf("from %d to %d", old.Size, later.Size)
			}
		}
	}
	for seq := range uint64(records) {
		p, err := n.Inclusion(seq + 1)
		if err != nil {
			t.Fatal(err)
		}
		if c, err := p.Verify(p.Extra, n.testVerifier(t)); err != nil || c != newest {
			t.Errorf("seq %d: %+v, %v", seq+1, c, err)
		}
		leaf, err := leafBytes(mustDecode(t, get(t, n.db, logKey(seq+1))))
		if err != nil || !bytes.Equal(leaf, p.Extra) {
			t.Errorf("seq %d: leaf %x, %v", seq+1, p.Extra, err)
		}
	}
	for name, err := range map[string]error{
		"seq 0":          second(n.Inclusion(0)),
		"beyond":         second(n.Inclusion(records + 1)),
		"size beyond":    second(n.Proof(records + 1)),
		"back":           second(n.Consistency(2, 1)),
		"negative":       second(n.Consistency(-1, 1)),
		"to a size that": second(n.Consistency(1, records+1)),
	} {
		if !fault.Is(err, fault.NotFound) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func second[T any](_ T, err error) error { return err }

// marked returns the file system of an archive of some records that was closed,
// and the records.
func marked(t testing.TB, count int) (*vfs.MemFS, []wire.PutRecord) {
	t.Helper()
	fs := vfs.NewMem()
	c := testConfig(fs, "archive-a")
	mustInit(t, c)
	n := mustOpen(t, c)
	var records []wire.PutRecord
	for i := range count {
		records = append(records, metadata(alice, digest(fmt.Sprint(i)), `{}`))
		mustPut(t, n, records[i])
	}
	mustClose(t, n)
	return fs, records
}

// clone copies a directory to where there is nothing.
func clone(t testing.TB, from *vfs.MemFS, dir string, to *vfs.MemFS, toDir string) {
	t.Helper()
	if ok, err := vfs.Clone(from, to, dir, toDir, vfs.CloneSync); err != nil || !ok {
		t.Fatalf("clone %s: %v, %v", dir, ok, err)
	}
}

func copyOf(t testing.TB, fs *vfs.MemFS) *vfs.MemFS {
	t.Helper()
	to := vfs.NewMem()
	clone(t, fs, "data", to, "data")
	return to
}

func write(t testing.TB, fs vfs.FS, path string, data []byte) {
	t.Helper()
	if err := pebblex.WriteFile(fs, path, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

func read(t testing.TB, fs vfs.FS, path string) []byte {
	t.Helper()
	data, err := pebblex.ReadFile(fs, path, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// TestLaw8RolledBackStoreIsRefused puts older copies back in all ways.
func TestLaw8RolledBackStoreIsRefused(t *testing.T) {
	now, records := marked(t, 5)
	c := testConfig(now, "archive-a")
	old := copyOf(t, now)
	n := mustOpen(t, c)
	var newer []wire.PutRecord
	for i := range 3 {
		newer = append(newer, metadata(alice, digest(fmt.Sprint("newer ", i)), `{}`))
		mustPut(t, n, newer[i])
	}
	mustClose(t, n)
	markPath, leavesPath, storeDir := c.markPath(), c.skeletonPath(), c.storeDir()

	// onward returns the old copy with other records written on top.
	onward := func(count int) *vfs.MemFS {
		fs := copyOf(t, old)
		n := mustOpen(t, testConfig(fs, "archive-a"))
		for i := range count {
			mustPut(t, n, metadata(alice, digest(fmt.Sprint("other ", i)), `{}`))
		}
		mustClose(t, n)
		return fs
	}
	for name, tc := range map[string]struct {
		build func(fs *vfs.MemFS) *vfs.MemFS // fs is the old copy
		code  string
		says  []string
	}{
		"the store alone": {func(*vfs.MemFS) *vfs.MemFS {
			to := vfs.NewMem()
			clone(t, now, "data", to, "data")
			if err := to.RemoveAll(storeDir); err != nil {
				t.Fatal(err)
			}
			clone(t, old, storeDir, to, storeDir)
			return to
		}, "LOST_RECORDS", []string{"6 to 8", newer[0].ID().String(), newer[2].ID().String(), "archived repair"}},
		"all but the mark": {func(fs *vfs.MemFS) *vfs.MemFS {
			write(t, fs, markPath, read(t, now, markPath))
			return fs
		}, "LOST_RECORDS", []string{"6 to 8", "archived repair"}},
		"all but the skeleton": {func(fs *vfs.MemFS) *vfs.MemFS {
			write(t, fs, leavesPath, read(t, now, leavesPath))
			return fs
		}, "LOST_RECORDS", []string{"6 to 8", newer[0].ID().String()}},
		"written on, as long": {func(*vfs.MemFS) *vfs.MemFS {
			fs := onward(3)
			write(t, fs, markPath, read(t, now, markPath))
			return fs
		}, "LOG_FORKED", []string{"archived repair"}},
		"written on, longer": {func(*vfs.MemFS) *vfs.MemFS {
			fs := onward(4)
			write(t, fs, markPath, read(t, now, markPath))
			return fs
		}, "LOG_FORKED", nil},
		"written on, shorter": {func(*vfs.MemFS) *vfs.MemFS {
			fs := onward(2)
			write(t, fs, markPath, read(t, now, markPath))
			return fs
		}, "LOST_RECORDS", nil},
		"without the mark": {func(fs *vfs.MemFS) *vfs.MemFS {
			if err := fs.Remove(markPath); err != nil {
				t.Fatal(err)
			}
			return fs
		}, "MARK_MISSING", []string{markPath, "archived repair"}},
		"the mark of another archive": {func(fs *vfs.MemFS) *vfs.MemFS {
			other, _ := marked(t, 5)
			write(t, fs, markPath, read(t, other, markPath))
			return fs
		}, "MARK_BAD", []string{markPath, "archived repair"}},
		"an empty mark": {func(fs *vfs.MemFS) *vfs.MemFS {
			write(t, fs, markPath, nil)
			return fs
		}, "MARK_BAD", nil},
		"a mark too long": {func(fs *vfs.MemFS) *vfs.MemFS {
			write(t, fs, markPath, make([]byte, maxMarkFile+1))
			return fs
		}, "MARK_BAD", nil},
		// Only a peer, or the aggregator, can know that there was more.
		"all of it": {func(fs *vfs.MemFS) *vfs.MemFS { return fs }, "", nil},
	} {
		t.Run(name, func(t *testing.T) {
			n, err := Open(testConfig(tc.build(copyOf(t, old)), "archive-a"))
			if tc.code == "" {
				if err != nil {
					t.Fatal(err)
				}
				<-n.Loaded()
				if h := n.Hello(); h.Seq != uint64(len(records)) || h.State != wire.StateUp || mustCheckpoint(t, n, h.Checkpoint).Size != 5 {
					t.Errorf("%+v", h)
				}
				mustClose(t, n)
				return
			}
			if fault.CodeOf(err) != tc.code || !fault.Is(err, fault.Corrupt) {
				t.Fatalf("%v, want %s", err, tc.code)
			}
			for _, s := range tc.says {
				if !strings.Contains(err.Error(), s) {
					t.Errorf("it does not say %q: %v", s, err)
				}
			}
		})
	}
}

// TestLaw8EveryBitOfTheMark flips and cuts the mark everywhere.
func TestLaw8EveryBitOfTheMark(t *testing.T) {
	fs, _ := marked(t, 3)
	c := testConfig(fs, "archive-a")
	db, err := pebblex.Open(pebblex.Options{Dir: c.storeDir(), FS: fs, OnFatal: c.OnFatal})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { must1(t, db.Close()) }()
	id, err := readIdentity(db, mustDefaults(t, c))
	if err != nil {
		t.Fatal(err)
	}
	good := read(t, fs, c.markPath())
	if m, err := readMark(mustDefaults(t, c), id); err != nil || m.size != 3 || m.seq != 3 {
		t.Fatalf("%+v, %v", m, err)
	}
	refused := func(what string, data []byte) {
		write(t, fs, c.markPath(), data)
		if m, err := readMark(mustDefaults(t, c), id); fault.CodeOf(err) != "MARK_BAD" {
			t.Errorf("%s: %+v, %v", what, m, err)
		}
	}
	for i := range good {
		refused(fmt.Sprint("cut at ", i), good[:i])
		for bit := range 8 {
			data := bytes.Clone(good)
			data[i] ^= 1 << bit
			refused(fmt.Sprint("byte ", i, " bit ", bit), data)
		}
	}
}

func mustDefaults(t testing.TB, c Config) Config {
	t.Helper()
	c, err := c.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestMarkIsBehindAfterACrash: whatever the mark is behind, the log goes on from
// where it is, and the mark and the skeleton catch up.
func TestMarkIsBehindAfterACrash(t *testing.T) {
	fs, _ := marked(t, 4)
	c := testConfig(fs, "archive-a")
	older := map[string][]byte{c.markPath(): read(t, fs, c.markPath()), c.skeletonPath(): read(t, fs, c.skeletonPath())}
	n := mustOpen(t, c)
	for i := range 3 {
		mustPut(t, n, metadata(alice, digest(fmt.Sprint("newer ", i)), `{}`))
	}
	mustClose(t, n)
	want := map[string][]byte{c.markPath(): read(t, fs, c.markPath()), c.skeletonPath(): read(t, fs, c.skeletonPath())}
	for _, behind := range [][]string{{c.markPath()}, {c.skeletonPath()}, {c.markPath(), c.skeletonPath()}} {
		fs := copyOf(t, fs)
		for _, path := range behind {
			write(t, fs, path, older[path])
		}
		c := testConfig(fs, "archive-a")
		n := mustOpen(t, c)
		if n.Seq() != 7 {
			t.Errorf("%v behind: seq %d", behind, n.Seq())
		}
		mustClose(t, n)
		for path, data := range want {
			if !bytes.Equal(read(t, fs, path), data) {
				t.Errorf("%v behind: %s did not catch up", behind, path)
			}
		}
	}
}

// TestClockBehindTheLog opens an archive whose clock was set back.
func TestClockBehindTheLog(t *testing.T) {
	fs, _ := marked(t, 1)
	for _, tc := range []struct {
		back time.Duration
		told bool
	}{{0, false}, {30 * time.Second, false}, {time.Hour, true}} {
		var out bytes.Buffer
		c := testConfig(copyOf(t, fs), "archive-a")
		c.Log = slog.New(slog.NewTextHandler(&out, nil))
		c.Now = func() time.Time { return time.Now().Add(-tc.back) }
		n := mustOpen(t, c)
		if told := strings.Contains(out.String(), "clock is behind"); told != tc.told {
			t.Errorf("%s behind: told %v\n%s", tc.back, told, out.String())
		}
		if behind := n.clockBehind(); tc.back > 0 && (behind <= tc.back-20*time.Second || behind > tc.back) {
			t.Errorf("%s behind: the gauge has %s", tc.back, behind)
		}
		before := n.storedAt.Load()
		ack := mustPut(t, n, metadata(alice, digest("x"), `{}`))
		if f := mustDecode(t, get(t, n.db, logKey(ack.Seq))); f.StoredAt <= before {
			t.Errorf("%s behind: stored at %d after %d", tc.back, f.StoredAt, before)
		}
		mustClose(t, n)
	}
}

// TestGuardRefusesEveryOtherKind gives the committer's guard each operation that
// Pebble has for a batch, under a key that is not there.
func TestGuardRefusesEveryOtherKind(t *testing.T) {
	key := logKey(9)
	for name, add := range map[string]func(b *pebble.Batch) error{
		"delete":           func(b *pebble.Batch) error { return b.Delete(key, nil) },
		"sized delete":     func(b *pebble.Batch) error { return b.DeleteSized(key, 1, nil) },
		"single delete":    func(b *pebble.Batch) error { return b.SingleDelete(key, nil) },
		"range delete":     func(b *pebble.Batch) error { return b.DeleteRange(key, logKey(10), nil) },
		"merge":            func(b *pebble.Batch) error { return b.Merge(key, nil, nil) },
		"range key":        func(b *pebble.Batch) error { return b.RangeKeySet(key, logKey(10), nil, nil, nil) },
		"range key unset":  func(b *pebble.Batch) error { return b.RangeKeyUnset(key, logKey(10), nil, nil) },
		"range key delete": func(b *pebble.Batch) error { return b.RangeKeyDelete(key, logKey(10), nil) },
		"log data, then a key that exists": func(b *pebble.Batch) error {
			if err := b.LogData([]byte("x"), nil); err != nil {
				return err
			}
			return b.Set(logKey(1), nil, nil)
		},
		"an old record":     func(b *pebble.Batch) error { return b.Set(logKey(1), nil, nil) },
		"an old commit":     func(b *pebble.Batch) error { return b.Set(commitKey(1), nil, nil) },
		"an old generation": func(b *pebble.Batch) error { return b.Set(generationKey(1), nil, nil) },
		"an old identity":   func(b *pebble.Batch) error { return b.Set(metaKey(metaArchive), nil, nil) },
		"a key twice":       func(b *pebble.Batch) error { return firstOf(b.Set(key, nil, nil), b.Set(key, nil, nil)) },
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			mustPut(t, n, metadata(alice, digest("x"), `{}`))
			batch := n.db.NewBatch()
			must1(t, batch.Set(logKey(2), []byte("x"), nil))
			must1(t, add(batch))
			it, err := n.db.NewIter(&pebble.IterOptions{UseL6Filters: true})
			must1(t, err)
			if err := n.guard(it, batch, nil); fault.CodeOf(err) != "NOT_APPEND" || n.health.damage() == "" {
				t.Errorf("%v", err)
			}
			must1(t, it.Close())
			must1(t, batch.Close())
		})
	}
}

func firstOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
