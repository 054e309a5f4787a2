package edge

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/verae/archive/jobs"
	"github.com/verae/archive/wire"
)

// getJob answers with a job as it is.
func (s *Server) getJob(x *exchange) error { return s.showJob(x, 0) }

// getJobWait waits for the job's end first.
func (s *Server) getJobWait(x *exchange) error { return s.showJob(x, s.WaitJob) }

// showJob answers 200 with the job, or, if it was waited for in vain, 202.
func (s *Server) showJob(x *exchange, wait time.Duration) error {
	id, view, err := jobAsked(x)
	if err != nil {
		return err
	}
	until := s.until(x, wait)
	job, err := s.Jobs.Job(x.r.Context(), x.tenant(), id, view)
	if err != nil {
		return err
	}
	if job.Status != wire.StatusPending {
		return x.answerTagged(job)
	}
	waiting := until.After(time.Now()) && x.r.Method == http.MethodGet
	if waiting && job.SubmissionID != "" {
		view.SubmissionID = job.SubmissionID // the newest may be another one by then
		later, ended, err := s.await(x, id, view, until)
		if err != nil {
			return err
		}
		if ended {
			return x.answerTagged(later)
		}
	}
	x.Header().Set("Retry-After", retryAfter(time.Second))
	if !waiting {
		return x.answer(http.StatusOK, job)
	}
	x.Header().Set("Location", statusURL(id, view))
	return x.answer(http.StatusAccepted, job)
}

// jobAsked reads which job is asked for, and how it is to be shown.
func jobAsked(x *exchange) (id wire.JobID, view jobs.View, err error) {
	if id, err = wire.ParseJobID(x.r.PathValue("jobId")); err != nil {
		return "", view, badParameter("jobId", "%w", err)
	}
	q, err := x.query()
	if err != nil {
		return "", view, err
	}
	submission, err := q.text("submission")
	if err != nil {
		return "", view, err
	}
	if submission != "" {
		if view.SubmissionID, err = wire.ParseSubmissionID(submission); err != nil {
			return "", view, badParameter("submission", "%w", err)
		}
	}
	view.IncludeAttached, err = q.flag("includeAttached")
	return id, view, err
}

// statusURL is where a job is found, under the view that was asked for.
func statusURL(id wire.JobID, v jobs.View) string {
	url := "/zapier/v1/timestamp/" + string(id) + "?submission=" + string(v.SubmissionID)
	if v.IncludeAttached != nil {
		url += "&includeAttached=" + strconv.FormatBool(*v.IncludeAttached)
	}
	return url
}

// getReceipts answers with what is known under a digest, in any of the accepted
// spellings.
func (s *Server) getReceipts(x *exchange) error {
	digest, err := wire.ParseDigest(x.r.PathValue("sha256"))
	if err != nil {
		return badParameter("sha256", "%w", err)
	}
	q, err := x.query()
	if err != nil {
		return err
	}
	include, err := q.flag("includeAttached")
	if err != nil {
		return err
	}
	kinds, err := q.kinds()
	if err != nil {
		return err
	}
	job, err := s.Jobs.Receipts(x.r.Context(), x.tenant(), digest, include == nil || *include, kinds)
	if err != nil {
		return err
	}
	return x.answerTagged(job)
}

// maxKinds bounds the kinds that one request may name.
const maxKinds = 32

// kinds reads the parameter kinds: a list with commas, given once or often.
func (p params) kinds() (kinds []wire.Kind, err error) {
	for _, list := range p["kinds"] {
		for text := range strings.SplitSeq(list, ",") {
			kind, err := wire.ParseKind(strings.TrimSpace(text))
			if err != nil {
				return nil, badParameter("kinds", "%w", err)
			}
			if kinds = append(kinds, kind); len(kinds) > maxKinds {
				return nil, badParameter("kinds", "more than %d kinds; ask for all, or in several requests", maxKinds)
			}
		}
	}
	return kinds, nil
}
