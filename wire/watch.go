package wire

// Check reports the first rule that w breaks, as an *Error. SubmissionID may be
// absent: a publisher that knows only the original contract sends none.
func (w Watch) Check() error {
	if err := w.check(); err != nil {
		return err
	}
	return nil
}

func (w *Watch) check() *Error {
	if err := checkUUID(string(w.JobID), "a job id"); err != nil {
		return err.in("jobId")
	}
	if w.SubmissionID != "" {
		if err := checkUUID(string(w.SubmissionID), "a submission id"); err != nil {
			return err.in("submissionId")
		}
	}
	if w.SHA256.IsZero() {
		return refuse("sha256", "missing; give the SHA-256 that the job is about")
	}
	if err := tenantGrammar.check(string(w.TenantID)); err != nil {
		return err.in("tenantId")
	}
	return nil
}
