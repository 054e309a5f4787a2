package main

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/verae/archive/client"
	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/internal/serve"
	"github.com/verae/archive/wire"
)

// targetArgs name what is retained or held.
type targetArgs struct {
	Subject string `arg:"" name:"file|sha256" help:"A file, whose SHA-256 it is about, or a SHA-256 in any published form."`
	Record  string `name:"record" placeholder:"ID" help:"One record alone; default: every record about the SHA-256, also those that come later."`
	Reason  string `name:"reason" placeholder:"TEXT" help:"Why; kept with the decision."`
}

func (a *targetArgs) target() (t client.Target, err error) {
	if t.SHA256, err = subject(a.Subject); err != nil {
		return t, err
	}
	if a.Record == "" {
		return t, nil
	}
	if t.RecordID, err = wire.ParseRecordID(a.Record); err != nil {
		return t, fault.Wrap(fault.Invalid, fmt.Errorf("--record: %w", err))
	}
	return t, nil
}

type retainCmd struct {
	targetArgs
	Until string `required:"" placeholder:"TIME" help:"Until when: a day, which means its start in UTC, or an instant in RFC 3339. It can be extended later, and never shortened."`
}

// Run retains.
func (c *retainCmd) Run(s *session) error {
	t, err := c.target()
	if err != nil {
		return err
	}
	until, err := instant(c.Until)
	if err != nil {
		return err
	}
	out, err := s.client.Retain(s.ctx, t, until, c.Reason)
	if err != nil {
		return err
	}
	return s.steered(&out, "retained", "until "+string(out.Retention.Until()))
}

// instant reads a day or an instant.
func instant(text string) (time.Time, error) {
	if day, err := time.Parse(time.DateOnly, text); err == nil {
		return day, nil
	}
	at, ok := wire.Time(text).Instant()
	if !ok {
		return at, fault.New(fault.Invalid, "USAGE", "--until: %q is no time: write 2036-11-30, or 2036-11-30T12:00:00Z", text)
	}
	return at, nil
}

type holdCmd struct {
	targetArgs
	Name string `name:"name" help:"Which of several holds; default: the unnamed one."`
}

// Run puts a hold on.
func (c *holdCmd) Run(s *session) error {
	t, err := c.target()
	if err != nil {
		return err
	}
	out, err := s.client.Hold(s.ctx, t, c.Name, c.Reason)
	if err != nil {
		return err
	}
	return s.steered(&out, "held", c.Name)
}

type releaseCmd struct {
	targetArgs
	Name string `name:"name" help:"Which of several holds; default: the unnamed one."`
}

// Run takes a hold off.
func (c *releaseCmd) Run(s *session) error {
	t, err := c.target()
	if err != nil {
		return err
	}
	out, err := s.client.Release(s.ctx, t, c.Name, c.Reason)
	if err != nil {
		return err
	}
	return s.steered(&out, "released", c.Name)
}

// steered prints what became of a decision, and how it stands now.
func (s *session) steered(out *wire.Steered, what, which string) error {
	err := s.print(out, func() {
		said := []any{what, out.SHA256}
		if which != "" {
			said = append(said, which)
		}
		if !out.Changed {
			said = append(said, "as before")
		}
		s.line(append(said, fmt.Sprintf("on %d of %d archives", out.Copies, out.Archives))...)
		s.retention("  now     ", out.Retention)
	})
	if err == nil && out.Status == wire.StatusPending {
		return &serve.ExitError{Code: serve.ExitPending, Err: errors.New("decided and safe, but not on enough archives yet: it gets there by itself")}
	}
	return err
}

// retention prints how something stands, if there is something to say.
func (s *session) retention(label string, r *wire.Retention) {
	if r == nil {
		return
	}
	var said []any
	if r.RetainUntil != "" {
		said = append(said, "retained until "+string(r.RetainUntil))
	}
	if len(r.Holds) > 0 {
		said = append(said, "held: "+holdList(r.Holds))
	}
	s.line(append([]any{label}, said...)...)
}

func holdList(holds []wire.Hold) string {
	text := make([]string, len(holds))
	for i, h := range holds {
		text[i] = fmt.Sprintf("%q", h.Name)
		if h.Reason != "" {
			text[i] += " (" + h.Reason + ")"
		}
		if !h.RecordID.IsZero() {
			text[i] += " on this record"
		}
	}
	return strings.Join(text, ", ")
}
