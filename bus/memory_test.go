package bus

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	sumnote "golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/internal/tlogx"
	"github.com/verae/archive/wire"
)

// A book is the Merkle log of an archive with a key: what it signs.
type book struct {
	t          testing.TB
	id         wire.ArchiveID
	generation int
	key        ed25519.PrivateKey
	hashes     []tlog.Hash
	roots      []tlog.Hash // by size
}

func newBook(t testing.TB, id string, generation int) *book {
	seed := sha256.Sum256(fmt.Appendf(nil, "%s %d", id, generation))
	b := &book{t: t, id: wire.ArchiveID(id), generation: generation, key: ed25519.NewKeyFromSeed(seed[:])}
	b.roots = []tlog.Hash{(&tlogx.Edge{}).Root()}
	return b
}

// grow appends leaves until there are size; kind makes the logs of one archive
// differ.
func (b *book) grow(size int, kind string) *book {
	for n := len(b.roots) - 1; n < size; n++ {
		hashes, err := tlog.StoredHashes(int64(n), fmt.Appendf(nil, "%s %d", kind, n), b.reader())
		if err != nil {
			b.t.Fatal(err)
		}
		b.hashes = append(b.hashes, hashes...)
		root, err := tlog.TreeHash(int64(n)+1, b.reader())
		if err != nil {
			b.t.Fatal(err)
		}
		b.roots = append(b.roots, root)
	}
	return b
}

func (b *book) reader() tlog.HashReader {
	return tlog.HashReaderFunc(func(at []int64) ([]tlog.Hash, error) {
		out := make([]tlog.Hash, len(at))
		for i, x := range at {
			out[i] = b.hashes[x]
		}
		return out, nil
	})
}

func (b *book) public() string {
	return base64.StdEncoding.EncodeToString(b.key.Public().(ed25519.PublicKey))
}

// note is the signed checkpoint of the first size leaves.
func (b *book) note(size int) string {
	b.t.Helper()
	c := tlogx.Checkpoint{Origin: originOf(b.id, b.generation), Size: int64(size), Root: b.roots[size]}
	v, err := tlogx.NewVerifier(c.Origin, b.key.Public().(ed25519.PublicKey))
	if err != nil {
		b.t.Fatal(err)
	}
	signed, err := c.Sign(bookSigner{v, b.key})
	if err != nil {
		b.t.Fatal(err)
	}
	return string(signed)
}

type bookSigner struct {
	sumnote.Verifier
	key ed25519.PrivateKey
}

func (s bookSigner) Sign(msg []byte) ([]byte, error) { return ed25519.Sign(s.key, msg), nil }

// proof answers as an archive with this log of size leaves does.
func (b *book) proof(from uint64, size int) (wire.CtlProof, error) {
	out := wire.CtlProof{Checkpoint: b.note(size), Proof: [][]byte{}}
	if from == 0 || int(from) >= size {
		return out, nil
	}
	hashes, err := tlog.ProveTree(int64(size), int64(from), b.reader())
	for _, h := range hashes {
		out.Proof = append(out.Proof, h[:])
	}
	return out, err
}

// hello is what a process of the archive says with size records in its log.
func (b *book) hello(boot string, size int) wire.Hello {
	h := helloOf(string(b.id), boot)
	h.Key, h.Generation, h.Seq, h.Records, h.Checkpoint = b.public(), b.generation, uint64(size), uint64(size), b.note(size)
	return h
}

func ackOf(id, boot string, seq uint64) wire.PutAck {
	return wire.PutAck{ArchiveID: wire.ArchiveID(id), Generation: 1, Boot: boot, RecordID: wire.RecordID{1}, Seq: seq}
}

func (b *bench) member(id string) Member {
	b.t.Helper()
	for _, m := range b.Snapshot() {
		if m.ID == wire.ArchiveID(id) {
			return m
		}
	}
	b.t.Fatalf("%s is not enrolled", id)
	return Member{}
}

// wantLost fails unless the archive is in StateLost for that reason, and is
// neither offered nor believed to have nothing.
func (b *bench) wantLost(id, reason string) {
	b.t.Helper()
	m := b.member(id)
	if m.Lost == nil || m.Lost.Reason != reason || m.State != StateLost {
		b.t.Fatalf("state %s, loss %+v; want %s", m.State, m.Lost, reason)
	}
	if !b.Doubted(m.ID) || slices.Contains(b.Alive(), m.ID) || slices.Contains(b.Rank(digestOf("x")), m.ID) {
		b.t.Error("an archive that lost records is offered puts, or its silence is believed")
	}
	if !slices.Contains(b.Enrolled(), m.ID) {
		b.t.Error("it is not enrolled any more")
	}
}

func (b *bench) wantNoLoss(id string) {
	b.t.Helper()
	if m := b.member(id); m.Lost != nil || b.Doubted(m.ID) {
		b.t.Fatalf("a loss was seen: %+v", m.Lost)
	}
}

// Law 8: an archive that comes back with less than it acknowledged is found out
// by the aggregator, whatever its own disk says, and stays found out.
func TestLaw8ArchiveWithLessThanItAcknowledgedLostRecords(t *testing.T) {
	b := newBench(t, RosterConfig{Open: true})
	b.say(helloOf("archive-a", "1"), helloOf("archive-b", "1"))
	b.Acknowledged("archive-a", ackOf("archive-a", "1", 12))
	b.Acknowledged("archive-a", ackOf("archive-a", "1", 9)) // a duplicate, with its first sequence
	if err := b.SaveMemory(); err != nil {
		t.Fatal(err)
	}
	b.open() // the aggregator restarts too: it remembers
	back := helloOf("archive-a", "2")
	back.Seq = 11
	b.say(back, back, back)
	b.wantLost("archive-a", LossBehind)
	if n := strings.Count(b.log.String(), "level=ERROR"); n != 1 {
		t.Errorf("%d alarms for one loss:\n%s", n, b.log)
	}
	b.open() // without Close: the loss was on disk before the hello was done with
	b.wantLost("archive-a", LossBehind)
	back.Seq = 12
	b.say(back, helloOf("archive-b", "1"))
	b.wantLost("archive-a", LossBehind) // new records do not bring back the old ones
	b.wantAlive("archive-b")
	if got := b.Lost(); len(got) != 1 || got[0].Lost.Wanted != 12 || got[0].Lost.Seq != 11 {
		t.Errorf("lost: %+v", got)
	}
}

// Messages overtake each other: within one process, and behind its successor,
// less is not lost.
func TestLateHelloShowsNoLoss(t *testing.T) {
	b := newBench(t, RosterConfig{Open: true})
	one, two := helloOf("archive-a", "1"), helloOf("archive-a", "2")
	b.say(one)
	b.Acknowledged("archive-a", ackOf("archive-a", "1", 20))
	b.say(one) // seq 7, made before the acknowledgement
	b.wantNoLoss("archive-a")
	two.Seq = 20
	b.say(two)
	b.Acknowledged("archive-a", ackOf("archive-a", "2", 21))
	b.say(one) // of the process before: late, or its twin
	b.wantNoLoss("archive-a")
	if b.state("archive-a") != StateQuarantined {
		t.Error(b.state("archive-a"))
	}
}

// What an archive told and did not acknowledge to this aggregator counts too.
func TestToldSequenceIsRemembered(t *testing.T) {
	b := newBench(t, RosterConfig{Open: true})
	h := helloOf("archive-a", "1")
	h.Seq = 100
	b.say(h)
	h.Boot, h.Seq = "2", 99
	b.say(h)
	b.wantLost("archive-a", LossBehind)
}

// Nobody is remembered by what another process acknowledges in his name.
func TestAcknowledgementOfAStrangerIsNotRemembered(t *testing.T) {
	b := newBench(t, RosterConfig{Open: true})
	b.say(helloOf("archive-a", "1"))
	b.Acknowledged("archive-a", ackOf("archive-a", "9", 1000))
	b.Acknowledged("archive-z", ackOf("archive-z", "1", 1000))
	other := ackOf("archive-a", "1", 1000)
	other.Generation = 2
	b.Acknowledged("archive-a", other)
	if got := b.member("archive-a").Remembered; got != 7 {
		t.Errorf("remembered seq %d", got)
	}
}

// A checkpoint shows what sequence numbers do not: another log of the same
// length, or one that is shorter by leaves that were never acknowledged here.
func TestCheckpointsShowLosses(t *testing.T) {
	log, fork := newBook(t, "archive-a", 1).grow(9, "log"), newBook(t, "archive-a", 1).grow(9, "fork")
	thief := newBook(t, "archive-a", 2)
	thief.generation = 1
	thief.grow(9, "log")
	for name, tc := range map[string]struct {
		boot string
		note string
		by   func(b *bench, note string)
		want string
	}{
		"the same":                     {"1", log.note(5), nil, ""},
		"more":                         {"1", log.note(8), nil, ""},
		"less, by the same process":    {"1", log.note(4), nil, ""},
		"less, by the next process":    {"2", log.note(4), nil, LossBehind},
		"another at the same size":     {"1", fork.note(5), nil, LossForked},
		"another, by the next process": {"2", fork.note(5), nil, LossForked},
		"signed by another key":        {"2", thief.note(4), nil, ""},
		"no checkpoint":                {"2", "", nil, ""},
		"not a checkpoint":             {"2", "archive-a/g1\n3\n", nil, ""},
		"another with an acknowledgement": {"1", fork.note(5), func(b *bench, n string) {
			a := ackOf("archive-a", "1", 7)
			a.Checkpoint = n
			b.Acknowledged("archive-a", a)
		}, LossForked},
		"another with a reply":               {"1", fork.note(5), func(b *bench, n string) { b.Told("archive-a", "1", n) }, LossForked},
		"less with a reply":                  {"1", log.note(4), func(b *bench, n string) { b.Told("archive-a", "1", n) }, ""},
		"another with a reply of a stranger": {"1", fork.note(5), func(b *bench, n string) { b.Told("archive-a", "9", n) }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, RosterConfig{Open: true})
			h := log.hello("1", 5)
			b.say(h)
			if tc.by != nil {
				tc.by(b, tc.note)
			} else {
				h.Boot, h.Checkpoint = tc.boot, tc.note
				b.say(h)
			}
			if tc.want == "" {
				b.wantNoLoss("archive-a")
			} else {
				b.wantLost("archive-a", tc.want)
				b.open()
				b.wantLost("archive-a", tc.want)
			}
			if size := b.Roster.members["archive-a"].memory.newest.Size; size < 5 {
				t.Errorf("the checkpoint of 5 leaves was forgotten for one of %d", size)
			}
		})
	}
}

// proves answers every question for a proof as an archive with the given log.
func (b *bench) proves(log *book, size int) (asked *int) {
	asked = new(int)
	b.prove = func(_ context.Context, _ wire.ArchiveID, from uint64) (wire.CtlProof, error) {
		*asked++
		return log.proof(from, size)
	}
	return asked
}

// prove asks for what is due.
func (b *bench) askAll() (n int) {
	list := b.due()
	for _, d := range list {
		b.ask(b.t.Context(), d)
	}
	return len(list)
}

// A log that parted from the remembered one and grew beyond it is found by a
// proof, also across processes: the newer checkpoint alone is not believed.
func TestForkThatGrewIsFoundByProof(t *testing.T) {
	log := newBook(t, "archive-a", 1).grow(9, "log")
	fork := newBook(t, "archive-a", 1).grow(5, "log").grow(30, "fork")
	b := newBench(t, RosterConfig{Open: true})
	b.say(log.hello("1", 3), log.hello("1", 9)) // proved up to 3, seen up to 9
	b.say(fork.hello("2", 30))
	b.wantNoLoss("archive-a") // it may be the same log
	b.proves(fork, 30)
	if b.askAll() != 1 {
		t.Fatal("no proof was asked for")
	}
	b.wantLost("archive-a", LossForked)
	if !strings.Contains(b.member("archive-a").Lost.Detail, "9") {
		t.Errorf("detail: %s", b.member("archive-a").Lost.Detail)
	}
	b.open()
	b.wantLost("archive-a", LossForked)
}

func TestHonestLogIsProvedAndOftenEnough(t *testing.T) {
	log := newBook(t, "archive-a", 1).grow(40, "log")
	b := newBench(t, RosterConfig{Open: true})
	b.say(log.hello("1", 3))
	asked := b.proves(log, 40)
	if n := b.askAll(); n != 0 {
		t.Errorf("%d asked for what is known", n)
	}
	b.say(log.hello("1", 9))
	if n := b.askAll(); n != 1 || *asked != 2 { // from what was proved, and from what was seen
		t.Errorf("%d archives asked, %d questions", n, *asked)
	}
	for at := range 30 {
		b.now = b.now.Add(time.Second)
		b.say(log.hello("1", 10+at))
		b.askAll()
	}
	if *asked > 2+3*2 {
		t.Errorf("%d questions in 30 s", *asked)
	}
	b.wantNoLoss("archive-a")
	if got := b.Roster.members["archive-a"].memory.proved.Size; got != 40 {
		t.Errorf("proved up to %d", got)
	}
}

// An archive that does not answer, or can not, is not suspected for it.
func TestProofThatDoesNotComeSaysNothing(t *testing.T) {
	log := newBook(t, "archive-a", 1).grow(9, "log")
	b := newBench(t, RosterConfig{Open: true})
	b.say(log.hello("1", 3), log.hello("1", 9))
	b.prove = func(context.Context, wire.ArchiveID, uint64) (wire.CtlProof, error) {
		return wire.CtlProof{}, fault.New(fault.Transient, CodeUnreachable, "nobody listens")
	}
	b.askAll()
	b.wantNoLoss("archive-a")
	if n := count(b.metrics.proofs.WithLabelValues("unanswered")); n != 1 {
		t.Errorf("%d counted", n)
	}
}

// The wrong disk was started and the right one is back: it is trusted again when
// its log is proved to continue the one remembered and everything that was
// acknowledged was found there. Short of that, the same generation stays lost.
func TestRightDiskComesBack(t *testing.T) {
	log := newBook(t, "archive-a", 1).grow(20, "log")
	start := func(t *testing.T) (b *bench, at wire.Time) {
		b = newBench(t, RosterConfig{Open: true})
		b.say(log.hello("1", 9), log.hello("2", 5))
		b.wantLost("archive-a", LossBehind)
		b.now = b.now.Add(proofInterval)
		b.proves(log, 10)
		return b, b.member("archive-a").Lost.At
	}
	for name, tc := range map[string]struct {
		seq    int
		prove  bool
		whole  bool
		boot   string
		back   bool
		reason string
	}{
		"all of it":        {10, true, true, "3", true, ""},
		"not proved":       {10, false, true, "3", false, ""},
		"not whole":        {10, true, false, "3", false, ""},
		"another process":  {10, true, true, "2", false, ""},
		"still too little": {8, true, true, "3", false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			b, at := start(t)
			b.say(log.hello("3", tc.seq))
			if tc.prove {
				b.askAll()
			}
			if back := b.Accounted("archive-a", at, tc.boot, tc.whole); back != tc.back {
				t.Fatalf("trusted again: %v", back)
			}
			if tc.back {
				b.wantNoLoss("archive-a")
				b.wantAlive("archive-a")
				b.open()
				b.wantNoLoss("archive-a")
				return
			}
			b.wantLost("archive-a", LossBehind)
		})
	}
}

// The memory is written at most once a second while there is news, and not at
// all without.
func TestMemoryIsWrittenOnceASecondWhileThereIsNews(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var writes []time.Time
		cfg := RosterConfig{Path: t.TempDir() + "/roster.json", Create: true, Open: true}
		cfg.write = func(path string, data []byte) error {
			if strings.HasSuffix(path, memoryName) {
				writes = append(writes, time.Now())
			}
			return writeSealed(path, data)
		}
		r, err := OpenRoster(cfg)
		if err != nil {
			t.Fatal(err)
		}
		r.hear(helloOf("archive-a", "1"))
		r.done.Go(r.remember)
		writes = nil
		for i := range 10_000 { // ten seconds of a thousand acknowledgements each
			r.Acknowledged("archive-a", ackOf("archive-a", "1", uint64(10+i)))
			time.Sleep(time.Millisecond)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(writes) < 9 || len(writes) > 12 {
			t.Errorf("%d writes", len(writes))
		}
		for i := 1; i < len(writes); i++ {
			if gap := writes[i].Sub(writes[i-1]); gap < memoryInterval {
				t.Errorf("two writes within %v", gap)
			}
		}
		n := len(writes)
		if err := r.Close(); err != nil || len(writes) != n {
			t.Errorf("%d writes at the end without news: %v", len(writes)-n, err)
		}
	})
}

func TestCloseWritesWhatIsNew(t *testing.T) {
	b := newBench(t, RosterConfig{Open: true})
	b.say(helloOf("archive-a", "1"))
	b.Acknowledged("archive-a", ackOf("archive-a", "1", 33))
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	b.open()
	if got := b.member("archive-a").Remembered; got != 33 {
		t.Errorf("remembered seq %d", got)
	}
}

// A memory that was lost, damaged, or is of another roster, is refused by a
// message that names the way out; the way out works.
func TestDamagedOrLostMemoryIsRefused(t *testing.T) {
	log := newBook(t, "archive-a", 1).grow(3, "log")
	b := newBench(t, RosterConfig{Open: true})
	b.say(log.hello("1", 3), helloOf("archive-b", "1"))
	if err := b.SaveMemory(); err != nil {
		t.Fatal(err)
	}
	path := MemoryPath(b.path)
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	damage := map[string][]byte{"empty": {}, "cut": good[:len(good)/2], "null": []byte("null"), "no memory": []byte("{}")}
	for i := range good[:len(good)-1] { // behind the last byte but one is a line's end
		flipped := slices.Clone(good)
		flipped[i] ^= 0x10
		damage[fmt.Sprintf("bit in byte %d (%q)", i, good[i])] = flipped
	}
	for name, data := range damage {
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		if r, err := OpenRoster(b.cfg); err == nil {
			if k := r.members["archive-a"].memory; k.Seq != 3 || k.newest.Size != 3 {
				t.Errorf("%s: opened with %+v", name, k)
			}
		} else if fault.CodeOf(err) != "MEMORY_DAMAGED" {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := NewMemory(b.path); !fault.Is(err, fault.Conflict) {
		t.Errorf("a memory was begun over another: %v", err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	_, err = OpenRoster(b.cfg)
	wantFault(t, err, fault.Corrupt, "MEMORY_MISSING")
	wantText(t, err, path, "aggregator new-memory")
	if err := NewMemory(b.path); err != nil {
		t.Fatal(err)
	}
	b.open()
	// A roster that is older than its memory does not know an archive any more.
	if err := os.WriteFile(path, good, 0o600); err != nil {
		t.Fatal(err)
	}
	old := rosterFile{}.with("archive-b", keyOf("archive-b"), 1)
	if err := old.save(b.path, writeSealed); err != nil {
		t.Fatal(err)
	}
	_, err = OpenRoster(b.cfg)
	wantFault(t, err, fault.Corrupt, "MEMORY_DAMAGED")
	wantText(t, err, "archive-a", "older than the memory")
}

// A loss that can not be written counts in this process, and is written as soon
// as that can be.
func TestLossThatCannotBeWrittenCountsAllTheSame(t *testing.T) {
	fails := false
	cfg := RosterConfig{Open: true}
	cfg.write = func(path string, data []byte) error {
		if fails {
			return fmt.Errorf("injected")
		}
		return writeSealed(path, data)
	}
	b := newBench(t, cfg)
	b.say(helloOf("archive-a", "1"))
	if err := b.SaveMemory(); err != nil {
		t.Fatal(err)
	}
	fails = true
	back := helloOf("archive-a", "2")
	back.Seq = 1
	b.say(back)
	b.wantLost("archive-a", LossBehind)
	if n := count(b.metrics.unsaved); n != 1 {
		t.Errorf("%d failures counted", n)
	}
	fails = false
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	b.open()
	b.wantLost("archive-a", LossBehind)
}

// The layouts of both files are frozen.
func TestRosterAndMemoryFormatsAreFrozen(t *testing.T) {
	for name, data := range map[string][]byte{"roster.v1.json": goldenRoster(t), "memory.v1.json": goldenMemory(t)} {
		want, err := os.ReadFile("testdata/" + name)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(want, data) {
			t.Errorf("%s is\n%s\nand would be written as\n%s", name, want, data)
		}
	}
	// A roster from before there were generations.
	f, err := loadRoster("testdata/roster.v1.enrolled.json", false, writeSealed)
	if err != nil || len(f.Archives) != 2 || f.Archives[0].generation() != 1 {
		t.Errorf("%+v, %v", f, err)
	}
}

func goldenRoster(t *testing.T) (data []byte) {
	f := rosterFile{}.with("archive-a", keyOf("archive-a"), 1).with("archive-b", keyOf("archive-b"), 1).with("archive-c", keyOf("archive-c"), 1)
	f = f.with("archive-b", keyOf("archive-b 2"), 2).retire("archive-c")
	if err := f.save("", func(_ string, d []byte) error { data = d; return nil }); err != nil {
		t.Fatal(err)
	}
	return data
}

func goldenMemory(t *testing.T) []byte {
	log := newBook(t, "archive-a", 1).grow(7, "log")
	f := memoryFile{Archives: []remembered{
		{ID: "archive-a", Generation: 1, Boot: "boot-1", Seq: 7, Checkpoint: log.note(7), CheckpointBoot: "boot-1", Proved: log.note(5)},
		{ID: "archive-b", Generation: 2, Lost: &Loss{
			Reason: LossRestored, Generation: 1, Wanted: 41, At: wire.At(time.Unix(1_800_000_000, 0)), Detail: "generation 2 was accepted",
		}},
	}}
	data, err := f.encode()
	if err != nil {
		t.Fatal(err)
	}
	return data
}
