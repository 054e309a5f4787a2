package mirror

import (
	"container/heap"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/verae/archive/bloom"
	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/wire"
)

// A history is one life of a few archives and aggregators in time of its own:
// messages are lost, late and, between different senders, out of order; clocks
// run apart; processes are paused and killed. It asserts that no mirror ever
// denies what was acknowledged.
type history struct {
	seed   uint64
	broken string // the rule that this history leaves out; empty: none
	rng    *rand.Rand
	now    time.Duration
	queue  events
	order  int

	archives []*simArchive
	aggs     []*simAgg
	down     map[[2]int]bool // links between an archive and an aggregator

	acked, asked, believed int
	lie                    string
}

const simLease = 2 * time.Second

type event struct {
	at    time.Duration
	order int
	do    func()
}

type events []event

func (q events) Len() int { return len(q) }
func (q events) Less(i, j int) bool {
	return q[i].at < q[j].at || q[i].at == q[j].at && q[i].order < q[j].order
}
func (q events) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *events) Push(x any)   { *q = append(*q, x.(event)) }
func (q *events) Pop() any {
	e := (*q)[len(*q)-1]
	*q = (*q)[:len(*q)-1]
	return e
}

func (h *history) after(d time.Duration, do func()) {
	h.order++
	heap.Push(&h.queue, event{h.now + max(d, 0), h.order, do})
}

func (h *history) exp(mean time.Duration) time.Duration {
	return time.Duration(h.rng.ExpFloat64() * float64(mean))
}

func (h *history) oneIn(n int) bool { return h.rng.IntN(n) == 0 }

// clock is one of a process, which runs up to 5 % too fast or too slow.
func (h *history) clock() Clock {
	rate, offset := 0.95+h.rng.Float64()/10, h.exp(time.Hour)
	return func() time.Duration { return offset + time.Duration(float64(h.now)*rate) }
}

// link is one way between an archive and an aggregator. It keeps the order, but
// for requests, which are answered by many goroutines.
type link struct {
	h    *history
	ends [2]int
	last time.Duration
}

func (l *link) send(ordered bool, do func()) {
	h := l.h
	if h.down[l.ends] || h.oneIn(200) {
		return
	}
	at := h.now + 50*time.Microsecond + h.exp(300*time.Microsecond)
	if h.oneIn(200) {
		at += h.exp(60 * time.Millisecond)
	}
	if ordered {
		at = max(at, l.last)
		l.last = at
	}
	h.after(at-h.now, do)
}

// simRecord is what a put brought.
type simRecord struct {
	pair bloom.Hash
	seq  uint64
}

type simPut struct {
	simRecord
	at   uint64
	boot int
}

type simArchive struct {
	h     *history
	n     int
	clock Clock
	to    []*link // of deltas and answers, by aggregator

	up, draining bool
	boot, epoch  int
	feed         *Feed
	stored       []simRecord // on disk
	bits         []bloom.Hash
	seq          uint64
	leases       bool          // the file that says that some may be out
	grace        time.Duration // no put before, by its clock
	waiting      []*simPut
}

func (a *simArchive) id() wire.ArchiveID { return wire.ArchiveID(fmt.Sprintf("archive-%d", a.n)) }

func (a *simArchive) feedID() string { return fmt.Sprintf("boot%d.%d", a.boot, a.epoch) }

func (a *simArchive) start() {
	a.up, a.draining = true, false
	a.boot++
	a.epoch = 0
	a.bits, a.waiting, a.seq = nil, nil, 0
	for _, r := range a.stored {
		a.bits, a.seq = append(a.bits, r.pair), r.seq
	}
	a.feed = NewFeed(FeedConfig{
		Archive: a.id(), ID: a.feedID(), KeyID: "00000001", Lease: simLease, Seq: a.seq, Clock: a.clock,
		Before: func() error { a.leases = true; return nil }, Send: a.send,
	})
	if a.leases && a.h.broken != "grace" {
		a.grace = a.clock() + simLease
		boot := a.boot
		a.h.after(simLease*2, func() { // some time after it, by whatever clock
			if a.up && a.boot == boot && a.feed.Idle() && !a.feed.told {
				a.leases = false
			}
		})
	}
}

func (a *simArchive) send(d wire.Delta) {
	for i, l := range a.to {
		l.send(true, func() { a.h.aggs[i].receive(func(g *simAgg) { g.delta(a, d) }) })
	}
}

func (a *simArchive) kill() {
	a.up = false
	a.h.after(a.h.exp(500*time.Millisecond), a.start)
}

// drain ends the process in order: nothing is taken any more, holders are told,
// and if all have let go nobody has to be waited for after the next start.
func (a *simArchive) drain() {
	a.draining = true
	a.feed.Refuse(fault.New(fault.Transient, "DRAINING", "draining"))
	for i, l := range a.to {
		l.send(true, func() { a.h.aggs[i].receive(func(g *simAgg) { g.reload(a) }) })
	}
	boot := a.boot
	a.h.after(a.h.exp(20*time.Millisecond)+10*time.Millisecond, func() {
		if !a.up || a.boot != boot {
			return
		}
		a.poll()
		if len(a.waiting) == 0 && a.feed.Idle() {
			a.leases = false
		}
		a.kill()
	})
}

func (a *simArchive) put() {
	if !a.up || a.draining || a.clock() < a.grace {
		return
	}
	h := a.h
	a.seq++
	p := &simPut{simRecord: simRecord{bloom.Hash{A: h.rng.Uint64(), B: h.rng.Uint64() | 1}, a.seq}, boot: a.boot}
	a.bits = append(a.bits, p.pair)
	if h.broken == "order" { // told after the acknowledgement
		h.after(h.exp(time.Millisecond), func() {
			if a.up && a.boot == p.boot {
				a.feed.Append(p.seq, []bloom.Hash{p.pair})
			}
		})
	} else {
		a.feed.Append(p.seq, []bloom.Hash{p.pair})
	}
	p.at, _ = a.feed.Position()
	h.after(h.exp(500*time.Microsecond), func() {
		if a.boot != p.boot || !a.up && h.oneIn(2) {
			return // lost with the process, or written by it at its end
		}
		a.stored = append(a.stored, p.simRecord)
		if a.up {
			a.waiting = append(a.waiting, p)
			a.poll()
		}
	})
}

// poll acknowledges what may be.
func (a *simArchive) poll() {
	if !a.up {
		return
	}
	left := a.waiting[:0]
	for _, p := range a.waiting {
		wake, next := a.feed.waiting(p.at)
		if wake == nil || a.h.broken == "gate" {
			a.ack(p)
			continue
		}
		left = append(left, p)
		boot := a.boot
		a.h.after(next*11/10, func() {
			if a.boot == boot {
				a.poll()
			}
		})
	}
	a.waiting = left
}

// ack tells a client. Everybody who is asked from now on must not deny it.
func (a *simArchive) ack(p *simPut) {
	a.h.acked++
	a.h.ask(a, p.simRecord)
	a.h.after(a.h.exp(2*time.Millisecond), func() { a.h.ask(a, p.simRecord) })
	a.h.after(a.h.exp(time.Second), func() { a.h.ask(a, p.simRecord) })
}

// ask asks the mirrors of all aggregators, paused ones too: they may be asked as
// soon as they go on, before they look at what has come.
func (h *history) ask(a *simArchive, r simRecord) {
	for i, g := range h.aggs {
		h.asked++
		if seq, ok := g.mirrors[a.n].Absent(r.pair); ok {
			h.lie = fmt.Sprintf("seed %d: at %v the mirror of aggregator %d denies seq %d of archive %d, which was acknowledged (boot %d); it has %d", h.seed, h.now, i, r.seq, a.n, a.boot, seq)
		}
		// What was never stored costs nothing to deny, and shows that mirrors are
		// believed at all.
		if _, ok := g.mirrors[a.n].Absent(bloom.Hash{A: h.rng.Uint64(), B: h.rng.Uint64() | 1}); ok {
			h.believed++
		}
	}
}

type simAgg struct {
	h       *history
	n, life int
	clock   Clock
	to      []*link // to archives
	mirrors []*Mirror
	loading []bool
	paused  time.Duration
	busy    time.Duration // with what came while it was paused
}

func (g *simAgg) start() {
	g.life++
	g.mirrors, g.loading = nil, make([]bool, len(g.h.archives))
	for range g.h.archives {
		g.mirrors = append(g.mirrors, NewMirror(MirrorConfig{Holder: fmt.Sprintf("agg-%d.%d", g.n, g.life), Clock: g.clock}))
	}
}

// receive runs what came, when the process runs, in order.
func (g *simAgg) receive(do func(*simAgg)) {
	at := max(g.paused, g.busy)
	if g.h.now >= at {
		do(g)
		return
	}
	g.busy = at + g.h.exp(200*time.Microsecond)
	g.h.after(g.busy-g.h.now, func() {
		if g.paused > g.h.now {
			g.receive(do)
			return
		}
		do(g)
	})
}

// ask sends a request and takes the answer, if neither is lost and both processes
// are still the same.
func (g *simAgg) ask(a *simArchive, handle func() (answer func())) {
	life := g.life
	g.to[a.n].send(false, func() {
		if !a.up {
			return
		}
		answer := handle()
		a.poll()
		a.to[g.n].send(false, func() {
			g.receive(func(g *simAgg) {
				if g.life == life {
					answer()
				}
			})
		})
	})
}

// follow does what a follower does now and then.
func (g *simAgg) follow(a *simArchive) {
	g.h.after(g.h.exp(simLease/4), func() { g.receive(func(g *simAgg) { g.follow(a) }) })
	if feed, _ := g.mirrors[a.n].Position(); feed == "" {
		g.load(a)
		return
	}
	g.lease(a)
}

func (g *simAgg) load(a *simArchive) {
	if g.loading[a.n] {
		g.loading[a.n] = false // the last one was lost
		return
	}
	g.loading[a.n] = true
	g.ask(a, func() func() {
		head := wire.SnapshotHead{ArchiveID: a.id(), KeyID: "00000001"}
		head.Feed, head.At, head.Seq = a.feed.Follow()
		if g.h.broken == "follow" && len(a.bits) > 0 {
			head.At += 2
		}
		bits := a.bits
		if g.h.oneIn(2) {
			bits = bits[:len(bits):len(bits)]
		}
		set := bloom.New(bloom.Params{Capacity: 1 << 10, Secret: bloom.Secret{ID: 1}})
		for _, pair := range bits {
			set.AddHash(pair)
		}
		set.Complete()
		return func() {
			g.loading[a.n] = false
			if feed, _ := g.mirrors[a.n].Position(); feed == "" {
				g.mirrors[a.n].Load(set, head)
				g.since(a)
			}
		}
	})
}

func (g *simAgg) lease(a *simArchive) {
	m := g.mirrors[a.n]
	feed, at := m.Position()
	holder, sent := m.Holder(), g.clock()
	g.ask(a, func() func() {
		grant, err := a.feed.Lease(wire.LeaseRequest{Holder: holder, Feed: feed, At: at})
		return func() {
			switch {
			case fault.CodeOf(err) == "MIRROR_FEED":
				g.reload(a)
			case err != nil:
				g.since(a)
			default:
				switch g.h.broken {
				case "need":
					grant.Need = 0
				case "sent":
					sent = g.clock()
				case "share":
					grant.LeaseMs = grant.LeaseMs * 115 / trustShare
				}
				m.Granted(holder, sent, grant)
				if _, at := m.Position(); at < grant.At {
					g.since(a)
				}
			}
		}
	})
}

// since repairs a gap.
func (g *simAgg) since(a *simArchive) {
	m := g.mirrors[a.n]
	feed, at := m.Position()
	g.ask(a, func() func() {
		d, err := a.feed.Since(wire.DeltasRequest{Feed: feed, After: at})
		return func() {
			if err != nil {
				g.reload(a)
				return
			}
			g.delta(a, d)
		}
	})
}

// reload lets go of a mirror, in the right order.
func (g *simAgg) reload(a *simArchive) {
	holder := g.mirrors[a.n].Drop()
	g.ask(a, func() func() {
		a.feed.Lease(wire.LeaseRequest{Holder: holder, Feed: "any", Release: true})
		return func() {}
	})
}

func (g *simAgg) delta(a *simArchive, d wire.Delta) {
	m := g.mirrors[a.n]
	if feed, _ := m.Position(); feed == "" {
		return // not loaded
	}
	holder := m.Holder()
	at, err := m.Apply(d)
	switch {
	case err == nil:
	case fault.CodeOf(err) == "MIRROR_GAP":
		if g.h.broken != "gap" {
			g.since(a)
			return
		}
		m.mu.Lock()
		m.at = d.From
		m.mu.Unlock()
		at, _ = m.Apply(d)
	default:
		g.reload(a)
		return
	}
	ack := wire.DeltaAck{Holder: holder, Feed: d.Feed, At: at}
	g.to[a.n].send(false, func() {
		if a.up {
			a.feed.Ack(ack)
			a.poll()
		}
	})
}

// trouble is one fault.
func (h *history) trouble() {
	a, g := h.archives[h.rng.IntN(len(h.archives))], h.aggs[h.rng.IntN(len(h.aggs))]
	switch h.rng.IntN(7) {
	case 0, 1:
		if a.up && !a.draining {
			a.kill()
		}
	case 2:
		if a.up && !a.draining {
			a.drain()
		}
	case 3:
		g.paused = h.now + h.exp(2*time.Second)
	case 4:
		g.start()
	case 5:
		ends := [2]int{a.n, g.n}
		h.down[ends] = true
		h.after(h.exp(3*time.Second), func() { h.down[ends] = false })
	case 6:
		if a.up && !a.draining {
			a.epoch++
			a.feed.Break(a.feedID())
		}
	}
}

// live lives one history.
func live(seed uint64, broken string) *history {
	h := &history{seed: seed, broken: broken, rng: rand.New(rand.NewPCG(seed, 7)), down: map[[2]int]bool{}}
	for n := range 1 + h.rng.IntN(2) {
		h.archives = append(h.archives, &simArchive{h: h, n: n, clock: h.clock()})
	}
	for n := range 1 + h.rng.IntN(3) {
		h.aggs = append(h.aggs, &simAgg{h: h, n: n, clock: h.clock()})
	}
	for _, a := range h.archives {
		for _, g := range h.aggs {
			ends := [2]int{a.n, g.n}
			a.to = append(a.to, &link{h: h, ends: ends})
			g.to = append(g.to, &link{h: h, ends: ends})
		}
		a.start()
	}
	for _, g := range h.aggs {
		g.start()
		for _, a := range h.archives {
			g.follow(a)
		}
	}
	length := 6 * time.Second
	for at := h.exp(300 * time.Millisecond); at < length; at += h.exp(200 * time.Millisecond) {
		h.after(at, func() {
			a := h.archives[h.rng.IntN(len(h.archives))]
			for range 1 + h.rng.IntN(3) {
				a.put()
			}
		})
	}
	for at := time.Second + h.exp(time.Second); at < length; at += h.exp(2 * time.Second) {
		h.after(at, h.trouble)
	}
	for len(h.queue) > 0 && h.lie == "" {
		e := heap.Pop(&h.queue).(event)
		if e.at > length {
			break
		}
		h.now = e.at
		e.do()
	}
	return h
}
