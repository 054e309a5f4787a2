package bus

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/wire"
)

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
