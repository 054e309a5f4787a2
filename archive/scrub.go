package archive

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/verae/archive/blob"
	"github.com/verae/archive/internal/fault"
)

// Defaults of ScrubConfig.
const (
	DefaultScrubRate  = 4 << 20   // bytes a second
	DefaultScrubEvery = time.Hour // between the beginnings of passes
)

const (
	scrubSaveEvery = 10 * time.Second // about how much work a crash repeats
	scrubRetry     = time.Minute      // after a pass could not go on
)

// ScrubConfig says how an archive reads itself while it serves.
type ScrubConfig struct {
	// Blobs has the bytes of files; nil leaves them out.
	Blobs *blob.Store
	// BytesPerSecond is how fast everything is read; 0 means DefaultScrubRate.
	BytesPerSecond int64
	// Every is the shortest time between the beginnings of two passes: a small
	// archive is read through in seconds. 0 means DefaultScrubEvery.
	Every time.Duration
}

// Scrub checks an open archive in the background, from the first file to the
// last and then again, as [Node.CheckWith] does. It remembers where it is, and
// goes on there after a restart.
type Scrub struct {
	n      *Node
	cfg    ScrubConfig
	state  *scrubState // of the goroutine of Run
	saved  time.Time   // when state was stored
	rows   int         // as of a checker
	status atomic.Pointer[ScrubStatus]
	read   prometheus.Counter
	failed prometheus.Counter
}

// ScrubStatus is what a scrub has done and found.
type ScrubStatus struct {
	Phase   string
	Seq     uint64     // last number of the log that the pass has checked
	Passes  uint64     // that were completed, ever
	Last    *ScrubPass // the last of them; nil if there is none
	Current ScrubPass  // the one under way
}

// NewScrub returns the scrub of an open archive. It takes up what an earlier one
// left in the archive's directory; if that one found damage, the archive is in
// quarantine again.
func NewScrub(n *Node, c ScrubConfig) (*Scrub, error) {
	if c.BytesPerSecond <= 0 {
		c.BytesPerSecond = DefaultScrubRate
	}
	if c.Every <= 0 {
		c.Every = DefaultScrubEvery
	}
	s := &Scrub{n: n, cfg: c, rows: checkRows}
	labels := prometheus.Labels{"archive": string(n.cfg.ID)}
	s.read = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "verae_scrub_bytes_total", ConstLabels: labels, Help: "Bytes that the scrub has read.",
	})
	s.failed = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "verae_scrub_errors_total", ConstLabels: labels, Help: "Times a scrub could not go on and tried again a minute later.",
	})
	var err error
	if s.state, err = n.loadScrub(); err != nil {
		return nil, err
	}
	for _, f := range s.state.damages() {
		if f.lasting() {
			n.health.quarantine("an earlier check found: " + f.What)
			break
		}
	}
	s.publish()
	return s, nil
}

// lasting reports whether a damage makes the archive read-only until a repair:
// that of a file does not, and some are gone after a start.
func (f Finding) lasting() bool {
	return f.Damage && f.Kind != FindingFile && f.Repair != repairStart
}

// Run scrubs until ctx ends or the archive is closed, which are no errors.
func (s *Scrub) Run(ctx context.Context) error {
	for {
		err := s.pass(ctx)
		if saveErr := s.save(); saveErr != nil {
			s.n.cfg.Log.Warn("the place of the scrub could not be written", "err", saveErr)
		}
		if ctx.Err() != nil || fault.CodeOf(err) == "CLOSED" || fault.CodeOf(err) == blob.CodeClosed {
			return nil
		}
		wait := time.Until(s.state.next(s.cfg.Every))
		if err != nil {
			s.failed.Inc()
			s.n.cfg.Log.Error("the scrub can not go on; it tries again", "err", err, "phase", s.Status().Phase)
			wait = scrubRetry
		}
		if !sleep(ctx, wait) {
			return nil
		}
	}
}

// sleep waits, and reports whether ctx still lives.
func sleep(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// pass goes on with the pass under way, or begins one, and ends it.
func (s *Scrub) pass(ctx context.Context) error {
	if s.state.position == nil {
		if time.Until(s.state.next(s.cfg.Every)) > 0 {
			return nil // one was completed before a restart
		}
		p, err := s.n.newPosition()
		if err != nil {
			return err
		}
		s.state.position = p
	}
	p := s.state.position
	pace := &pacer{rate: s.cfg.BytesPerSecond}
	c := newChecker(s.n, CheckOptions{Blobs: s.cfg.Blobs, Read: func(ctx context.Context, n int) error {
		s.read.Add(float64(n))
		return pace.wait(ctx, n)
	}}, p)
	c.saved, c.rows = s.step, s.rows
	if err := c.run(ctx); err != nil {
		return err
	}
	p.Report.end(nil)
	s.state.complete()
	s.publish()
	last := s.state.Last
	s.n.cfg.Log.Info("scrub complete", "bytes", last.Bytes, "findings", last.Found, "damages", last.Damages, "dur", time.Duration(last.Ended-last.Began)*time.Millisecond)
	return nil
}

// step is called when there is a place to remember.
func (s *Scrub) step() error {
	s.publish()
	if time.Since(s.saved) < scrubSaveEvery {
		return nil
	}
	if err := s.save(); err != nil {
		// A full disk must not end the search for damage.
		s.n.cfg.Log.Warn("the place of the scrub could not be written", "err", err)
	}
	return nil
}

func (s *Scrub) save() error {
	s.saved = time.Now()
	return s.n.saveScrub(s.state)
}

func (s *Scrub) publish() {
	st := ScrubStatus{Phase: phaseDone, Passes: s.state.Passes, Last: s.state.Last}
	if p := s.state.position; p != nil {
		st.Phase, st.Seq, st.Current = p.Phase, p.Seq, passOf(&p.Report)
	}
	s.status.Store(&st)
}

// Status returns what the scrub has done so far. It may be called from many
// goroutines.
func (s *Scrub) Status() ScrubStatus { return *s.status.Load() }

// Healthy returns nil if neither the pass under way nor the one before found
// damage; else what was found.
func (s *Scrub) Healthy() error {
	st := s.Status()
	for _, pass := range []*ScrubPass{&st.Current, st.Last} {
		if pass != nil && pass.Damages > 0 {
			return fault.New(fault.Corrupt, "DAMAGED", "archive: the scrub found %d damages, the first: %s; archived check lists them all", pass.Damages, pass.First)
		}
	}
	return nil
}

// pacer spreads reads over time.
type pacer struct {
	rate int64 // bytes a second
	next time.Time
}

// wait returns when so many bytes may be read.
func (p *pacer) wait(ctx context.Context, bytes int) error {
	now := time.Now()
	if p.next.Before(now) {
		p.next = now
	}
	at := p.next
	p.next = at.Add(time.Duration(float64(bytes) / float64(p.rate) * float64(time.Second)))
	if !sleep(ctx, at.Sub(now)) {
		return fmt.Errorf("archive: scrub: %w", ctx.Err())
	}
	return nil
}
