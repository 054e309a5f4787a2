package edge

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/verae/archive/jobs"
	"github.com/verae/archive/wire"
)

// assembleTime is how long after the end of a wait a job that ended in time may
// take to be put together. With WaitJob at 25 s an answer is under way after
// 26 s, and Zapier cuts at 30 s.
const assembleTime = time.Second

// until returns when the wait of a request ends: counted from its headers, so
// that a slow upload is no reason to answer late. wait is the route's own; a
// preference of the caller replaces it, up to WaitJob.
func (s *Server) until(x *exchange, wait time.Duration) time.Time {
	x.Header().Add("Vary", "Prefer")
	if preferred, found := preferWait(x.r.Header); found {
		wait = min(preferred, s.WaitJob)
		x.Header().Set("Preference-Applied", "wait="+strconv.Itoa(int(wait.Seconds())))
	}
	return x.start.Add(wait)
}

// await waits for the end of a submission and returns its job. ended is false
// if the job can not be shown: the time passed or the server stops, and then
// err is nil; or err says why. With a time that has passed it does not look.
func (s *Server) await(x *exchange, id wire.JobID, v jobs.View, until time.Time) (job wire.Job, ended bool, err error) {
	if !until.After(time.Now()) {
		return wire.Job{}, false, nil
	}
	var outcome string
	v.Ended, outcome, err = s.waitFor(x, v.SubmissionID, until)
	if outcome == waitEnded {
		ctx, stop := context.WithDeadline(x.r.Context(), until.Add(assembleTime))
		defer stop()
		job, err = s.Jobs.Job(ctx, x.tenant(), id, v)
		if outcome = outcomeOf(err, x.r.Context(), s.running); outcome == waitPassed {
			err = nil
		}
	}
	s.metrics.waits.WithLabelValues(outcome).Inc()
	return job, outcome == waitEnded, err
}

// waitFor waits for the end of a submission. The time that passes and the
// server's end are not errors.
func (s *Server) waitFor(x *exchange, id wire.SubmissionID, until time.Time) (end jobs.Ended, outcome string, err error) {
	ctx, stop := context.WithDeadline(x.r.Context(), until)
	defer stop()
	defer context.AfterFunc(s.running, stop)()
	end, err = s.Jobs.Wait(ctx, x.tenant(), id)
	outcome = outcomeOf(err, x.r.Context(), s.running)
	if outcome == waitPassed || outcome == waitDrained {
		err = nil
	}
	return end, outcome, err
}

// outcomeOf says how a wait ended by its error, the client's context and the
// server's.
func outcomeOf(err error, client, server context.Context) string {
	switch {
	case err == nil:
		return waitEnded
	case clientGone(client):
		return waitGone
	case errors.Is(err, context.DeadlineExceeded):
		return waitPassed
	case server.Err() != nil:
		return waitDrained
	}
	return waitFailed
}
