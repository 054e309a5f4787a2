package bus

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/wire"
)

// next is a hello of an archive's next generation, under a key of its own.
func next(id, boot string, generation int) wire.Hello {
	h := helloOf(id, boot)
	h.Generation, h.Key, h.Seq = generation, keyOf(fmt.Sprint(id, " ", generation)), 3
	return h
}

// silence lets an archive fall silent.
func (b *bench) silence() { b.now = b.now.Add(2 * HelloTimeout) }

// An archive that was restored as a new generation is nobody until an operator
// accepts it; then the older one is nobody, for ever.
func TestNewGenerationWaitsUntilItIsAccepted(t *testing.T) {
	b := newBench(t, RosterConfig{Open: true})
	b.say(helloOf("archive-a", "1"))
	b.Acknowledged("archive-a", ackOf("archive-a", "1", 40))
	b.silence()
	restored := next("archive-a", "2", 2)
	b.say(restored, restored)
	if m := b.member("archive-a"); m.State != StateUnaccepted || m.Waiting == nil || m.Waiting.Generation != 2 || m.Accepted != 1 {
		t.Fatalf("%+v", m)
	}
	want := AcceptCommand("archive-a", 2, restored.Key)
	if want != "verae archives accept archive-a/g2 --key "+restored.Key || strings.Count(b.log.String(), want) != 1 {
		t.Errorf("the log does not name %q once:\n%s", want, b.log)
	}
	if b.Speaks("archive-a", "2") || b.Reachable() != 0 {
		t.Error("it is believed or offered puts")
	}
	version := b.Version()
	if err := b.Accept("archive-a", 2, ""); err != nil {
		t.Fatal(err)
	}
	if b.Version() != version+1 {
		t.Errorf("version %d after %d", b.Version(), version)
	}
	b.say(restored)
	b.wantLost("archive-a", LossRestored)
	m := b.member("archive-a")
	if !b.Speaks("archive-a", "2") || m.Key != restored.Key || m.Accepted != 2 || m.Lost.Wanted != 40 || m.Lost.Generation != 1 {
		t.Errorf("%+v, %+v", m, m.Lost)
	}
	b.open() // it is all on disk
	b.say(helloOf("archive-a", "1"))
	if b.state("archive-a") != StateFenced || b.Speaks("archive-a", "1") {
		t.Errorf("the replaced generation is %s", b.state("archive-a"))
	}
	b.silence()
	b.say(restored)
	b.wantLost("archive-a", LossRestored)
	if !b.Accounted("archive-a", m.Lost.At, "2", false) {
		t.Fatal("not trusted again although all is accounted for")
	}
	b.wantAlive("archive-a")
	b.open()
	b.say(restored)
	b.wantAlive("archive-a")
	b.say(helloOf("archive-a", "1")) // both live: what is sent to the id is heard by both
	b.wantAlive()
	if b.state("archive-a") != StateQuarantined {
		t.Error(b.state("archive-a"))
	}
	if m := b.member("archive-a"); m.Boot != "2" || m.Twin == nil || *m.Twin != (Twin{Generation: 1, Boot: "1"}) {
		t.Errorf("%+v, and its twin %+v", m, m.Twin)
	}
	if err := b.Accept("archive-a", 1, ""); fault.CodeOf(err) != CodeFenced {
		t.Errorf("a replaced generation is accepted: %v", err)
	}
}

func TestAcceptIsRefusedByName(t *testing.T) {
	key2, other := next("archive-a", "2", 2).Key, keyOf("other")
	for name, tc := range map[string]struct {
		id         wire.ArchiveID
		generation int
		key        string
		heard      bool
		kind       fault.Kind
		code       string
	}{
		"unknown archive":        {"archive-z", 2, other, false, fault.NotFound, CodeArchiveUnknown},
		"no generation":          {"archive-a", 0, "", false, fault.Invalid, "BAD_GENERATION"},
		"not heard, no key":      {"archive-a", 2, "", false, fault.Conflict, CodeNotHeard},
		"another one is heard":   {"archive-a", 3, "", true, fault.Conflict, CodeNotHeard},
		"another key is heard":   {"archive-a", 2, other, true, fault.Conflict, CodeKeyDiffers},
		"another key, accepted":  {"archive-a", 1, other, false, fault.Conflict, CodeFenced},
		"not a key":              {"archive-a", 2, "short", false, fault.Invalid, ""},
		"accepted already":       {"archive-a", 1, "", false, 0, "ok"},
		"not heard, with key":    {"archive-a", 2, key2, false, 0, "ok"},
		"heard":                  {"archive-a", 2, "", true, 0, "ok"},
		"heard, and with key":    {"archive-a", 2, key2, true, 0, "ok"},
		"a jump of generations":  {"archive-a", 7, other, false, 0, "ok"},
		"same key in generation": {"archive-a", 2, keyOf("archive-a"), false, 0, "ok"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, RosterConfig{Open: true})
			b.say(helloOf("archive-a", "1"))
			if tc.heard {
				b.silence()
				b.say(next("archive-a", "2", 2))
			}
			err := b.Accept(tc.id, tc.generation, tc.key)
			if tc.code == "ok" {
				if err != nil || b.member("archive-a").Accepted != tc.generation {
					t.Errorf("%v, accepted %d", err, b.member("archive-a").Accepted)
				}
				return
			}
			wantFault(t, err, tc.kind, tc.code)
			if m := b.member("archive-a"); m.Accepted != 1 || m.Lost != nil {
				t.Errorf("a refusal changed something: %+v", m)
			}
		})
	}
}

// A retired archive is neither waited for nor enrolled again by its hellos.
func TestRetiredArchiveStaysAway(t *testing.T) {
	b := newBench(t, RosterConfig{Open: true})
	b.say(helloOf("archive-a", "1"), helloOf("archive-b", "1"))
	if err := b.Retire("archive-a"); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		b.say(helloOf("archive-a", "1"), helloOf("archive-b", "1"))
		b.wantAlive("archive-b")
		if !slices.Equal(b.Enrolled(), []wire.ArchiveID{"archive-b"}) || b.Speaks("archive-a", "1") {
			t.Errorf("enrolled: %v", b.Enrolled())
		}
		b.open()
	}
	if got := b.Retired(); len(got) != 1 || got[0] != (Former{"archive-a", 3}) {
		t.Errorf("retired: %v", got)
	}
	wantFault(t, b.Retire("archive-a"), fault.NotFound, CodeArchiveUnknown)
	wantFault(t, b.Retire("archive-z"), fault.NotFound, CodeArchiveUnknown)
	// Taken back, it has to account for what it acknowledged like any other.
	if err := b.Accept("archive-a", 1, ""); err != nil {
		t.Fatal(err)
	}
	b.say(helloOf("archive-a", "1"))
	b.wantLost("archive-a", LossRestored)
	if !b.Accounted("archive-a", b.member("archive-a").Lost.At, "1", true) {
		t.Error("not trusted again")
	}
	b.open()
	b.say(helloOf("archive-a", "1"), helloOf("archive-b", "1"))
	b.wantAlive("archive-a", "archive-b")
}

// Every write of the roster and of its memory fails, without and with being
// persisted. Whatever is on disk then: nobody who acknowledged is unknown, a
// loss that was found is not forgotten, and a newer generation is not trusted
// before it was accounted for. The same step again succeeds.
func TestRosterWriteFails(t *testing.T) {
	steps := map[string]func(b *bench) error{
		"enrol": func(b *bench) error {
			b.say(helloOf("archive-c", "1"))
			if !slices.Contains(b.Enrolled(), "archive-c") {
				return errors.New("not enrolled")
			}
			return nil
		},
		"lose": func(b *bench) error {
			h := helloOf("archive-a", "2")
			h.Seq = 1
			b.say(h)
			b.wantLost("archive-a", LossBehind)
			return b.SaveMemory()
		},
		"accept": func(b *bench) error { return b.Accept("archive-a", 2, keyOf("archive-a 2")) },
		"retire": func(b *bench) error { return b.Retire("archive-b") },
		"save":   func(b *bench) error { return b.SaveMemory() },
	}
	for name, step := range steps {
		for n := range 3 {
			for _, persisted := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s write %d persisted %v", name, n, persisted), func(t *testing.T) {
					failing, writes := false, 0
					cfg := RosterConfig{Open: true}
					cfg.write = func(path string, data []byte) error {
						writes++
						if !failing || writes-1 != n {
							return writeSealed(path, data)
						}
						if persisted {
							if err := writeSealed(path, data); err != nil {
								return err
							}
						}
						return errors.New("injected")
					}
					b := newBench(t, cfg)
					b.say(helloOf("archive-a", "1"), helloOf("archive-b", "1"))
					b.Acknowledged("archive-a", ackOf("archive-a", "1", 40))
					if err := b.SaveMemory(); err != nil {
						t.Fatal(err)
					}
					failing, writes = true, 0
					err := step(b)
					failing = false
					b.open() // a crash
					checkRoster(t, b, name, err == nil)
					if err != nil && (name == "accept" || name == "enrol") {
						if err := step(b); err != nil && fault.CodeOf(err) != CodeArchiveUnknown {
							t.Errorf("the next try: %v", err)
						}
						checkRoster(t, b, name, true)
					}
				})
			}
		}
	}
}

func checkRoster(t *testing.T, b *bench, step string, done bool) {
	t.Helper()
	enrolled := b.Enrolled()
	if !slices.Contains(enrolled, "archive-a") || step != "retire" && !slices.Contains(enrolled, "archive-b") {
		t.Fatalf("enrolled: %v", enrolled)
	}
	if got := b.members["archive-a"].memory; got.Seq != 40 && got.Lost == nil {
		t.Errorf("what was acknowledged is forgotten: %+v", got)
	}
	a := b.member("archive-a")
	if a.Accepted == 2 && a.Lost == nil {
		t.Error("a newer generation is trusted unaccounted")
	}
	switch {
	case done && step == "enrol" && !slices.Contains(enrolled, "archive-c"),
		done && step == "lose" && a.Lost == nil,
		done && step == "accept" && a.Accepted != 2,
		done && step == "retire" && slices.Contains(enrolled, "archive-b"):
		t.Errorf("done, and not on disk: %+v of %v", a, enrolled)
	}
}

// Numbers of a generation that was replaced are told until they are accounted
// for: the one that replaced it may have to be replaced too, before it was heard.
func TestNumbersOfReplacedGenerationsAreTold(t *testing.T) {
	b := newBench(t, RosterConfig{Open: true})
	b.say(helloOf("archive-a", "1"))
	b.Acknowledged("archive-a", ackOf("archive-a", "1", 40))
	told := func() (most uint64) {
		t.Helper()
		m := b.reply().Archives[0]
		for _, r := range RememberedOf(m) {
			if r.ArchiveID != "archive-a" || r.Generation < 1 || r.Generation > m.Generation {
				t.Errorf("%+v", r)
			}
			if r.Generation == m.Generation && r.Seq != m.Seq {
				t.Errorf("%+v of %+v: its own generation is told more than it told", r, m)
			}
			most = max(most, r.Seq)
		}
		return most
	}
	if got := told(); got != 40 {
		t.Errorf("before: %d", got)
	}
	for generation := 2; generation < 4; generation++ {
		if err := b.Accept("archive-a", generation, keyOf("archive-a again")); err != nil {
			t.Fatal(err)
		}
		if got := told(); got != 40 {
			t.Errorf("generation %d: %d", generation, got)
		}
	}
}

// A memory that is older than the roster beside it knows nothing of an acceptance:
// the archive is suspected all the same.
func TestOlderMemoryDoesNotHideAnAcceptance(t *testing.T) {
	b := newBench(t, RosterConfig{Open: true})
	b.say(helloOf("archive-a", "1"))
	b.Acknowledged("archive-a", ackOf("archive-a", "1", 40))
	if err := b.SaveMemory(); err != nil {
		t.Fatal(err)
	}
	path := MemoryPath(b.cfg.Path)
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Accept("archive-a", 2, keyOf("archive-a again")); err != nil {
		t.Fatal(err)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, before, 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 { // and the process after that one knows it too
		b.open()
		m := b.member("archive-a")
		if m.Accepted != 2 || m.Lost == nil || m.Lost.Reason != LossRestored || m.Lost.Generation != 1 || m.Lost.Wanted != 40 {
			t.Fatalf("%+v", m)
		}
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
