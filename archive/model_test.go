package archive

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"flag"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"pgregory.net/rapid"

	"github.com/verae/archive/blob"
	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/internal/need"
	"github.com/verae/archive/internal/pebblex"
	"github.com/verae/archive/wire"
)

// TestArchiveIsAMap drives an archive through everything that can happen to it,
// in any order, beside a plain map of what it has acknowledged: puts, repeated
// and contradicting ones, queries, crashes, restarts, backups, restores, damage
// to any file, and repairs with the help of another archive that has all.
func TestArchiveIsAMap(t *testing.T) {
	must1(t, flag.Set("rapid.checks", strconv.Itoa(need.Rounds(12, 2000)))) // nothing else here uses it
	must1(t, flag.Set("rapid.nofailfile", "true"))                          // the seed is enough
	total := map[string]int{}
	rapid.Check(t, func(rt *rapid.T) {
		m := newModel(t, rt, total)
		defer func() { m.close() }()
		rt.Repeat(map[string]func(*rapid.T){
			"":          m.holds,
			"put":       m.put,
			"put more":  m.put,
			"duplicate": m.duplicate,
			"conflict":  m.conflict,
			"crash":     m.crash,
			"reopen":    m.reopen,
			"backup":    m.backup,
			"restore":   m.restore,
			"corrupt":   m.corrupt,
			"repair":    m.repairWhole,
		})
	})
	t.Log(total)
	if testing.Short() {
		return // a few runs need not have everything in them
	}
	for _, step := range []string{"put", "duplicate", "conflict", "crash", "reopen", "backup", "restore", "repaired", "whole"} {
		if total[step] == 0 {
			t.Errorf("no %s in any run", step)
		}
	}
}

// stored is what a client knows of a record.
type stored struct {
	put wire.Put
	seq uint64
}

// model is an archive with what must be true of it.
type model struct {
	t     testing.TB
	rt    *rapid.T
	total map[string]int
	c     Config
	n     *Node // nil while it is closed

	has     map[wire.RecordID]stored // acknowledged, and not lost by going back to a backup
	every   elsewhere                // acknowledged ever: what the other archive has
	highest uint64                   // sequence number ever given out
	backups []savedState
	count   int // makes names and bodies different
}

type savedState struct {
	path string
	has  map[wire.RecordID]stored
}

func newModel(t testing.TB, rt *rapid.T, total map[string]int) *model {
	m := &model{t: t, rt: rt, total: total, c: testConfig(vfs.NewCrashableMem(), "archive-a"), has: map[wire.RecordID]stored{}}
	m.every.records = map[wire.RecordID]wire.PutRecord{}
	m.ok(Init(m.c))
	m.open()
	return m
}

func (m *model) ok(err error) {
	m.rt.Helper()
	if err != nil {
		m.rt.Fatal(err)
	}
}

func (m *model) open() {
	m.rt.Helper()
	n, err := Open(m.c)
	m.ok(err)
	<-n.Loaded()
	m.n = n
}

// close closes the archive if it is open, as a stop does.
func (m *model) close() {
	m.rt.Helper()
	if m.n != nil {
		m.every.heard = hears(m.n)
		m.ok(m.n.Close())
		m.n = nil
	}
}

func (m *model) next() string {
	m.count++
	return strconv.Itoa(m.count)
}

func subjectOf(i int) wire.Digest { return digest("subject " + strconv.Itoa(i)) }

const modelSubjects = 3

func (m *model) put(rt *rapid.T) {
	r := metadata(alice, subjectOf(rapid.IntRange(0, modelSubjects-1).Draw(rt, "subject")), `{"n":`+m.next()+`}`)
	p := wire.Put{PutID: wire.NewPutID(), Checkpoint: rapid.Bool().Draw(rt, "checkpoint"), Record: r}
	m.store(p)
	m.total["put"]++
}

// store puts a record that the archive does not have.
func (m *model) store(p wire.Put) {
	m.rt.Helper()
	ack, err := m.n.Put(context.Background(), p)
	m.ok(err)
	if ack.Duplicate || ack.Seq <= m.highest || ack.RecordID != p.Record.ID() {
		m.rt.Fatalf("a new record was acknowledged as %+v; %d was the highest number ever", ack, m.highest)
	}
	m.highest = ack.Seq
	m.has[ack.RecordID] = stored{p, ack.Seq}
	m.every.records[ack.RecordID] = p.Record
}

// pick returns one of the records that the archive must have.
func (m *model) pick(rt *rapid.T) stored {
	if len(m.has) == 0 {
		rt.Skip("nothing is stored")
	}
	all := m.bySeq(func(stored) bool { return true })
	return all[rapid.IntRange(0, len(all)-1).Draw(rt, "which")]
}

func (m *model) bySeq(want func(stored) bool) []stored {
	all := slices.DeleteFunc(slices.Collect(maps.Values(m.has)), func(s stored) bool { return !want(s) })
	slices.SortFunc(all, func(a, b stored) int { return cmp.Compare(a.seq, b.seq) })
	return all
}

func (m *model) duplicate(rt *rapid.T) {
	s := m.pick(rt)
	p := s.put
	if rapid.Bool().Draw(rt, "other put id") {
		p.PutID = wire.NewPutID()
	}
	ack, err := m.n.Put(context.Background(), p)
	if err != nil || !ack.Duplicate || ack.Seq != s.seq {
		rt.Fatalf("the put of seq %d again: %+v, %v", s.seq, ack, err)
	}
	m.total["duplicate"]++
}

func (m *model) conflict(rt *rapid.T) {
	s := m.pick(rt)
	p := wire.Put{PutID: s.put.PutID, Record: metadata(alice, subjectOf(0), `{"other":`+m.next()+`}`)}
	if _, err := m.n.Put(context.Background(), p); !fault.Is(err, fault.Conflict) {
		rt.Fatalf("the put id of seq %d with another record: %v", s.seq, err)
	}
	m.total["conflict"]++
}

// holds compares every answer with the map.
func (m *model) holds(rt *rapid.T) {
	for i := range modelSubjects {
		want := m.bySeq(func(s stored) bool { return s.put.Record.SHA256 == subjectOf(i) })
		reply, ok, err := m.n.Answer(context.Background(), query(alice, subjectOf(i)))
		if err != nil || ok != (len(want) > 0) || len(reply.Records) != len(want) || reply.Lost > 0 {
			rt.Fatalf("subject %d: %d records, %v, %v, %d lost; want %d", i, len(reply.Records), ok, err, reply.Lost, len(want))
		}
		for k, r := range reply.Records {
			if w := want[k]; r.ID != w.put.Record.ID() || r.Seq != w.seq || !bytes.Equal(r.Body, w.put.Record.Body) {
				rt.Fatalf("subject %d: record %d is seq %d, %s; want seq %d, %s", i, k, r.Seq, r.Body, w.seq, w.put.Record.Body)
			}
		}
		if _, ok, err := m.n.Answer(context.Background(), query(bob, subjectOf(i))); ok || err != nil {
			rt.Fatalf("another tenant is answered %v, %v", ok, err)
		}
	}
	if h := m.n.Hello(); h.State != wire.StateUp || h.Lost > 0 {
		rt.Fatalf("the archive is %s (%s), %d lost", h.State, h.Reason, h.Lost)
	}
}

func (m *model) crash(rt *rapid.T) {
	seed := rapid.Uint64().Draw(rt, "seed")
	percent := rapid.SampledFrom([]int{0, 50, 100}).Draw(rt, "percent")
	mem, ok := m.c.FS.(*vfs.MemFS)
	if !ok {
		rt.Fatal("not a disk that can crash")
	}
	left := mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: percent, RNG: rand.New(rand.NewPCG(seed, seed))})
	m.close()
	m.c.FS = left
	m.open()
	m.total["crash"]++
}

func (m *model) reopen(*rapid.T) {
	m.close()
	m.open()
	_, err := m.n.Check(context.Background())
	m.ok(err)
	m.total["reopen"]++
}

func (m *model) backup(rt *rapid.T) {
	if len(m.backups) >= 3 {
		rt.Skip("enough backups")
	}
	path := "backup-" + m.next()
	w, err := pebblex.NewBackup(m.c.FS, path, "archive", string(m.c.ID), time.Unix(1767323045, 0))
	m.ok(err)
	m.ok(m.n.Backup(context.Background(), w, "records"))
	_, err = w.Finish(context.Background(), func(dir string) (*pebblex.BackupLog, error) {
		return CheckCopy(context.Background(), inDir(m.c, dir), nil)
	})
	m.ok(err)
	m.backups = append(m.backups, savedState{path, maps.Clone(m.has)})
	m.total["backup"]++
}

// restore goes back to a backup, in another directory, and perhaps gets what is
// missing then from the other archive.
func (m *model) restore(rt *rapid.T) {
	if len(m.backups) == 0 {
		rt.Skip("no backup")
	}
	b := m.backups[rapid.IntRange(0, len(m.backups)-1).Draw(rt, "backup")]
	generation := m.n.identity.generation
	m.close()
	c, out, err := restore(m.c, b.path, "restored-"+m.next(), func(rc *RestoreConfig) { rc.Remembered = []wire.Remembered{m.every.heard} })
	m.ok(err)
	if out.Generation != generation+1 || out.FirstSeq <= m.highest {
		rt.Fatalf("restored %+v; the generation was %d and its highest number %d", out, generation, m.highest)
	}
	m.c, m.has = c, maps.Clone(b.has)
	m.open()
	if rapid.Bool().Draw(rt, "reconcile") {
		for _, id := range slices.SortedFunc(maps.Keys(m.every.records), func(a, b wire.RecordID) int { return bytes.Compare(a[:], b[:]) }) {
			if _, here := m.has[id]; !here {
				m.store(wire.Put{PutID: wire.NewPutID(), Record: m.every.records[id]})
			}
		}
	}
	m.total["restore"]++
}

// corrupt damages a file of the stopped archive. Either it goes on whole, or it
// does not serve as if nothing were, and a repair brings back everything.
func (m *model) corrupt(rt *rapid.T) {
	m.close()
	all := readTree(m.t, m.c.FS, m.c.Dir)
	path := rapid.SampledFrom(slices.Sorted(maps.Keys(all))).Draw(rt, "file")
	good := all[path]
	if len(good) == 0 || strings.HasSuffix(path, "LOCK") {
		m.open()
		rt.Skip("nothing to damage")
	}
	bad, at := bytes.Clone(good), rapid.IntRange(0, len(good)-1).Draw(rt, "at")
	switch rapid.SampledFrom([]string{"flip", "zero", "cut"}).Draw(rt, "how") {
	case "flip":
		bad[at] ^= 1 << (at % 8)
	case "zero":
		bad[at] = 0
	case "cut":
		bad = bad[:at]
	}
	m.ok(pebblex.WriteFile(m.c.FS, path, bad, 0o600))
	if n, err := Open(m.c); err == nil {
		<-n.Loaded()
		_, err := n.Check(context.Background())
		if err == nil && n.Hello().State == wire.StateUp {
			m.n = n
			m.total["whole"]++
			return
		}
		m.ok(n.Close())
	} else if !fault.Is(err, fault.Corrupt) && !fault.Is(err, fault.NotFound) && !fault.Is(err, fault.Conflict) {
		rt.Fatalf("%s, byte %d: %v", path, at, err)
	}
	if path == m.c.keyPath() { // the one thing that only its owner can put back
		m.ok(pebblex.WriteFile(m.c.FS, path, good, 0o600))
	}
	report, err := Repair(context.Background(), RepairConfig{Config: m.c, Peers: &m.every})
	if err != nil || !report.Clean() {
		rt.Fatalf("%s, byte %d of %d: repair: %+v, %v", path, at, len(good), report, err)
	}
	m.open()
	_, err = m.n.Check(context.Background())
	m.ok(err)
	m.total["repaired"]++
}

// repairWhole repairs an archive of which nothing is wrong.
func (m *model) repairWhole(rt *rapid.T) {
	m.close()
	report, err := Repair(context.Background(), RepairConfig{Config: m.c, Peers: &m.every})
	if err != nil || !report.Whole || report.Evidence != "" {
		rt.Fatalf("repair of a whole archive: %+v, %v", report, err)
	}
	m.open()
}

// elsewhere is another archive that has every record, and has heard this one.
type elsewhere struct {
	records map[wire.RecordID]wire.PutRecord
	heard   wire.Remembered
}

func (e *elsewhere) Alive() []wire.ArchiveID { return []wire.ArchiveID{"archive-b"} }

func (e *elsewhere) Has(_ context.Context, _ wire.ArchiveID, ids []wire.RecordID) (have []bool, err error) {
	for _, id := range ids {
		_, ok := e.records[id]
		have = append(have, ok)
	}
	return have, nil
}

func (e *elsewhere) Record(_ context.Context, _ wire.ArchiveID, id wire.RecordID) (wire.PutRecord, error) {
	r, ok := e.records[id]
	if !ok {
		return r, fault.New(fault.NotFound, CodeNoRecord, "not here")
	}
	return r, nil
}

func (e *elsewhere) FileProfile(context.Context, wire.ArchiveID, wire.Digest, string) (blob.Profile, error) {
	return blob.Profile{}, errors.New("there are no files in this test")
}

func (e *elsewhere) File(context.Context, wire.ArchiveID, wire.Digest, string, int64, int) ([]byte, int64, error) {
	return nil, 0, errors.New("there are no files in this test")
}

func (e *elsewhere) Remembered(context.Context, wire.ArchiveID) ([]wire.Remembered, error) {
	return []wire.Remembered{e.heard}, nil
}
