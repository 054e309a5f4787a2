package bus

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/wire"
)

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
