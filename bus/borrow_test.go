package bus

import (
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"

	"github.com/verae/archive/bus/server"
	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/wire"
)

// A lender is the roster that enrols, with a clock for its leases in hand.
type lender struct {
	*bench
	clock time.Duration
}

func newLender(t *testing.T) *lender {
	l := &lender{clock: time.Hour}
	l.bench = newBench(t, RosterConfig{Open: true, Clock: func() time.Duration { return l.clock }})
	return l
}

// ask asks for a lease, as the borrower of a version.
func (l *lender) ask(holder string, version uint64, want bool) {
	l.t.Helper()
	lease, err := l.lend(wire.RosterRequest{Holder: holder, Version: version})
	if err != nil || (lease > 0) != want {
		l.t.Fatalf("%s with version %d: %s, %v", holder, version, lease, err)
	}
}

// TestLaw6ANewArchiveIsKnownBeforeItsFirstRecord: whoever relies on a roster
// without it has let go, or has heard of it.
func TestLaw6ANewArchiveIsKnownBeforeItsFirstRecord(t *testing.T) {
	l := newLender(t)
	l.say(helloOf("archive-a", "1"))
	l.wantAlive("archive-a") // nobody relies on anything
	l.ask("x", 0, false)
	l.ask("x", 1, true)
	l.ask("y", 1, true)
	l.say(helloOf("archive-b", "1"))
	l.wantAlive("archive-a")
	l.ask("x", 1, false) // it has to take version 2 first, and what it has goes on
	l.ask("x", 2, true)
	l.wantAlive("archive-a")
	l.clock += rosterLease - 1
	l.tick()
	l.wantAlive("archive-a")
	l.clock++
	l.say(helloOf("archive-b", "1"))
	l.tick() // y has gone
	l.wantAlive("archive-a", "archive-b")

	// Given back, it holds up nobody.
	l.ask("x", 2, true)
	l.say(helloOf("archive-c", "1"))
	l.wantAlive("archive-a", "archive-b")
	if _, err := l.lend(wire.RosterRequest{Holder: "x", Release: true}); err != nil {
		t.Fatal(err)
	}
	l.wantAlive("archive-a", "archive-b", "archive-c")

	// One that is taken back is new again.
	if err := l.Retire("archive-c"); err != nil {
		t.Fatal(err)
	}
	l.ask("x", 4, true)
	if err := l.Accept("archive-c", 1, keyOf("archive-c")); err != nil {
		t.Fatal(err)
	}
	if !l.members["archive-c"].unready {
		t.Error("an archive that was taken back may have records that a holder does not ask for")
	}
}

// TestLaw6ANewGenerationIsKnownBeforeItsFirstRecord: who relies on a roster that
// believes the process of the generation before may call complete what that one has.
func TestLaw6ANewGenerationIsKnownBeforeItsFirstRecord(t *testing.T) {
	l := newLender(t)
	l.say(helloOf("archive-a", "1"))
	l.ask("x", 1, true)
	if err := l.Accept("archive-a", 2, next("archive-a", "2", 2).Key); err != nil {
		t.Fatal(err)
	}
	l.say(next("archive-a", "2", 2))
	if !l.Accounted("archive-a", l.member("archive-a").Lost.At, "2", false) {
		t.Fatal("it is not accounted for")
	}
	l.wantAlive()
	l.ask("x", 2, true)
	l.wantAlive("archive-a")
}

// TestLeasesOfTheRosterOutliveTheProcess: the next one does not know them, and
// waits for them.
func TestLeasesOfTheRosterOutliveTheProcess(t *testing.T) {
	l := newLender(t)
	l.say(helloOf("archive-a", "1"))
	l.ask("x", 1, true)
	l.open() // it was killed
	l.say(helloOf("archive-a", "1"), helloOf("archive-b", "1"))
	l.wantAlive()
	l.clock += rosterLease
	l.tick()
	l.wantAlive("archive-a", "archive-b")
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	l.open() // it ended in order, when no lease was out
	l.say(helloOf("archive-a", "1"))
	l.wantAlive("archive-a")
	l.ask("x", 2, true)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	l.open() // it ended in order, when one was
	l.say(helloOf("archive-a", "1"))
	l.wantAlive()
}

// TestNoLeaseBeforeItIsNoted: a disk that refuses costs the borrower his lease.
func TestNoLeaseBeforeItIsNoted(t *testing.T) {
	l := newLender(t)
	l.say(helloOf("archive-a", "1"))
	l.write = func(string, []byte) error { return errors.New("disk") }
	if _, err := l.lend(wire.RosterRequest{Holder: "x", Version: 1}); !fault.Is(err, fault.Transient) {
		t.Error(err)
	}
	l.write = writeSealed
	l.ask("x", 1, true)
	if _, err := os.Stat(l.leasesPath()); err != nil {
		t.Error(err)
	}
	for i := range MaxRosterHolders - 1 {
		l.ask(fmt.Sprint(i), 1, true)
	}
	if _, err := l.lend(wire.RosterRequest{Holder: "one more", Version: 1}); fault.CodeOf(err) != CodeBusy {
		t.Error(err)
	}
	l.ask("x", 1, true)
}

// TestASecondAggregatorMissesEveryHello of a new archive, on a real server: it
// knows of it before the first record, and believes only the process that the
// first one does.
func TestASecondAggregatorMissesEveryHello(t *testing.T) {
	s := startServer(t, server.Config{})
	first, second := connect(t, s, "aggregator-1"), connect(t, s, "aggregator-2")
	roster, err := OpenRoster(RosterConfig{Path: filepath.Join(t.TempDir(), "roster.json"), Create: true, Open: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := roster.Listen(first); err != nil {
		t.Fatal(err)
	}
	defer roster.Close()
	stop, err := roster.ServeRoster(first)
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	say := func(h wire.Hello) { roster.receive(wire.SubjectHelloPrefix+string(h.ArchiveID), encode(t, h)) } // nobody else hears it
	say(helloOf("archive-a", "1"))

	borrowed, err := BorrowRoster(second, "aggregator-2.1", RosterConfig{})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the roster is lent", borrowed.Current)
	if diff := cmp.Diff(roster.Enrolled(), borrowed.Enrolled()); diff != "" {
		t.Error(diff)
	}
	if !roster.Current() {
		t.Error("the roster that enrols is not current")
	}
	eventually(t, "archive-b may have records", func() bool {
		say(helloOf("archive-a", "1"))
		say(helloOf("archive-b", "1"))
		return roster.Reachable() == 2
	})
	if got := borrowed.Enrolled(); len(got) != 2 {
		t.Errorf("archive-b may have records, and the second aggregator knows %v", got)
	}
	// It hears a process that the first has not judged yet.
	h := helloOf("archive-b", "2")
	borrowed.receive(wire.SubjectHelloPrefix+"archive-b", encode(t, h))
	if borrowed.Speaks("archive-b", "2") {
		t.Error("a process is believed that the first aggregator does not know")
	}
	h.Seq = 1 // less than before
	say(h)
	eventually(t, "the loss is told", func() bool { return borrowed.Doubted("archive-b") })
	if borrowed.Doubted("archive-a") || !borrowed.Speaks("archive-b", "2") {
		t.Error("who speaks, and who lost records, is not what was told")
	}
	stop() // nobody lends any more
	eventually(t, "the lease runs out", func() bool { return !borrowed.Current() })
	if got := borrowed.Enrolled(); len(got) != 2 {
		t.Errorf("without a lease it knows %v", got)
	}
	if err := borrowed.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestHoldersOfOneNameAreTwo: neither has the leases of the other.
func TestHoldersOfOneNameAreTwo(t *testing.T) {
	a := newViewsNode(t, "archive-a", "boot1", fleetKey, time.Minute)
	g := newGallery(t, a)
	for range 2 {
		g.aggregator(func(c *MirrorConfig) { c.Holder = "aggregator" })
	}
	for _, w := range g.watch {
		w.trusts(t, "archive-a")
	}
	if n := a.feed.Stats().Holders; n != 2 {
		t.Errorf("%d leases of the filter are out to two aggregators", n)
	}
	lender := g.watch[0].roster
	stop, err := lender.ServeRoster(g.watch[0].conn)
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	for range 2 {
		r, err := BorrowRoster(connect(t, g.server, "borrower"), "aggregator", RosterConfig{})
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		eventually(t, "the roster is lent", r.Current)
	}
	lender.mu.RLock()
	defer lender.mu.RUnlock()
	if n := len(lender.leases.holders); n != 2 {
		t.Errorf("%d leases of the roster are out to two aggregators", n)
	}
}

// TestRosterRequestsOfStrangers are answered with what is wrong.
func TestRosterRequestsOfStrangers(t *testing.T) {
	s := startServer(t, server.Config{})
	conn := connect(t, s, "aggregator-1")
	b := newBench(t, RosterConfig{Open: true})
	stop, err := b.ServeRoster(conn)
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	for _, data := range []string{"{", `{"version":1}`, `{"holder":"` + base64.StdEncoding.EncodeToString(make([]byte, 100)) + `"}`, `{"holder":"x","holder":"y"}`} {
		msg, err := conn.ctl.Request(wire.SubjectRosterGet, []byte(data), time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		if err := replyFault(msg, "it"); !fault.Is(err, fault.Invalid) {
			t.Errorf("%s: %v", data, err)
		}
	}
	if len(b.leases.holders) != 0 {
		t.Error(b.leases.holders)
	}
	if err := conn.ctl.PublishMsg(nats.NewMsg(wire.SubjectRosterGet)); err != nil { // who wants no answer gets none
		t.Fatal(err)
	}
}
