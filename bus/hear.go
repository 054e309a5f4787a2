package bus

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/verae/archive/wire"
)

// helloProto is the version of the hello that this package speaks. A higher one
// is understood as far as it goes: payloads change by addition only.
const helloProto = 1

// keptBoots is how many earlier processes of an archive are remembered, to tell
// a restart from a second live process.
const keptBoots = 8

// keptRefusals bounds the memory of what has been logged, and maxBoot the length
// of what a hello may put there.
const (
	keptRefusals = 1024
	maxBoot      = 64
)

// A member is an enrolled archive. The roster's mu guards it.
type member struct {
	entry  rosterEntry
	memory remembered
	hello  wire.Hello // the last one of the accepted generation
	heard  time.Time  // when; zero: never
	boots  []string   // processes that were superseded, the newest last
	back   uint64     // seq that the process of hello came back with, as far as was heard
	owed   uint64     // the most that the process before it acknowledged, heard too late; 0: nothing
	owedAt time.Time  // when
	twice  time.Time  // when two live processes were last noticed; zero: never
	twin   wire.Hello // the last of the other one; it has a meaning while they are noticed
	shown  string     // the state that was logged last

	waiting   wire.Hello // the last one of a newer generation
	waitingAt time.Time  // when; zero: never
	fencedAt  time.Time  // when an older generation was last heard; zero: never

	unready bool   // others may rely on a roster without it, or with an older generation of it: no puts yet
	since   uint64 // the version that everybody has to have for that to be over
	lent    string // the process that the aggregator which enrols believes; see borrowed

	told   [2]string // the process and the checkpoint that came last, good or bad, in each way
	asked  time.Time // when a proof was last asked for
	proved string    // the process whose log was proved to continue the one remembered
}

func (m *member) fresh(now time.Time) bool { return lately(m.heard, now) }

func lately(at, now time.Time) bool { return !at.IsZero() && now.Sub(at) <= HelloTimeout }

func (m *member) quarantined(now time.Time) bool {
	return !m.twice.IsZero() && now.Sub(m.twice) < QuarantineTime
}

func (m *member) writable(now time.Time) bool {
	return m.fresh(now) && m.hello.State == wire.StateUp && !m.quarantined(now) && m.memory.Lost == nil && !m.unready
}

// state is the worst that is known: what an operator has to see to first.
func (m *member) state(now time.Time) string {
	fresh := m.fresh(now)
	switch {
	case !fresh && lately(m.waitingAt, now):
		return StateUnaccepted
	case !fresh && lately(m.fencedAt, now):
		return StateFenced
	case m.memory.Lost != nil:
		return StateLost
	case !fresh:
		return StateSilent
	case m.quarantined(now):
		return StateQuarantined
	}
	return m.hello.State
}

// hear takes a hello of this archive. A process that was superseded by another
// and speaks again is alive together with it: both claim the id. It reports
// whether the hello is of the newest process.
func (m *member) hear(h wire.Hello, now time.Time) (newest bool) {
	newest = true
	if old := m.hello.Boot; !m.heard.IsZero() && old != h.Boot {
		if slices.Contains(m.boots, h.Boot) {
			m.twice, m.twin, newest = now, m.hello, false
		}
		if !newest || m.owed <= m.back { // what a live twin acknowledged is not owed by the other
			m.back, m.owed = h.Seq, 0
		}
		m.boots = slices.DeleteFunc(m.boots, func(b string) bool { return b == old || b == h.Boot })
		m.boots = append(m.boots, old)
		if len(m.boots) > keptBoots {
			m.boots = m.boots[1:]
		}
	}
	if m.heard.IsZero() {
		m.back = h.Seq
	}
	m.hello, m.heard = h, now
	return newest
}

// owe notes an acknowledgement of the process that was superseded last: it was on
// its way when the next one said hello, and may be of more than that one has.
func (m *member) owe(boot string, seq uint64, now time.Time) {
	if n := len(m.boots); n > 0 && m.boots[n-1] == boot && !m.quarantined(now) && seq > max(m.back, m.owed) {
		m.owed, m.owedAt = seq, now
	}
}

// receive takes a message on a hello subject.
func (r *Roster) receive(subject string, data []byte) {
	hello, ok := parseHello(subject, data)
	if !ok {
		r.metrics.refused.WithLabelValues("malformed").Inc()
		return
	}
	r.hear(hello)
}

// parseHello reads a hello and checks that it came on the subject of its archive,
// which permissions tie to one role.
func parseHello(subject string, data []byte) (wire.Hello, bool) {
	id, err := wire.ParseArchiveID(strings.TrimPrefix(subject, wire.SubjectHelloPrefix))
	if err != nil {
		return wire.Hello{}, false
	}
	hello, err := wire.Decode[wire.Hello](data)
	if err != nil || hello.ArchiveID != id || hello.Proto < helloProto ||
		hello.Boot == "" || len(hello.Boot) > maxBoot || hello.Generation < 1 || checkKey(hello.Key) != nil {
		return wire.Hello{}, false
	}
	switch hello.State {
	case wire.StateUp, wire.StateDraining, wire.StateReadonly:
	default:
		hello.State = wire.StateReadonly // a newer state: surely alive, surely no reason to put
	}
	if len(hello.Reason) > maxReason || strings.Trim(hello.Reason, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") != "" {
		hello.Reason = "" // it is shown to people, and is a code
	}
	return hello, true
}

// maxReason bounds the code of why an archive is not up, in bytes.
const maxReason = 32

// hear takes a hello, enrolling its archive if that is allowed.
func (r *Roster) hear(hello wire.Hello) {
	r.hearing.Lock()
	defer r.hearing.Unlock()
	if r.closed() {
		return
	}
	r.mu.RLock()
	m := r.members[hello.ArchiveID]
	r.mu.RUnlock()
	if m == nil {
		if m = r.enrol(hello); m == nil {
			return
		}
	}
	if !r.admit(m, hello) {
		return
	}
	r.metrics.hellos.Inc()
	c := r.checkpointOf(m, hello.Checkpoint, hello.Boot, byHello)
	if r.take(m, hello, c) {
		r.saveNow()
	}
}

// take makes a hello of the accepted archive the last one. It reports whether a
// loss showed.
func (r *Roster) take(m *member, hello wire.Hello, c *signed) (lost bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.now()
	was := m.writable(now)
	if m.hear(hello, now) {
		lost = r.judge(m, &hello, c, now)
	}
	r.note(m, now)
	if !was && m.writable(now) {
		r.announce()
	}
	return lost
}

// enrol adds the archive of hello to the roster and returns it, or nil if it may
// not. The file is durable before anybody can place a record there.
func (r *Roster) enrol(hello wire.Hello) *member {
	if r.borrows != nil {
		return nil // who enrols will tell
	}
	if find(r.file.Retired, hello.ArchiveID) != nil {
		r.refuse("retired", hello, "ignoring an archive that was retired; to take it back: verae archives accept "+string(hello.ArchiveID)+"/g"+strconv.Itoa(hello.Generation)+" --key "+hello.Key)
		return nil
	}
	if !r.open && !r.keys[hello.Key] {
		r.refuse("not-listed", hello, "ignoring an archive that is not enrolled; add its key to the list, or set ENROL=open")
		return nil
	}
	if len(r.file.Archives) >= MaxEnrolled {
		r.refuse("full", hello, "ignoring an archive: the roster is full")
		return nil
	}
	file := r.file.with(hello.ArchiveID, hello.Key, hello.Generation)
	if err := file.save(r.path, r.write); err != nil {
		r.metrics.refused.WithLabelValues("disk").Inc()
		r.log.Error("cannot enrol an archive; trying again at its next hello", "archive", hello.ArchiveID, "err", err)
		return nil
	}
	r.adopt(file)
	r.hold(hello.ArchiveID)
	r.log.Info("archive enrolled", "archive", hello.ArchiveID, "key", hello.Key, "version", file.Version)
	return r.members[hello.ArchiveID]
}

// refuse counts a hello that is ignored, and logs it once for each process.
func (r *Roster) refuse(reason string, hello wire.Hello, why string) {
	r.metrics.refused.WithLabelValues(reason).Inc()
	once := reason + " " + string(hello.ArchiveID) + " " + hello.Key + " " + hello.Boot
	if r.seen[once] || len(r.seen) >= keptRefusals {
		return
	}
	r.seen[once] = true
	r.log.Warn(why, "archive", hello.ArchiveID, "key", hello.Key, "boot", hello.Boot)
}
