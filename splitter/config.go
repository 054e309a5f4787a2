package splitter

import (
	"context"
	"errors"
	"fmt"

	"github.com/verae/archive/wire"
)

// Config is what reading a request needs beside its bytes.
type Config struct {
	Limits       Limits            // zero fields mean defaults
	Uploader     Uploader          // takes the files; nil refuses nothing but makes every file an internal error
	SubmissionID wire.SubmissionID // of the submission this request becomes; never empty
	TenantID     wire.TenantID     // of the caller; a tenantId in the body is ignored
	// WantTenant is for doors without credentials of their own, such as the bus:
	// TenantID is not used, and the JSON body must have tenantId and may have
	// idempotencyKey and wait; see Request.
	WantTenant bool
}

// errNoSubmission is returned, as an internal error, for a Config that misses
// its submission id.
var errNoSubmission = errors.New("splitter: Config.SubmissionID is empty")

// read runs what reads a request into a draft, and gives up every upload unless
// it succeeds, also when it panics.
func (c *Config) read(ctx context.Context, body func(*draft) error) (*Request, error) {
	if c.SubmissionID == "" {
		return nil, errNoSubmission
	}
	if err := c.Limits.Check(); err != nil {
		return nil, fmt.Errorf("splitter: Config.Limits: %v", err) // not wrapped: the sender is not to blame
	}
	d := newDraft(ctx, c)
	kept := false
	defer func() {
		if !kept {
			d.in.abort()
		}
	}()
	if err := body(d); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("splitter: read the request: %w", err)
	}
	req := d.request()
	kept = true
	return req, nil
}
