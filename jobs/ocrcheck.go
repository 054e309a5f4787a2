package jobs

import (
	"bytes"

	"github.com/verae/archive/wire"
)

// ocrJob checks the row of an OCR job: that a message which was not published
// waits, and that the submission is there.
func (c *checker) ocrJob(key, row []byte) error {
	job, err := decodeRow[ocrJob](key, row)
	if err != nil {
		c.note("%w", err)
		return nil
	}
	if !bytes.Equal(ocrJobKey(job.JobID), key) {
		c.note("row %x is of OCR job %s", key, job.JobID)
		return nil
	}
	if job.DoneAt == "" {
		if err := c.there(ocrWaitingKey(job.Envelope), "its message was not published", key); err != nil {
			return err
		}
	}
	return c.there(rowKey(rowSubmission, ref{job.Tenant, job.Submission}.key()), "an OCR job is of it", key)
}

// ocrWaiting checks that a message that waits is the one of its job.
func (c *checker) ocrWaiting(key, row []byte) error {
	message, payload, err := readOCR(key, row)
	if err != nil {
		c.note("%w", err)
		return nil
	}
	jobKey := ocrJobKey(payload.JobID)
	row, ok, err := getRow(c.r, jobKey)
	if err != nil {
		return err
	}
	if !ok {
		c.note("row %x is missing: its message waits (row %x)", jobKey, key)
		return nil
	}
	job, err := decodeRow[ocrJob](jobKey, row)
	if err != nil {
		return nil // it is noted when it is walked
	}
	if !bytes.Equal(ocrWaitingKey(message.ID), key) || job.Envelope != message.ID || job.DoneAt != "" {
		c.note("row %x is not the message of OCR job %s that waits", key, payload.JobID)
	}
	return nil
}

// ocrOf checks that a submission which has ended has queued what it asked for.
func (c *checker) ocrOf(s *submission, key []byte) error {
	for i := range s.Files {
		if s.Files[i].OCR && s.Status == wire.StatusCompleted {
			if err := c.there(ocrJobKey(s.ocrPayload(i).JobID), "the submission asked for the text of a file", key); err != nil {
				return err
			}
		}
	}
	return nil
}
