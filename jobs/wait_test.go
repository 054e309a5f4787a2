package jobs

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/wire"
)

// waiting is an engine with one open submission and nothing that works on it.
func waiting(t *testing.T, s *submission) *Engine {
	e := &Engine{cfg: Config{PutWait: 5 * time.Second}.withDefaults(), open: map[ref]*task{}}
	e.ctx, e.cancel = context.WithCancel(t.Context())
	e.open[s.ref()] = &task{state: s}
	return e
}

func withFiles() *submission {
	return &submission{ID: wire.NewSubmissionID(), Tenant: alice, Status: wire.StatusPending, Files: []file{{}}, Parts: []part{{File: 1}}}
}

func withMetadata() *submission {
	return &submission{ID: wire.NewSubmissionID(), Tenant: alice, Status: wire.StatusPending, Parts: []part{{}}}
}

// The wait for enough copies is PUT_WAIT_MS to the instant; then files are an
// error that names the submission, and metadata goes on as pending.
func TestPutWaitIsAbsolute(t *testing.T) {
	for name, s := range map[string]*submission{"files": withFiles(), "metadata": withMetadata()} {
		synctest.Test(t, func(t *testing.T) {
			e := waiting(t, s)
			begin := time.Now()
			got, err := e.awaitStored(t.Context(), s.ref())
			if took := time.Since(begin); took != e.cfg.PutWait {
				t.Errorf("%s: waited %s of %s", name, took, e.cfg.PutWait)
			}
			if name == "metadata" && (err != nil || got.Status != wire.StatusPending) {
				t.Errorf("metadata: %+v, %v", got, err)
			}
			if name == "files" && (fault.CodeOf(err) != codeNoArchive || !fault.Is(err, fault.Transient)) {
				t.Errorf("files: %v", err)
			}
		})
	}
}

func TestStoredEndsTheWaitAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := withFiles()
		e := waiting(t, s)
		time.AfterFunc(time.Second, func() {
			stored := s.clone()
			stored.Stored = true
			e.publish(stored)
		})
		begin := time.Now()
		got, err := e.awaitStored(t.Context(), s.ref())
		if took := time.Since(begin); err != nil || !got.Stored || took != time.Second {
			t.Errorf("waited %s: %+v, %v", took, got, err)
		}
	})
}

func TestMetadataWithoutArchivesDoesNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := withMetadata()
		s.ReasonCode = codeNoArchive
		e := waiting(t, s)
		begin := time.Now()
		if _, err := e.awaitStored(t.Context(), s.ref()); err != nil || time.Since(begin) != 0 {
			t.Errorf("waited %s, %v", time.Since(begin), err)
		}
	})
}

// Every wait ends with its caller, and with the engine.
func TestWaitsEndWithCallerAndEngine(t *testing.T) {
	waits := map[string]func(*Engine, context.Context, ref) error{
		"wait": func(e *Engine, ctx context.Context, id ref) error {
			_, err := e.Wait(ctx, id.tenant, id.submission)
			return err
		},
		"stored": func(e *Engine, ctx context.Context, id ref) error {
			_, err := e.awaitStored(ctx, id)
			return err
		},
	}
	for name, wait := range waits {
		synctest.Test(t, func(t *testing.T) {
			s := withFiles()
			e := waiting(t, s)
			ctx, stop := context.WithTimeout(t.Context(), time.Second)
			defer stop()
			if err := wait(e, ctx, s.ref()); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s: the caller left: %v", name, err)
			}
			time.AfterFunc(time.Second, e.cancel)
			if err := wait(e, t.Context(), s.ref()); fault.CodeOf(err) != "CLOSING" {
				t.Errorf("%s: the engine closed: %v", name, err)
			}
			if len(e.hub.waiters) != 0 {
				t.Errorf("%s: %d waiters are left", name, len(e.hub.waiters))
			}
		})
	}
}

func TestBackoffGrowsToItsBound(t *testing.T) {
	for n, want := range map[int]time.Duration{1: firstRetry, 2: 2 * firstRetry, 5: 16 * firstRetry, 9: lastRetry, 10: lastRetry, 1000: lastRetry} {
		for range 100 {
			if got := backoff(n); got > want || got < want*4/5 {
				t.Fatalf("attempt %d: %s, want %s less at most a fifth", n, got, want)
			}
		}
	}
}

// A watch that is lost on the way costs time, not truth.
func TestLostWatchIsNotTheEnd(t *testing.T) {
	w := newWorld(t, 1, nil)
	w.archives.deliver(nil)
	if _, job := w.must(alice, hashBody(digestOf("document"), metadata("1"))); job.Status != wire.StatusCompleted {
		t.Errorf("the job is %s", encode(t, job))
	}
}

// line is an Announcer that can not announce until it is connected.
type line struct {
	to        Announcer
	connected atomic.Bool
}

var errMute = fault.New(fault.Transient, "BUS_DISCONNECTED", "no connection")

func (l *line) PublishWatch(w wire.Watch) error {
	if !l.connected.Load() {
		return errMute
	}
	return l.to.PublishWatch(w)
}

func (l *line) PublishEvent(event []byte) error {
	if !l.connected.Load() {
		return errMute
	}
	return l.to.PublishEvent(event)
}

// Without a connection submissions end all the same, and their events are
// announced, unchanged, when there is one.
func TestEventsWaitForTheConnection(t *testing.T) {
	var bus line
	w := newWorld(t, 1, func(c *Config) { bus.to, c.Announce = c.Announce, &bus })
	a, job := w.must(alice, hashBody(digestOf("document"), metadata("1")))
	if job.Status != wire.StatusCompleted || len(w.events.bySubmission(a.SubmissionID)) != 0 {
		t.Fatalf("the job is %s", encode(t, job))
	}
	bus.connected.Store(true)
	w.engine.announceAgain()
	w.engine.announceAgain()
	if events := w.announced(a.SubmissionID); len(events) != 1 || events[0].SubmissionID != a.SubmissionID {
		t.Errorf("the events are %s", encode(t, events))
	}
}

// narrow is an Announcer that carries no events, for a reason of its own.
type narrow struct {
	Announcer
	reason error
	tried  int
}

func (n *narrow) PublishEvent([]byte) error {
	n.tried++
	return n.reason
}

// An event that the bus will never carry is given up; one that it does not carry
// now is kept, and holds back the others until the next try.
func TestEventsThatCanNotBeAnnounced(t *testing.T) {
	for name, tc := range map[string]struct {
		reason      error
		tried, kept int
	}{
		"never": {fault.New(fault.Invalid, "TOO_LARGE", "larger than max_payload"), 3, 0},
		"now":   {errMute, 1, 3},
	} {
		t.Run(name, func(t *testing.T) {
			var bus line
			w := newWorld(t, 1, func(c *Config) { bus.to, c.Announce = c.Announce, &bus })
			for i := range 3 {
				w.must(alice, hashBody(digestOf(string(rune('a'+i)))))
			}
			w.settled()
			if err := w.engine.Close(); err != nil {
				t.Fatal(err)
			}
			lane := &narrow{Announcer: &bus, reason: tc.reason}
			w.config.Announce = lane
			w.open(nil)
			if lane.tried != tc.tried {
				t.Errorf("tried %d events, want %d", lane.tried, tc.tried)
			}
			if err := w.engine.save(t.Context(), &submission{Tenant: alice}); err != nil { // what was posted before is done
				t.Fatal(err)
			}
			if keys, err := w.engine.unannounced(); len(keys) != tc.kept || err != nil {
				t.Errorf("%d events are kept, want %d: %v", len(keys), tc.kept, err)
			}
		})
	}
}
