package archive

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/internal/need"
	"github.com/verae/archive/internal/pebblex"
	"github.com/verae/archive/internal/tlogx"
	"github.com/verae/archive/wire"
)

// backedUp is an archive of some records, with a backup of it.
type backedUp struct {
	t    testing.TB
	c    Config
	n    *Node
	puts []wire.Put // in the backup
}

func newBackedUp(t testing.TB, fs vfs.FS) *backedUp {
	t.Helper()
	b := &backedUp{t: t, c: testConfig(fs, "archive-a")}
	mustInit(t, b.c)
	b.n = mustOpen(t, b.c)
	t.Cleanup(func() { mustClose(t, b.n) })
	for i := range 12 {
		b.put(i)
	}
	file := fileRecord(alice, digest("subject"))
	b.c.Files.(*files).add(file.File.SHA256, digest("root"))
	b.send(wire.Put{PutID: wire.NewPutID(), Record: file})
	if err := b.backup("backup"); err != nil {
		t.Fatal(err)
	}
	return b
}

func (b *backedUp) put(i int) wire.PutAck {
	b.t.Helper()
	return b.send(wire.Put{PutID: wire.NewPutID(), Record: metadata(alice, digest(fmt.Sprint(i)), fmt.Sprintf(`{"n":%d}`, i))})
}

func (b *backedUp) send(p wire.Put) wire.PutAck {
	b.t.Helper()
	ack, err := b.n.Put(b.t.Context(), p)
	if err != nil {
		b.t.Fatal(err)
	}
	b.puts = append(b.puts, p)
	return ack
}

func (b *backedUp) backup(to string) error {
	w, err := pebblex.NewBackup(b.c.FS, to, "archive", string(b.c.ID), time.Now())
	if err != nil {
		return err
	}
	if err := b.n.Backup(context.Background(), w, "records"); err != nil {
		return err
	}
	_, err = w.Finish(context.Background(), func(dir string) (*pebblex.BackupLog, error) {
		return CheckCopy(context.Background(), inDir(b.c, dir), nil)
	})
	return err
}

func inDir(c Config, dir string) Config {
	c.Dir = c.FS.PathJoin(dir, "records")
	return c
}

// restore restores a backup of an archive; the records are at to/records.
func restore(c Config, from, to string, change func(*RestoreConfig)) (restored Config, out Restored, err error) {
	m, err := pebblex.ReadManifest(c.FS, from, "archive")
	if err != nil {
		return c, out, err
	}
	err = pebblex.Restore(context.Background(), c.FS, from, m, to, func(dir string) error {
		rc := RestoreConfig{Config: inDir(c, dir)}
		if change != nil {
			change(&rc)
		}
		var err error
		out, err = Restore(context.Background(), rc)
		return err
	})
	c = inDir(c, to)
	c.Lease = time.Nanosecond
	return c, out, err
}

// hears returns what a peer that has heard the archive now remembers of it.
func hears(n *Node) wire.Remembered {
	h := n.Hello()
	return wire.Remembered{By: "archive-b", ArchiveID: h.ArchiveID, Key: h.Key, Generation: h.Generation, Seq: h.Seq, Checkpoint: h.Checkpoint}
}

// holds fails unless an archive has the puts and is whole.
func holds(t testing.TB, n *Node, puts []wire.Put) {
	t.Helper()
	for _, p := range puts {
		got, err := n.Portable(t.Context(), p.Record.ID())
		if err != nil || got.ID() != p.Record.ID() {
			t.Errorf("record %s: %v", p.Record.ID(), err)
		}
		ack, err := n.Put(t.Context(), p)
		if err != nil || !ack.Duplicate {
			t.Errorf("a put repeated: %+v, %v", ack, err)
		}
	}
	if _, err := n.Check(t.Context()); err != nil {
		t.Errorf("check: %v", err)
	}
}

// A restored archive is a new generation with a new key. It has what was
// acknowledged before the backup, although puts went on, and begins behind all
// that anybody remembers.
func TestRestoredArchiveIsANewGeneration(t *testing.T) {
	b := newBackedUp(t, vfs.NewMem())
	kept := len(b.puts)
	for i := range 7 {
		b.put(100 + i)
	}
	heard := hears(b.n)
	if heard.Seq != uint64(kept+7) {
		t.Fatalf("heard of seq %d", heard.Seq)
	}
	later := b.puts[kept:]
	c, out, err := restore(b.c, "backup", "new", func(c *RestoreConfig) { c.Remembered = []wire.Remembered{heard} })
	if err != nil {
		t.Fatal(err)
	}
	if want := (Restored{Generation: 2, Kept: uint64(kept), Remembered: heard.Seq, FirstSeq: heard.Seq + 2, Records: uint64(kept)}); out != want {
		t.Errorf("restored %+v, want %+v", out, want)
	}
	n := mustOpen(t, c)
	defer mustClose(t, n)
	hello := n.Hello()
	if hello.Generation != 2 || hello.Key == b.n.Hello().Key || hello.Seq != heard.Seq+1 || hello.Records != uint64(kept) {
		t.Errorf("hello: %+v", hello)
	}
	holds(t, n, b.puts[:kept])
	for i, p := range later { // as peers bring them back
		ack, err := n.Put(t.Context(), p)
		if err != nil || ack.Duplicate || ack.Seq != out.FirstSeq+uint64(i) || ack.Generation != 2 {
			t.Errorf("put %d: %+v, %v", i, ack, err)
		}
	}
	holds(t, n, b.puts)
	commitsTo(t, n, heard.Checkpoint)
}

// commitsTo fails unless the first leaf under the newest checkpoint of an archive
// is one that holds a note.
func commitsTo(t testing.TB, n *Node, note string) {
	t.Helper()
	g := n.identity.lineage.current()
	if g.Remembered != note {
		t.Errorf("the genesis remembers %q, not %q", g.Remembered, note)
	}
	ack, err := n.Put(t.Context(), wire.Put{PutID: wire.NewPutID(), Checkpoint: true, Record: metadata(bob, digest("last"), `{}`)})
	if err != nil {
		t.Fatal(err)
	}
	verifier, err := tlogx.NewVerifier(g.origin(), g.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	if p, err := tlogx.OpenCheckpoint([]byte(ack.Checkpoint), verifier); err != nil || p.Origin != "archive-a/g2" || uint64(p.Size) != ack.Seq-g.base()+1 {
		t.Errorf("checkpoint %+v, %v", p, err)
	}
}

// The backup holds nothing that could sign.
func TestBackupHasNoKey(t *testing.T) {
	b := newBackedUp(t, vfs.NewMem())
	key, err := pebblex.ReadFile(b.c.FS, b.c.keyPath(), maxKeyFile)
	if err != nil {
		t.Fatal(err)
	}
	m, err := pebblex.ReadManifest(b.c.FS, "backup", "archive")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range m.Files {
		data, err := pebblex.ReadFile(b.c.FS, "backup/"+f.Path, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(data, key[30:60]) {
			t.Errorf("%s has the key", f.Path)
		}
	}
	if m.Log.Origin != "archive-a/g1" || m.Log.Seq != uint64(len(b.puts)) || m.Log.Size != int64(len(b.puts)) || m.Log.Checkpoint == "" {
		t.Errorf("log: %+v", m.Log)
	}
}

// Puts go on while a backup is made, and every one that was acknowledged before
// is in it.
func TestBackupUnderLoadHoldsWhatWasAcknowledged(t *testing.T) {
	b := newBackedUp(t, vfs.NewMem())
	ctx, stop := context.WithCancel(t.Context())
	var load sync.WaitGroup
	for w := range 4 {
		load.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				if _, err := b.n.Put(ctx, numbered(w, i)); err != nil && ctx.Err() == nil {
					t.Error(err)
				}
			}
		})
	}
	for i := range 40 {
		b.put(1000 + i)
	}
	before := len(b.puts)
	err := b.backup("second")
	stop()
	load.Wait()
	if err != nil {
		t.Fatal(err)
	}
	c, out, err := restore(b.c, "second", "new", nil)
	if err != nil {
		t.Fatal(err)
	}
	if out.Records < uint64(before) {
		t.Errorf("restored %+v", out)
	}
	n := mustOpen(t, c)
	defer mustClose(t, n)
	holds(t, n, b.puts[:before])
}

// Numbers are never used again, whoever remembers what, and in however many
// generations.
func TestSequenceNumbersAreNeverUsedAgain(t *testing.T) {
	b := newBackedUp(t, vfs.NewMem())
	own := uint64(len(b.puts))
	other := base64.StdEncoding.EncodeToString(make([]byte, 32))
	for name, c := range map[string]struct {
		heard           []wire.Remembered
		seq             uint64
		generation      int
		remembers, from uint64
	}{
		"nobody":           {nil, 0, 2, own, own + 2},
		"the operator":     {nil, 99, 2, 99, 101},
		"less":             {[]wire.Remembered{{Seq: 3, Generation: 1}}, 0, 2, own, own + 2},
		"two peers":        {[]wire.Remembered{{Seq: 40, Generation: 1}, {Seq: 44, Generation: 1}}, 0, 2, 44, 46},
		"a later one":      {[]wire.Remembered{{Seq: 40, Generation: 3, Key: other, Checkpoint: "no note"}}, 0, 4, 40, 42},
		"another archive":  {[]wire.Remembered{{ArchiveID: "archive-z", Seq: 40, Generation: 7}}, 0, 2, own, own + 2},
		"beyond all reach": {[]wire.Remembered{{Seq: 1 << 60, Generation: 2}}, 0, 2, own, own + 2},
		"the last of all":  {[]wire.Remembered{{Seq: 40, Generation: math.MaxInt32}, {Seq: 40, Generation: math.MaxInt}}, 0, 2, own, own + 2},
	} {
		for i := range c.heard {
			c.heard[i].By = "archive-b"
			if c.heard[i].ArchiveID == "" {
				c.heard[i].ArchiveID = "archive-a"
			}
		}
		to := "new " + name
		restored, out, err := restore(b.c, "backup", to, func(rc *RestoreConfig) { rc.Remembered, rc.Seq = c.heard, c.seq })
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if out.Generation != c.generation || out.Remembered != c.remembers || out.FirstSeq != c.from {
			t.Errorf("%s: %+v", name, out)
		}
		n := mustOpen(t, restored)
		ack := mustPut(t, n, metadata(alice, digest("new"), `{}`))
		if ack.Seq != c.from {
			t.Errorf("%s: the first record got seq %d", name, ack.Seq)
		}
		mustClose(t, n)
	}
}

// A backup of a restored archive is restored too: every generation is in it.
func TestRestoreOfARestoredArchive(t *testing.T) {
	b := newBackedUp(t, vfs.NewMem())
	all := b.puts
	seq := uint64(0)
	for round := range 3 {
		to := fmt.Sprint("round", round)
		c, out, err := restore(b.c, "backup", to, nil)
		if err != nil {
			t.Fatal(err)
		}
		if out.Generation != 2+round || out.FirstSeq <= seq {
			t.Errorf("round %d: %+v, after seq %d", round, out, seq)
		}
		n := mustOpen(t, c)
		next := &backedUp{t: t, c: c, n: n, puts: all}
		for i := range round * 3 { // in the first round none
			seq = next.put(1000*(round+1) + i).Seq
		}
		all = next.puts
		holds(t, n, all)
		if err := b.c.FS.RemoveAll("backup"); err != nil {
			t.Fatal(err)
		}
		if err := next.backup("backup"); err != nil {
			t.Fatal(err)
		}
		mustClose(t, n)
	}
}

// Two archives restored from one backup have one number and two keys: the roster
// decides which is accepted.
func TestTwoRestoresOfOneBackupHaveTwoKeys(t *testing.T) {
	b := newBackedUp(t, vfs.NewMem())
	var hellos []wire.Hello
	for _, to := range []string{"first", "second"} {
		c, _, err := restore(b.c, "backup", to, nil)
		if err != nil {
			t.Fatal(err)
		}
		n := mustOpen(t, c)
		hellos = append(hellos, n.Hello())
		mustClose(t, n)
	}
	if hellos[0].Generation != hellos[1].Generation || hellos[0].Key == hellos[1].Key {
		t.Errorf("%+v", hellos)
	}
	// A third, when a peer has heard the others, is after both.
	heard := wire.Remembered{By: "archive-b", ArchiveID: "archive-a", Key: hellos[0].Key, Generation: hellos[0].Generation, Seq: hellos[0].Seq, Checkpoint: hellos[0].Checkpoint}
	c, out, err := restore(b.c, "backup", "third", func(c *RestoreConfig) { c.Remembered = []wire.Remembered{heard} })
	if err != nil || out.Generation != 3 {
		t.Fatalf("%+v, %v", out, err)
	}
	n := mustOpen(t, c)
	defer mustClose(t, n)
	if g := n.identity.lineage.current(); g.Remembered != heard.Checkpoint {
		t.Errorf("the genesis remembers %q", g.Remembered)
	}
}

// A backup that does not contain what its archive has signed is of another
// history.
func TestBackupOfAnotherHistoryIsRefused(t *testing.T) {
	b := newBackedUp(t, vfs.NewMem())
	heard := hears(b.n)
	forged, err := tlogx.Checkpoint{Origin: "archive-a/g1", Size: 5, Root: [32]byte{1}}.Sign(b.n.identity.signer)
	if err != nil {
		t.Fatal(err)
	}
	heard.Checkpoint = string(forged)
	_, _, err = restore(b.c, "backup", "new", func(c *RestoreConfig) { c.Remembered = []wire.Remembered{heard} })
	if fault.CodeOf(err) != "LOG_FORKED" || !fault.Is(err, fault.Corrupt) {
		t.Errorf("restore: %v", err)
	}
	if _, err := b.c.FS.Stat("new"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("something was restored: %v", err)
	}
	// What it did not sign proves nothing.
	heard.Checkpoint = strings.Replace(heard.Checkpoint, "\n5\n", "\n6\n", 1)
	if _, _, err = restore(b.c, "backup", "new", func(c *RestoreConfig) { c.Remembered = []wire.Remembered{heard} }); err != nil {
		t.Errorf("restore beside a forged note: %v", err)
	}
}

// Every file of a backup is damaged in turn, and every backup refused.
func TestDamagedBackupOfAnArchiveIsRefused(t *testing.T) {
	b := newBackedUp(t, vfs.NewMem())
	m, err := pebblex.ReadManifest(b.c.FS, "backup", "archive")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range m.Files {
		path := "backup/" + f.Path
		good, err := pebblex.ReadFile(b.c.FS, path, 1<<24)
		if err != nil {
			t.Fatal(err)
		}
		bad := append(bytes.Clone(good), 0)
		if len(good) > 0 {
			bad = bytes.Clone(good)
			bad[len(bad)/2] ^= 4
		}
		for _, data := range [][]byte{bad, good[:len(good)/2]} {
			if bytes.Equal(data, good) {
				continue
			}
			if err := pebblex.WriteFile(b.c.FS, path, data, 0o600); err != nil {
				t.Fatal(err)
			}
			if _, _, err := restore(b.c, "backup", "new", nil); !fault.Is(err, fault.Corrupt) {
				t.Errorf("%s: %v", f.Path, err)
			}
		}
		if err := pebblex.WriteFile(b.c.FS, path, good, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, _, err := restore(b.c, "backup", "new", nil); err != nil {
		t.Error(err)
	}
}

// A copy that is damaged is never called good, whatever its manifest would say.
func TestDamagedCopyIsNoBackup(t *testing.T) {
	b := newBackedUp(t, vfs.NewMem())
	m, err := pebblex.ReadManifest(b.c.FS, "backup", "archive")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range m.Files {
		if !strings.HasSuffix(f.Path, ".sst") && !strings.HasSuffix(f.Path, ".log") && !strings.Contains(f.Path, "MANIFEST") && !strings.HasSuffix(f.Path, "highwater") || f.Size == 0 {
			continue
		}
		if ok, err := vfs.Clone(b.c.FS, b.c.FS, "backup", "copy"); err != nil || !ok {
			t.Fatal(ok, err)
		}
		data, err := pebblex.ReadFile(b.c.FS, "copy/"+f.Path, 1<<24)
		if err != nil {
			t.Fatal(err)
		}
		data[len(data)/3] ^= 1
		if err := pebblex.WriteFile(b.c.FS, "copy/"+f.Path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		if end, err := CheckCopy(t.Context(), inDir(b.c, "copy"), nil); err == nil && end.Seq != uint64(len(b.puts)) {
			t.Errorf("%s: %+v", f.Path, end)
		}
		if err := b.c.FS.RemoveAll("copy"); err != nil {
			t.Fatal(err)
		}
	}
}

// A crash before any operation of a restore leaves nothing, or an archive.
func TestRestoreOfAnArchiveCutShortLeavesNothingOrAll(t *testing.T) {
	mem := vfs.NewCrashableMem()
	b := newBackedUp(t, mem)
	step, points := need.Rounds(11, 1), 0
	for _, keep := range []int{0, 50} {
		for n := 1 + keep/50; ; n += step {
			disk := mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rand.New(rand.NewPCG(1, 1))})
			var crashed *vfs.MemFS
			var mu sync.Mutex
			left := n
			c := b.c
			c.FS = errorfs.Wrap(disk, errorfs.InjectorFunc(func(op errorfs.Op) error {
				mu.Lock()
				defer mu.Unlock()
				if op.Kind.ReadOrWrite() == errorfs.OpIsWrite {
					if left--; left == 0 {
						crashed = disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: keep, RNG: rand.New(rand.NewPCG(uint64(n), uint64(keep)))})
					}
				}
				return nil
			}))
			if _, _, err := restore(c, "backup", "new", nil); err != nil {
				t.Fatal(err)
			}
			if crashed == nil {
				break
			}
			points++
			c.FS = crashed
			if names, err := crashed.List("new"); err != nil || len(names) == 0 {
				if _, _, err := restore(c, "backup", "new", nil); err != nil {
					t.Fatalf("operation %d, %d %% kept: the next try: %v", n, keep, err)
				}
			}
			restored := inDir(c, "new")
			restored.Lease = time.Nanosecond
			node := mustOpen(t, restored)
			holds(t, node, b.puts)
			mustClose(t, node)
		}
	}
	if t.Logf("%d points", points); points < 10 {
		t.Error("too few points")
	}
}

// Every operation of a restore on the archive's own files fails once: the restore
// says so, leaves nothing at the place, and the next one works.
func TestRestoreOfAnArchiveThatFailedLeavesNothing(t *testing.T) {
	mem := vfs.NewMem()
	b := newBackedUp(t, mem)
	step, points := need.Rounds(5, 1), 0
	for n := 1; ; n += step {
		c, left := b.c, n
		c.FS = errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
			if op.Kind.ReadOrWrite() != errorfs.OpIsWrite || op.Kind == errorfs.OpFileClose || strings.Contains(op.Path, "records/records") || strings.Contains(op.Path, "copied/records") ||
				strings.Contains(op.Path, "filter") {
				return nil // what a store does about its disk is shown elsewhere; the filter is built without its files
			}
			if left--; left == 0 {
				return errorfs.ErrInjected
			}
			return nil
		}))
		_, _, err := restore(c, "backup", "new", nil)
		if left > 0 {
			break
		}
		points++
		if _, stored := mem.Stat(inDir(c, "new").Dir + "/filters/keys" + "/snapshot"); err == nil && stored != nil {
			// The name of the filter or of its key was not durable: it was not stored.
			wholeIn(t, inDir(b.c, "new"), b.puts)
		} else if _, there := mem.Stat("new"); err == nil || there == nil && left == 0 && !errors.Is(err, errorfs.ErrInjected) {
			t.Fatalf("operation %d failed: %v, %v", n, err, there)
		} else if there == nil { // the last one: the name was given, and may not be durable
			wholeIn(t, inDir(b.c, "new"), b.puts)
		}
		if err := errors.Join(mem.RemoveAll("new"), mem.RemoveAll("new.incomplete")); err != nil {
			t.Fatal(err)
		}
		if _, _, err := restore(b.c, "backup", "new", nil); err != nil {
			t.Fatalf("operation %d failed, the next try: %v", n, err)
		}
		if err := mem.RemoveAll("new"); err != nil {
			t.Fatal(err)
		}
	}
	if t.Logf("%d points", points); points < 5 {
		t.Error("too few points")
	}
}

// wholeIn is holds of an archive that is not open.
func wholeIn(t testing.TB, c Config, puts []wire.Put) {
	t.Helper()
	c.Lease = time.Nanosecond
	n := mustOpen(t, c)
	holds(t, n, puts)
	mustClose(t, n)
}

// A restored archive takes no records for a lease after its first start, answers
// all the same, and observes that once.
func TestRestoredArchiveObservesGrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBackedUp(t, vfs.NewMem())
		c, _, err := restore(b.c, "backup", "new", nil)
		if err != nil {
			t.Fatal(err)
		}
		c.Lease = 2 * time.Second
		n := mustOpen(t, c)
		put := wire.Put{PutID: wire.NewPutID(), Record: metadata(bob, digest("new"), `{}`)}
		_, err = n.Put(t.Context(), put)
		if !fault.Is(err, fault.Transient) || fault.CodeOf(err) != "GRACE" || fault.RetryAfter(err) <= 0 {
			t.Errorf("a put at once: %v", err)
		}
		if state, reason := n.Hello().State, n.Hello().Reason; state != wire.StateReadonly || reason != "GRACE" {
			t.Errorf("it says %s, %s", state, reason)
		}
		if ack, err := n.Put(t.Context(), b.puts[0]); err != nil || !ack.Duplicate {
			t.Errorf("a duplicate: %+v, %v", ack, err)
		}
		if got := ask(t, n, alice, b.puts[0].Record.SHA256); len(got) != 1 {
			t.Errorf("answered %v", got)
		}
		time.Sleep(c.Lease)
		synctest.Wait()
		if _, err := n.Put(t.Context(), put); err != nil {
			t.Errorf("a put after the lease: %v", err)
		}
		mustClose(t, n)
		n = mustOpen(t, c)
		mustPut(t, n, metadata(bob, digest("newer"), `{}`))
		mustClose(t, n)
	})
}

// One that was closed in order before the lease was over has nobody left to wait
// for; one that was killed waits again.
func TestGraceEndsWithACleanStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := vfs.NewCrashableMem()
		b := newBackedUp(t, mem)
		c, _, err := restore(b.c, "backup", "new", nil)
		if err != nil {
			t.Fatal(err)
		}
		c.Lease = 2 * time.Second
		n := mustOpen(t, c)
		killed := c
		killed.FS = mem.CrashClone(vfs.CrashCloneCfg{})
		mustClose(t, n)
		n = mustOpen(t, c)
		mustPut(t, n, metadata(bob, digest("new"), `{}`))
		mustClose(t, n)
		n = mustOpen(t, killed)
		if _, err := n.Put(t.Context(), wire.Put{PutID: wire.NewPutID(), Record: metadata(bob, digest("new"), `{}`)}); fault.CodeOf(err) != "GRACE" {
			t.Errorf("after a kill: %v", err)
		}
		mustClose(t, n)
	})
}
