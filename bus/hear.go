package bus

import (
	"slices"
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
	entry rosterEntry
	hello wire.Hello // the last one
	heard time.Time  // when; zero: never
	boots []string   // processes that were superseded, the newest last
	twice time.Time  // when two live processes were last noticed; zero: never
	shown string     // the state that was logged last
}

func (m *member) fresh(now time.Time) bool {
	return !m.heard.IsZero() && now.Sub(m.heard) <= HelloTimeout
}

func (m *member) quarantined(now time.Time) bool {
	return !m.twice.IsZero() && now.Sub(m.twice) < QuarantineTime
}

func (m *member) writable(now time.Time) bool {
	return m.fresh(now) && m.hello.State == wire.StateUp && !m.quarantined(now)
}

func (m *member) state(now time.Time) string {
	switch {
	case !m.fresh(now):
		return StateSilent
	case m.quarantined(now):
		return StateQuarantined
	}
	return m.hello.State
}

// hear takes a hello of this archive. A process that was superseded by another
// and speaks again is alive together with it: both claim the id.
func (m *member) hear(h wire.Hello, now time.Time) {
	if old := m.hello.Boot; !m.heard.IsZero() && old != h.Boot {
		if slices.Contains(m.boots, h.Boot) {
			m.twice = now
		}
		m.boots = slices.DeleteFunc(m.boots, func(b string) bool { return b == old || b == h.Boot })
		m.boots = append(m.boots, old)
		if len(m.boots) > keptBoots {
			m.boots = m.boots[1:]
		}
	}
	m.hello, m.heard = h, now
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
		hello.Boot == "" || len(hello.Boot) > maxBoot || checkKey(hello.Key) != nil {
		return wire.Hello{}, false
	}
	switch hello.State {
	case wire.StateUp, wire.StateDraining, wire.StateReadonly:
	default:
		hello.State = wire.StateReadonly // a newer state: surely alive, surely no reason to put
	}
	return hello, true
}

// hear takes a hello, enrolling its archive if that is allowed.
func (r *Roster) hear(hello wire.Hello) {
	r.hearing.Lock()
	defer r.hearing.Unlock()
	r.mu.RLock()
	m := r.members[hello.ArchiveID]
	r.mu.RUnlock()
	if m == nil {
		if m = r.enrol(hello); m == nil {
			return
		}
	}
	if m.entry.Key != hello.Key {
		r.refuse("key", hello, "ignoring an archive that is not the one enrolled under its id: the keys differ; stop one of the two")
		r.mu.Lock()
		defer r.mu.Unlock()
		now := r.now()
		m.twice = now // both hear what is sent to the id: no bytes are offered to it
		r.note(m, now)
		return
	}
	r.metrics.hellos.Inc()
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.now()
	was := m.writable(now)
	m.hear(hello, now)
	r.note(m, now)
	if !was && m.writable(now) {
		r.announce()
	}
}

// enrol adds the archive of hello to the roster and returns it, or nil if it may
// not. The file is durable before anybody can place a record there.
func (r *Roster) enrol(hello wire.Hello) *member {
	if !r.open && !r.keys[hello.Key] {
		r.refuse("not-listed", hello, "ignoring an archive that is not enrolled; add its key to the list, or set ENROL=open")
		return nil
	}
	if len(r.file.Archives) >= MaxEnrolled {
		r.refuse("full", hello, "ignoring an archive: the roster is full")
		return nil
	}
	file := r.file.with(hello.ArchiveID, hello.Key)
	if err := file.save(r.path); err != nil {
		r.metrics.refused.WithLabelValues("disk").Inc()
		r.log.Error("cannot enrol an archive; trying again at its next hello", "archive", hello.ArchiveID, "err", err)
		return nil
	}
	r.adopt(file)
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
