package bus

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/verae/archive/bloom"
	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/mirror"
	"github.com/verae/archive/wire"
)

// Deltas that are lost, come twice or in another order cost a question, and no
// acknowledged record.
func TestDeltasMayBeLostRepeatedAndReordered(t *testing.T) {
	a := newViewsNode(t, "archive-a", "boot1", fleetKey, 300*time.Millisecond)
	g := newGallery(t, a)
	send := g.sites[0].sync.mirrors.send
	n := 0
	var held []wire.Delta
	a.feed.SetSend(func(d wire.Delta) { // one at a time
		switch n++; n % 5 {
		case 1: // lost
		case 2:
			send(d)
			send(d)
		case 3:
			held = append(held, d)
		default:
			send(d)
			for _, late := range held {
				send(late)
			}
			held = nil
		}
	})
	w := g.aggregator(nil)
	w.trusts(t, "archive-a")
	var wg sync.WaitGroup
	for k := range 4 {
		wg.Go(func() {
			for i := range 10 {
				subject := fmt.Sprint(k, "/", i)
				if _, err := w.archives.Put(t.Context(), "archive-a", note(subject, "")); err != nil {
					t.Error(err)
				}
				if w.silent("archive-a", subject) {
					t.Errorf("record %s is denied", subject)
				}
			}
		})
	}
	wg.Wait()
	if gaps, repaired := count(w.mirrors.metrics.gaps), count(w.mirrors.metrics.repairs); gaps == 0 || repaired == 0 {
		t.Errorf("%d gaps, %d hashes repaired", gaps, repaired)
	}
	if n := count(w.mirrors.metrics.loads.WithLabelValues("loaded")); n != 1 {
		t.Errorf("the filter was copied %d times", n)
	}
}

// An archive that answers with what the mirror has already is not asked without end.
func TestAnswersThatBringNothingEndTheRepair(t *testing.T) {
	g := newGallery(t)
	w := g.aggregator(nil)
	f := newFollower(w.mirrors, "archive-x")
	defer f.stop()
	old, err := wire.Encode(wire.Delta{ArchiveID: f.id, Feed: "boot1.1", KeyID: w.mirrors.keyID, To: wire.MaxDeltaHashes, Hashes: make([]byte, wire.HashSize*wire.MaxDeltaHashes)})
	if err != nil {
		t.Fatal(err)
	}
	var asked atomic.Int64
	nc := connect(t, g.server, "archive-x").ctl
	_, err = nc.Subscribe(wire.SubjectCtlPrefix+"archive-x", func(msg *nats.Msg) {
		if msg.Header.Get(wire.HeaderOp) != wire.OpDeltas {
			return
		}
		if asked.Add(1) == 3 {
			f.stop()
		}
		if err := msg.Respond(old); err != nil {
			t.Error(err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := flush(t.Context(), nc); err != nil {
		t.Fatal(err)
	}
	set := bloom.New(bloom.Params{Capacity: bloom.MinCapacity, Secret: fleetKey})
	set.Complete()
	c := &copied{mirror: mirror.NewMirror(mirror.MirrorConfig{Holder: "test"}), set: set, boot: "boot1", feed: "boot1.1"}
	c.mirror.Load(set, wire.SnapshotHead{Feed: c.feed, At: wire.MaxDeltaHashes})
	f.repair(c)
	if n := asked.Load(); n != 1 {
		t.Errorf("asked %d times", n)
	}
}

// An archive that was started anew is another feed: nothing of the old one counts.
func TestARestartedArchiveIsMirroredAnew(t *testing.T) {
	a := newViewsNode(t, "archive-a", "boot1", fleetKey, testLease)
	g := newGallery(t, a)
	w := g.aggregator(nil)
	w.trusts(t, "archive-a")
	g.sites[0].kill()
	b := newViewsNode(t, "archive-a", "boot2", fleetKey, testLease)
	g.serve(b)
	eventually(t, "the new process is mirrored", func() bool {
		s := w.mirrors.Silent(tenantA, digestOf("x"), []wire.ArchiveID{"archive-a"})
		return len(s) == 1 && s[0].Boot == "boot2"
	})
	g.put(w, "archive-a", "x")
	if w.silent("archive-a", "x") {
		t.Error("the new process's record is denied")
	}
}

// An archive that drains gets its leases back at once, so that its next process
// need not wait for them.
func TestADrainingArchiveGetsItsLeasesBack(t *testing.T) {
	a := newViewsNode(t, "archive-a", "boot1", fleetKey, time.Minute)
	g := newGallery(t, a)
	for range 2 {
		g.aggregator(nil)
	}
	for _, w := range g.watch {
		w.trusts(t, "archive-a")
	}
	g.sites[0].drain(t)
	if s := a.feed.Stats(); s.Holders != 0 || s.RanOut != 0 {
		t.Errorf("%+v", s)
	}
	for _, w := range g.watch {
		if w.silent("archive-a", "x") {
			t.Error("an archive whose lease was given back is believed silent")
		}
		w.state(t, "archive-a", MirrorNone, wire.StateDraining)
	}
}

// An aggregator that ends gives its leases back.
func TestAnAggregatorThatEndsIsNotWaitedFor(t *testing.T) {
	a := newViewsNode(t, "archive-a", "boot1", fleetKey, time.Minute)
	g := newGallery(t, a)
	w, ending := g.aggregator(nil), g.aggregator(nil)
	w.trusts(t, "archive-a")
	ending.trusts(t, "archive-a")
	if err := ending.mirrors.Close(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "one lease is out", func() bool { return a.feed.Stats().Holders == 1 })
	g.put(w, "archive-a", "x")
	if ending.silent("archive-a", "x") || ending.silent("archive-a", "y") {
		t.Error("an aggregator without mirrors says that somebody has nothing")
	}
}

// Archives that can not be mirrored are asked every time, and it is known why.
func TestWhatCanNotBeMirroredIsAsked(t *testing.T) {
	other := bloom.Secret{ID: 0x0badcafe, Key: [16]byte{9}}
	a := newViewsNode(t, "archive-a", "boot1", other, testLease)
	b := newViewsNode(t, "archive-b", "boot1", fleetKey, testLease)
	incomplete := error(fault.New(fault.Conflict, "FILTER_INCOMPLETE", "not ready"))
	b.refuse.Store(&incomplete)
	c := newViewsNode(t, "archive-c", "boot1", fleetKey, testLease)
	c.keyID = ""
	d := newViewsNode(t, "archive-d", "boot1", fleetKey, testLease)
	d.feed.Refuse(errors.New("not now"))
	g := newGallery(t, a, b, c, d)
	w := g.aggregator(nil)
	w.state(t, "archive-a", MirrorNone, "another filter key")
	w.state(t, "archive-b", MirrorNone, "can not be copied")
	w.state(t, "archive-c", MirrorNone, "without a filter key")
	w.state(t, "archive-d", MirrorBehind, "no lease")
	if s := w.mirrors.Silent(tenantA, digestOf("x"), []wire.ArchiveID{"archive-a", "archive-b", "archive-c", "archive-d"}); len(s) != 0 {
		t.Errorf("%+v", s)
	}
	b.refuse.Store(nil)
	d.feed.Refuse(nil)
	w.trusts(t, "archive-b")
	w.trusts(t, "archive-d")
	if s := w.mirrors.State("archive-unknown"); s.State != MirrorNone {
		t.Errorf("%+v", s)
	}
}

// A mirror that finds no room is none; one that ends makes room for it.
func TestMirrorsKeepWithinTheirMemory(t *testing.T) {
	a := newViewsNode(t, "archive-a", "boot1", fleetKey, testLease)
	b := newViewsNode(t, "archive-b", "boot1", fleetKey, testLease)
	g := newGallery(t, a, b)
	w := g.aggregator(func(c *MirrorConfig) { c.MaxBytes = uint64(a.set.Bytes()) * 3 / 2 })
	var first, second wire.ArchiveID
	eventually(t, "one of them is mirrored, and the other finds no room", func() bool {
		for _, pair := range [][2]wire.ArchiveID{{"archive-a", "archive-b"}, {"archive-b", "archive-a"}} {
			if w.silent(pair[0], "x") && strings.Contains(w.mirrors.State(pair[1]).Reason, "no such room") {
				first, second = pair[0], pair[1]
				return true
			}
		}
		return false
	})
	if w.silent(second, "x") {
		t.Error("an archive without a mirror is said to have nothing")
	}
	if err := w.roster.Retire(first); err != nil {
		t.Fatal(err)
	}
	w.trusts(t, second)
	if err := w.mirrors.Close(); err != nil || w.mirrors.used != 0 {
		t.Errorf("%d bytes are reserved at the end, %v", w.mirrors.used, err)
	}
}

// The copy of a filter that breaks off is begun anew.
func TestACopyThatBreaksOffIsBegunAnew(t *testing.T) {
	a := newViewsNode(t, "archive-a", "boot1", fleetKey, testLease)
	var broken atomic.Int32
	a.writing = func(w io.Writer) io.Writer {
		if broken.Add(1) > 2 {
			return w
		}
		return &brittle{w: w, left: wire.FragmentSize * 3 / 2}
	}
	g := newGallery(t, a)
	w := g.aggregator(nil)
	w.trusts(t, "archive-a")
	if n := count(w.mirrors.metrics.loads.WithLabelValues("failed")); n != 2 {
		t.Errorf("%d copies failed", n)
	}
	if n := g.sites[0].sync.mirrors.copies.count(); n > 1 {
		t.Errorf("%d copies are left", n)
	}
}

// brittle fails after some bytes.
type brittle struct {
	w    io.Writer
	left int
}

func (b *brittle) Write(p []byte) (int, error) {
	if b.left -= len(p); b.left < 0 {
		return 0, errors.New("broken off")
	}
	return b.w.Write(p)
}

// What a stranger sends on the two subjects is counted, and changes nothing.
func TestAStrangersWordsChangeNothing(t *testing.T) {
	a := newViewsNode(t, "archive-a", "boot1", fleetKey, testLease)
	g := newGallery(t, a)
	w := g.aggregator(nil)
	w.trusts(t, "archive-a")
	stranger := connect(t, g.server, "stranger")
	delta := wire.Delta{ArchiveID: "archive-a", Feed: "boot1.1", KeyID: a.keyID, From: 0, To: 1, Hashes: make([]byte, wire.HashSize)}
	as := func(change func(*wire.Delta)) []byte {
		d := delta
		change(&d)
		return encode(t, d)
	}
	subject := wire.SubjectFilterPrefix + "archive-a"
	for _, m := range []nats.Msg{
		{Subject: subject, Data: []byte("{")},
		{Subject: subject, Data: nil},
		{Subject: subject, Data: as(func(d *wire.Delta) { d.ArchiveID = "archive-b" })},
		{Subject: subject, Data: as(func(d *wire.Delta) { d.To = 7 })},
		{Subject: subject, Data: as(func(d *wire.Delta) { d.KeyID = "00000001" })},
		{Subject: subject, Data: as(func(d *wire.Delta) { d.Feed = "boot0.1" })},
		{Subject: subject, Data: as(func(d *wire.Delta) { d.Feed = "boot1.2" })},
		{Subject: wire.SubjectFilterPrefix + "archive-x", Data: as(func(d *wire.Delta) { d.ArchiveID = "archive-x" })},
		{Subject: wire.SubjectFilterPrefix + "_", Data: []byte("{}")},
	} {
		if err := stranger.ctl.PublishMsg(&m); err != nil {
			t.Fatal(err)
		}
	}
	for op, texts := range map[string][]string{
		wire.OpLease:    {"", "{", `{"holder":"a b","feed":"boot1.1","at":0}`, `{"holder":"stranger","feed":"boot1.1","at":9007199254740991}`, `{"holder":"stranger","feed":"other","at":0}`},
		wire.OpDeltas:   {"", "[]", `{"feed":"","after":0}`, `{"feed":"boot1.1","after":77}`},
		wire.OpSnapshot: {"", `{"offset":7}`, `{"session":"unknown","offset":0}`},
	} {
		for _, text := range texts {
			msg := &nats.Msg{Subject: wire.SubjectCtlPrefix + "archive-a", Data: []byte(text), Header: nats.Header{wire.HeaderOp: {op}}}
			reply, err := stranger.ctl.RequestMsg(msg, 10*time.Second)
			if err != nil {
				t.Fatal(op, text, err)
			}
			if replyFault(reply, "") == nil {
				t.Errorf("%s %q was answered with %q", op, text, reply.Data)
			}
		}
	}
	for _, text := range []string{"", "{", `{"holder":"stranger","feed":"boot1.1","at":1}`, `{"holder":"` + strings.Repeat("x", 9999) + `"}`} {
		msg := &nats.Msg{Subject: wire.SubjectCtlPrefix + "archive-a", Data: []byte(text), Header: nats.Header{wire.HeaderOp: {wire.OpAck}}}
		if err := stranger.ctl.PublishMsg(msg); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "all was counted", func() bool {
		d := w.mirrors.metrics.deltas
		return count(d.WithLabelValues("malformed")) == 4 && count(d.WithLabelValues("other-key")) == 1 && count(d.WithLabelValues("unused")) == 1 &&
			count(d.WithLabelValues("other-feed")) == 1 && count(d.WithLabelValues("stranger")) == 2
	})
	w.trusts(t, "archive-a")
	g.put(w, "archive-a", "x")
	if n := count(w.mirrors.metrics.loads.WithLabelValues("loaded")); n != 1 || w.silent("archive-a", "x") {
		t.Errorf("the filter was copied %d times; silent: %v", n, w.silent("archive-a", "x"))
	}
}

// An archive that acknowledges before it was sure, and one that shows what its
// mirror denied, end the belief in all mirrors.
func TestAContradictionEndsTheBeliefInAllMirrors(t *testing.T) {
	a := newViewsNode(t, "archive-a", "boot1", fleetKey, testLease)
	b := newViewsNode(t, "archive-b", "boot1", fleetKey, testLease)
	g := newGallery(t, a, b)
	w := g.aggregator(nil)
	both := []wire.ArchiveID{"archive-a", "archive-b"}
	w.trusts(t, "archive-a")
	w.trusts(t, "archive-b")
	silent := w.mirrors.Silent(tenantA, digestOf("x"), both)
	if len(silent) != 2 {
		t.Fatalf("%+v", silent)
	}
	loads := w.mirrors.metrics.loads.WithLabelValues("loaded") // a slow machine may have copied them again
	loaded := count(loads)
	w.mirrors.Contradicted(silent[0], wire.RecordID{1})
	if s := w.mirrors.Silent(tenantA, digestOf("x"), both); len(s) != 0 && count(loads) == loaded {
		t.Errorf("after a contradiction: %+v", s)
	}
	w.trusts(t, "archive-a")
	w.trusts(t, "archive-b")

	a.unsafe = true
	a.feed.SetSend(nil)
	loaded = count(loads)
	g.put(w, "archive-a", "x")
	eventually(t, "the second lock closed", func() bool {
		return count(w.mirrors.metrics.contradictions.WithLabelValues("acknowledgement")) == 1
	})
	if s := w.mirrors.Silent(tenantA, digestOf("y"), both); len(s) != 0 && count(loads) == loaded {
		t.Errorf("after an acknowledgement that came too early: %+v", s)
	}
}

// A mirror that has grown is copied anew, and is asked until then.
func TestAMirrorThatHasGrownIsCopiedAnew(t *testing.T) {
	a := newViewsNode(t, "archive-a", "boot1", fleetKey, testLease)
	a.set = bloom.New(bloom.Params{Secret: fleetKey, Capacity: bloom.MinCapacity})
	a.set.Complete()
	g := newGallery(t, a)
	w := g.aggregator(nil)
	w.trusts(t, "archive-a")
	hashes := make([]bloom.Hash, 20*bloom.MinCapacity)
	for i := range hashes {
		hashes[i] = a.set.Hash(digestOf(fmt.Sprint("key ", i)))
		a.set.AddHash(hashes[i])
	}
	larger := bloom.New(bloom.Params{Secret: fleetKey, Capacity: 64 * bloom.MinCapacity})
	for _, h := range hashes {
		larger.AddHash(h)
	}
	larger.Complete()
	a.committing.Lock()
	a.set = larger
	a.committing.Unlock()
	a.feed.Append(1, hashes)
	eventually(t, "the new copy is asked", func() bool {
		for _, f := range *w.mirrors.followers.Load() {
			c := f.serving.Load()
			return c != nil && c.gens == 1 && c.mirror.Stats().Generations == 1 && count(w.mirrors.metrics.loads.WithLabelValues("loaded")) == 2
		}
		return false
	})
	w.trusts(t, "archive-a")
	eventually(t, "the old one's lease was given back", func() bool { return a.feed.Stats().Holders == 1 })
}

// A mirror that has no room beside its successor, and is of little use, gives way.
func TestAnOutgrownMirrorGivesWayWhereMemoryIsShort(t *testing.T) {
	a := newViewsNode(t, "archive-a", "boot1", fleetKey, testLease)
	small := func(n int) *bloom.Set {
		s := bloom.New(bloom.Params{Secret: fleetKey, Capacity: uint64(n)})
		s.Complete()
		return s
	}
	a.set = small(bloom.MinCapacity)
	larger := small(8 * bloom.MinCapacity)
	g := newGallery(t, a)
	w := g.aggregator(func(c *MirrorConfig) { c.MaxBytes = uint64(larger.Bytes()) + 1<<10 })
	w.trusts(t, "archive-a")
	hashes := make([]bloom.Hash, 6*bloom.MinCapacity)
	for i := range hashes {
		hashes[i] = a.set.Hash(digestOf(fmt.Sprint("key ", i)))
		larger.AddHash(hashes[i])
	}
	a.committing.Lock()
	a.set = larger
	a.committing.Unlock()
	a.feed.Append(1, hashes)
	eventually(t, "the larger one is mirrored", func() bool {
		s := w.mirrors.State("archive-a")
		return s.State == MirrorTrusted && s.Bytes == uint64(larger.Bytes())
	})
	w.trusts(t, "archive-a")
}
