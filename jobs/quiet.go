package jobs

import (
	"context"

	"github.com/verae/archive/wire"
)

// quiet reports whether the submission is about nothing but its records: it has
// no job, nothing is sealed, and no event tells of its end.
func (s *submission) quiet() bool { return s.Unsealed || s.Control != "" }

// deliverQuiet brings the record of a submission that has no job, and the file it
// may describe, to as many archives as count as stored, and to all that answer
// soon. Then the submission has ended: nothing is sealed, and no event tells of
// it. The archives that still lack the record are the healer's.
func (e *Engine) deliverQuiet(ctx context.Context, s *submission) error {
	if err := e.deliver(ctx, s); err != nil {
		return err
	}
	if s.ended() { // it failed
		e.publish(s)
		return nil
	}
	if s.Unsealed { // its sender waits for no more: a crash from here on repeats what is there
		e.publish(s)
	}
	if err := e.at("quiet.put"); err != nil {
		return err
	}
	done := s.clone()
	done.Status = wire.StatusCompleted
	if err := e.save(ctx, done); err != nil {
		return err
	}
	*s = *done
	if err := e.at("quiet.ended"); err != nil {
		return err
	}
	e.publish(s)
	return nil
}
