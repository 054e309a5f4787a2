package bus

import (
	"slices"
	"strings"
	"testing"

	"github.com/verae/archive/wire"
)

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

// Law 6: the silence of an archive that knows from others that it is an older copy
// of itself means nothing, also to an aggregator that has no memory of it.
func TestLaw6AnArchiveThatDoubtsItselfIsNotBelieved(t *testing.T) {
	b := newBench(t, RosterConfig{Open: true})
	for reason, doubted := range map[string]bool{"ROLLED_BACK": true, "LOG_FORKED": true, "DISK_FULL": false, "": false} {
		h := helloOf("archive-a", "1")
		h.State, h.Reason = wire.StateReadonly, reason
		b.say(h)
		if m := b.member("archive-a"); b.Doubted("archive-a") != doubted || m.State != wire.StateReadonly || m.Lost != nil {
			t.Errorf("%q: doubted %v, %+v", reason, !doubted, m)
		}
	}
	b.say(helloOf("archive-a", "2"))
	b.wantNoLoss("archive-a")
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
	if m := b.member("archive-a"); m.Twin == nil || m.Boot != "1" || m.Twin.Boot != "2" {
		t.Errorf("%+v, and its twin %+v", m, m.Twin)
	}
}

// An acknowledgement that was on its way when the next process said hello counts
// too, once it is clear that the two do not live side by side.
func TestLateAcknowledgementOfASupersededProcessIsRemembered(t *testing.T) {
	for name, tc := range map[string]struct {
		acked  uint64
		boot   string
		beside bool // the process before lives on
		again  bool // the archive is restarted once more meanwhile
		lost   bool
	}{
		"less came back":           {acked: 21, boot: "1", lost: true},
		"also after a restart":     {acked: 21, boot: "1", again: true, lost: true},
		"all came back":            {acked: 20, boot: "1"},
		"of nobody":                {acked: 21, boot: "9"},
		"two live processes":       {acked: 21, boot: "1", beside: true},
		"two of them, and a third": {acked: 21, boot: "1", beside: true, again: true},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, RosterConfig{Open: true})
			one, two := helloOf("archive-a", "1"), helloOf("archive-a", "2")
			two.Seq = 20
			b.say(one, two)
			b.Acknowledged("archive-a", ackOf("archive-a", "2", 30)) // new records do not stand for old ones
			b.Acknowledged("archive-a", ackOf("archive-a", tc.boot, tc.acked))
			b.say(two)
			b.wantNoLoss("archive-a")
			if tc.beside {
				one.Seq = tc.acked
				b.say(one, two)
			}
			if tc.again {
				two.Boot, two.Seq = "3", 30
				b.say(two)
			}
			b.now = b.now.Add(HelloTimeout)
			two.Seq = 30
			b.say(two)
			if !tc.lost {
				b.wantNoLoss("archive-a")
				return
			}
			b.wantLost("archive-a", LossBehind)
			if m := b.member("archive-a"); m.Lost.Wanted != 21 || m.Lost.Seq != 20 {
				t.Errorf("%+v", m.Lost)
			}
		})
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
