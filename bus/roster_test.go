package bus

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/wire"
)

// A bench is a roster with a clock in hand.
type bench struct {
	*Roster
	t   testing.TB
	cfg RosterConfig
	now time.Time
	log *bytes.Buffer
}

func newBench(t testing.TB, cfg RosterConfig) *bench {
	t.Helper()
	b := &bench{t: t, now: time.Unix(1_000_000, 0), log: new(bytes.Buffer)}
	cfg.Now = func() time.Time { return b.now }
	cfg.Log = slog.New(slog.NewTextHandler(b.log, nil))
	if cfg.Path == "" {
		cfg.Path = filepath.Join(t.TempDir(), "roster.json")
		cfg.Create = true
	}
	b.cfg = cfg
	b.open()
	return b
}

// open opens the roster's file, as a restarted process does.
func (b *bench) open() {
	b.t.Helper()
	r, err := OpenRoster(b.cfg)
	if err != nil {
		b.t.Fatal(err)
	}
	b.Roster, b.cfg.Create = r, false
}

func helloOf(id, boot string) wire.Hello {
	return wire.Hello{Proto: 1, ArchiveID: wire.ArchiveID(id), Key: keyOf(id), Generation: 1, Boot: boot, Seq: 7, Records: 5, State: wire.StateUp}
}

// say has the roster receive hellos as they come from NATS.
func (b *bench) say(hellos ...wire.Hello) {
	b.t.Helper()
	for _, h := range hellos {
		b.receive(wire.SubjectHelloPrefix+string(h.ArchiveID), encode(b.t, h))
	}
}

func (b *bench) wantAlive(ids ...wire.ArchiveID) {
	b.t.Helper()
	if ids == nil {
		ids = []wire.ArchiveID{}
	}
	if diff := cmp.Diff(ids, b.Alive()); diff != "" {
		b.t.Errorf("alive: %s", diff)
	}
	if b.Reachable() != len(ids) {
		b.t.Errorf("%d reachable, want %d", b.Reachable(), len(ids))
	}
}

func (b *bench) state(id string) string {
	for _, m := range b.Snapshot() {
		if m.ID == wire.ArchiveID(id) {
			return m.State
		}
	}
	return "not enrolled"
}

func TestRosterSurvivesARestartAndKnowsTheDead(t *testing.T) {
	b := newBench(t, RosterConfig{Open: true})
	if b.Version() != 0 || len(b.Enrolled()) != 0 {
		t.Errorf("a new roster has version %d and %v", b.Version(), b.Enrolled())
	}
	b.say(helloOf("archive-b", "1"), helloOf("archive-a", "1"))
	b.open()
	want := []wire.ArchiveID{"archive-a", "archive-b"}
	if !slices.Equal(b.Enrolled(), want) || b.Version() != 2 {
		t.Errorf("version %d with %v after a restart", b.Version(), b.Enrolled())
	}
	b.wantAlive()
	b.say(helloOf("archive-b", "2"))
	b.wantAlive("archive-b")
	wantRows := []Member{
		{ID: "archive-a", State: StateSilent, Key: keyOf("archive-a"), Enrolled: 2, Accepted: 1},
		{ID: "archive-b", State: wire.StateUp, Key: keyOf("archive-b"), Enrolled: 1, LastHello: b.now, Generation: 1, Boot: "2", Seq: 7, Records: 5, Accepted: 1, Remembered: 7},
	}
	if diff := cmp.Diff(wantRows, b.Snapshot()); diff != "" {
		t.Error(diff)
	}
}

func TestAliveEndsAfterThreeMissedHellos(t *testing.T) {
	b := newBench(t, RosterConfig{Open: true})
	b.say(helloOf("archive-a", "1"))
	b.now = b.now.Add(HelloTimeout)
	b.wantAlive("archive-a")
	b.now = b.now.Add(1)
	b.wantAlive()
	if b.state("archive-a") != StateSilent {
		t.Error(b.state("archive-a"))
	}
	b.say(helloOf("archive-a", "1"))
	b.wantAlive("archive-a")
}

func TestOnlyThoseThatAreUpGetPuts(t *testing.T) {
	b := newBench(t, RosterConfig{Open: true})
	for _, state := range []string{wire.StateUp, wire.StateDraining, wire.StateReadonly, "a-newer-state"} {
		h := helloOf("archive-a", "1")
		h.State, h.Reason = state, "DISK_FULL"
		b.say(h)
		if got, want := b.Snapshot()[0].Reason, h.Reason; (state == wire.StateReadonly || state == "a-newer-state") != (got == want) {
			t.Errorf("%s: the reason shown is %q", state, got)
		}
		if state == wire.StateUp {
			b.wantAlive("archive-a")
			continue
		}
		b.wantAlive()
		if ranked := b.Rank(digestOf("x")); len(ranked) != 0 {
			t.Errorf("%s: offered %v", state, ranked)
		}
	}
	if !slices.Equal(b.Enrolled(), []wire.ArchiveID{"archive-a"}) {
		t.Error("an archive that takes no puts is not enrolled any more")
	}
}

func TestHelloWithAnotherKeyIsIgnoredAndLoggedOnce(t *testing.T) {
	b := newBench(t, RosterConfig{Open: true})
	b.say(helloOf("archive-a", "1"))
	b.now = b.now.Add(2 * HelloTimeout)
	thief := helloOf("archive-a", "9")
	thief.Key = keyOf("thief")
	for range 5 {
		b.say(thief)
	}
	b.wantAlive()
	if n := count(b.metrics.refused.WithLabelValues("key")); n != 5 {
		t.Errorf("%d counted", n)
	}
	if n := strings.Count(b.log.String(), "the keys differ"); n != 1 {
		t.Errorf("logged %d times:\n%s", n, b.log)
	}
	if got := b.Snapshot()[0].Key; got != keyOf("archive-a") {
		t.Error("the key was replaced")
	}
}

// An archive that was made anew under the id of one that lives hears all that is
// sent to the id. What it says is not the enrolled archive's, and as long as it
// lives no bytes are offered to either.
func TestAnotherArchiveUnderOneIDIsNotBelieved(t *testing.T) {
	b := newBench(t, RosterConfig{Open: true})
	if b.Speaks("archive-a", "1") {
		t.Error("believed before anybody is enrolled")
	}
	b.say(helloOf("archive-a", "1"))
	b.wantAlive("archive-a")
	twin := helloOf("archive-a", "9")
	twin.Key = keyOf("twin")
	b.say(twin)
	b.wantAlive()
	if b.state("archive-a") != StateQuarantined {
		t.Error(b.state("archive-a"))
	}
	for boot, want := range map[string]bool{"1": true, "9": false, "": false} {
		if got := b.Speaks("archive-a", boot); got != want {
			t.Errorf("process %q speaks: %v", boot, got)
		}
	}
	b.now = b.now.Add(QuarantineTime)
	b.say(helloOf("archive-a", "1"))
	b.wantAlive("archive-a")
	b.say(helloOf("archive-a", "2")) // a restart
	if !b.Speaks("archive-a", "2") || b.Speaks("archive-a", "1") {
		t.Error("after a restart the old process is believed")
	}
}

func TestTwoLiveProcessesWithOneIDAreQuarantined(t *testing.T) {
	b := newBench(t, RosterConfig{Open: true})
	say := func(boot string) {
		b.now = b.now.Add(HelloInterval / 2)
		b.say(helloOf("archive-a", boot))
	}
	// Restarts, one after the other, are not two processes.
	for boot := range 20 {
		say(fmt.Sprint("restart", boot))
		say(fmt.Sprint("restart", boot))
		b.wantAlive("archive-a")
	}
	say("one")
	say("two")
	b.wantAlive("archive-a")
	say("one")
	b.wantAlive()
	if b.state("archive-a") != StateQuarantined {
		t.Error(b.state("archive-a"))
	}
	if len(b.Rank(digestOf("x"))) != 0 {
		t.Error("offered for puts")
	}
	// As long as both speak it stays so; then one has to be alone for a while.
	for range 100 {
		say("two")
		b.wantAlive()
		say("one")
	}
	alone := b.now
	for b.now.Sub(alone) < QuarantineTime-HelloInterval/2 {
		say("one")
		b.wantAlive()
	}
	say("one")
	b.wantAlive("archive-a")
}

func TestClosedRosterEnrolsOnlyListedKeys(t *testing.T) {
	b := newBench(t, RosterConfig{Keys: []string{keyOf("archive-a")}})
	b.say(helloOf("archive-a", "1"), helloOf("archive-b", "1"), helloOf("archive-b", "1"), helloOf("archive-b", "2"))
	b.wantAlive("archive-a")
	if n := strings.Count(b.log.String(), "not enrolled"); n != 2 { // once a process
		t.Errorf("logged %d times:\n%s", n, b.log)
	}
	// Once enrolled, an archive need not be listed.
	b.cfg.Keys = nil
	b.open()
	b.say(helloOf("archive-a", "1"))
	b.wantAlive("archive-a")
	if _, err := OpenRoster(RosterConfig{Path: b.cfg.Path, Keys: []string{"short"}}); !fault.Is(err, fault.Invalid) {
		t.Errorf("a key that is none: %v", err)
	}
}

func TestMalformedHellosAreCounted(t *testing.T) {
	b := newBench(t, RosterConfig{Open: true})
	good := helloOf("archive-a", "1")
	edit := func(f func(*wire.Hello)) []byte {
		h := good
		f(&h)
		return encode(t, h)
	}
	on := wire.SubjectHelloPrefix + "archive-a"
	for i, m := range []struct {
		subject string
		data    []byte
	}{
		{on, nil}, {on, []byte("null")}, {on, []byte("{}")},
		{wire.SubjectHelloPrefix + "archive-b", encode(t, good)},
		{wire.SubjectHelloPrefix + "UPPER", edit(func(h *wire.Hello) { h.ArchiveID = "UPPER" })},
		{on, edit(func(h *wire.Hello) { h.Key = "" })},
		{on, edit(func(h *wire.Hello) { h.Key += "\n" })},
		{on, edit(func(h *wire.Hello) { h.Key = h.Key[:40] })},
		{on, edit(func(h *wire.Hello) { h.Boot = "" })},
		{on, edit(func(h *wire.Hello) { h.Boot = strings.Repeat("x", maxBoot+1) })},
		{on, edit(func(h *wire.Hello) { h.Proto = 0 })},
	} {
		b.receive(m.subject, m.data)
		if n := count(b.metrics.refused.WithLabelValues("malformed")); n != i+1 {
			t.Errorf("case %d was taken", i)
		}
	}
	if len(b.Enrolled()) != 0 {
		t.Error(b.Enrolled())
	}
	b.receive(on, edit(func(h *wire.Hello) { h.Boot = strings.Repeat("x", maxBoot); h.Proto = 2 }))
	b.wantAlive("archive-a")
}

// An archive is offered nothing before its enrolment is on disk.
func TestEnrolmentThatCannotBeWrittenDoesNotCount(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	b := newBench(t, RosterConfig{Path: filepath.Join(dir, "roster.json"), Create: true, Open: true})
	if err := os.Rename(dir, dir+".away"); err != nil {
		t.Fatal(err)
	}
	b.say(helloOf("archive-a", "1"))
	b.wantAlive()
	if len(b.Enrolled()) != 0 || b.Version() != 0 {
		t.Errorf("enrolled %v at version %d", b.Enrolled(), b.Version())
	}
	if err := os.Rename(dir+".away", dir); err != nil {
		t.Fatal(err)
	}
	b.say(helloOf("archive-a", "1"))
	b.wantAlive("archive-a")
	b.open()
	if b.Version() != 1 {
		t.Errorf("version %d", b.Version())
	}
}

func TestFullRosterTakesNobody(t *testing.T) {
	path := filepath.Join(t.TempDir(), "roster.json")
	var f rosterFile
	for i := range MaxEnrolled {
		f = f.with(wire.ArchiveID(fmt.Sprintf("archive-%04d", i)), keyOf(fmt.Sprint(i)), 1)
	}
	if err := f.save(path, writeSealed); err != nil {
		t.Fatal(err)
	}
	if data, err := (memoryFile{}).encode(); err != nil || writeSealed(MemoryPath(path), data) != nil {
		t.Fatal(err)
	}
	b := newBench(t, RosterConfig{Path: path, Open: true})
	b.say(helloOf("one-too-many", "1"))
	b.wantAlive()
	if n := count(b.metrics.refused.WithLabelValues("full")); n != 1 {
		t.Errorf("%d counted", n)
	}
}

// A roster that lost an archive would call incomplete answers complete.
func TestDamagedOrLostRosterIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "roster.json")
	b := newBench(t, RosterConfig{Path: path, Create: true, Open: true})
	b.say(helloOf("archive-a", "1"), helloOf("archive-b", "1"))
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	damage := map[string][]byte{
		"empty":        {},
		"cut":          good[:len(good)/2],
		"no JSON":      []byte("roster"),
		"null":         []byte("null"),
		"edited":       bytes.Replace(good, []byte("archive-b"), []byte("archive-c"), 1),
		"version":      bytes.Replace(good, []byte(`"version":2`), []byte(`"version":1`), 1),
		"other format": bytes.Replace(good, []byte(`"format":1`), []byte(`"format":2`), 1),
		"too long":     append(slices.Clone(good), bytes.Repeat([]byte{' '}, maxRosterLen)...),
	}
	for i := range good {
		flipped := slices.Clone(good)
		flipped[i] ^= 0x10
		damage[fmt.Sprintf("bit in byte %d (%q)", i, good[i])] = flipped
	}
	for name, data := range damage {
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		r, err := OpenRoster(RosterConfig{Path: path, Create: true})
		if err == nil && !(name[:3] == "bit" && slices.Equal(r.Enrolled(), b.Enrolled()) && r.Version() == 2) {
			t.Errorf("%s: opened with %v", name, r.Enrolled())
		}
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	_, err = OpenRoster(RosterConfig{Path: path})
	wantFault(t, err, fault.Corrupt, "")
	wantText(t, err, path, "gone")
}

func TestChangesTellWhenAnArchiveBecomesWritable(t *testing.T) {
	b := newBench(t, RosterConfig{Open: true})
	changes, stop := b.Changes()
	told := func() bool {
		select {
		case <-changes:
			return true
		default:
			return false
		}
	}
	b.say(helloOf("archive-a", "1"), helloOf("archive-b", "1"))
	if !told() || told() {
		t.Error("two enrolments should be one pending value")
	}
	b.say(helloOf("archive-a", "1"))
	if told() {
		t.Error("told although nothing changed")
	}
	draining := helloOf("archive-a", "1")
	draining.State = wire.StateDraining
	b.say(draining)
	if told() {
		t.Error("told of a drain")
	}
	b.say(helloOf("archive-a", "2"))
	if !told() {
		t.Error("not told of a return")
	}
	b.now = b.now.Add(HelloTimeout + 1)
	b.say(helloOf("archive-b", "1"))
	if !told() {
		t.Error("not told of a return after silence")
	}
	stop()
	b.say(helloOf("archive-c", "1"))
	if told() {
		t.Error("told after stop")
	}
}

func TestWaitAliveWaitsForThatMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, err := OpenRoster(RosterConfig{Path: filepath.Join(t.TempDir(), "roster.json"), Create: true, Open: true})
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() { done <- r.WaitAlive(t.Context(), 2) }()
		synctest.Wait()
		r.hear(helloOf("archive-a", "1"))
		time.Sleep(HelloTimeout + 1)      // a has fallen silent
		r.hear(helloOf("archive-b", "1")) // one alive
		synctest.Wait()
		select {
		case err := <-done:
			t.Fatalf("returned %v with one alive", err)
		default:
		}
		r.hear(helloOf("archive-a", "1"))
		if err := <-done; err != nil {
			t.Error(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		err = r.WaitAlive(ctx, 3)
		wantFault(t, err, fault.Transient, CodeNoArchive)
	})
}

func TestRosterLogsWhoFallsSilent(t *testing.T) {
	b := newBench(t, RosterConfig{Open: true})
	b.say(helloOf("archive-a", "1"))
	b.now = b.now.Add(HelloTimeout + 1)
	for range 3 {
		b.tick()
	}
	if n := strings.Count(b.log.String(), "archive is silent"); n != 1 {
		t.Errorf("logged %d times:\n%s", n, b.log)
	}
}

// The whole way: services say hello, the roster hears them, drains are heard.
func TestRosterHearsLiveArchives(t *testing.T) {
	w := startWorld(t, 2, patient, nil)
	r, err := OpenRoster(RosterConfig{Path: filepath.Join(t.TempDir(), "roster.json"), Create: true, Open: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Listen(w.conn); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close(); r.Close() })
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if err := r.WaitAlive(ctx, 2); err != nil {
		t.Fatal(err)
	}
	if err := w.sites[0].service.Drain(ctx); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the drain is heard", func() bool { return slices.Equal(r.Alive(), w.ids[1:]) })
	if !slices.Equal(r.Enrolled(), w.ids) {
		t.Error(r.Enrolled())
	}
	// A twin of archive-b: a copied directory that runs twice.
	twin := newFakeNode(t, "archive-b")
	twin.boot = "boot-of-the-twin"
	w.serve(t, &site{node: twin, blobs: newFakeBlobs(t)})
	eventually(t, "the twins are quarantined", func() bool {
		return slices.ContainsFunc(r.Snapshot(), func(m Member) bool { return m.ID == "archive-b" && m.State == StateQuarantined })
	})
	eventually(t, "the archive notices its twin", func() bool { return count(w.sites[1].service.metrics.twins) > 0 })
}
