package client

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/wire"
)

// Target is what a tenant retains or holds: one record, or, with a zero
// RecordID, every record of his about a digest, also those that come later.
type Target struct {
	SHA256   wire.Digest   `json:"sha256"`
	RecordID wire.RecordID `json:"recordId,omitzero"`
}

// Retain retains the target until an instant. A date that is before the one that
// stands is refused with the code RETENTION_SHORTER: retention never shrinks.
func (c *Client) Retain(ctx context.Context, t Target, until time.Time, reason string) (wire.Steered, error) {
	return c.control(ctx, http.MethodPost, "/zapier/v1/retentions", struct {
		Target
		RetainUntil wire.Time `json:"retainUntil"`
		Reason      string    `json:"reason,omitzero"`
	}{t, wire.At(until), reason})
}

// Hold puts a hold on the target; an empty name is the unnamed one. Holding what
// is held changes nothing.
func (c *Client) Hold(ctx context.Context, t Target, name, reason string) (wire.Steered, error) {
	return c.control(ctx, http.MethodPost, "/zapier/v1/holds", struct {
		Target
		Name   string `json:"name,omitzero"`
		Reason string `json:"reason,omitzero"`
	}{t, name, reason})
}

// Release takes the hold with a name off the target. It needs the scope admin; a
// hold that is not there is refused with the code NO_HOLD.
func (c *Client) Release(ctx context.Context, t Target, name, reason string) (wire.Steered, error) {
	query := url.Values{}
	for key, value := range map[string]string{"name": name, "reason": reason} {
		if value != "" {
			query.Set(key, value)
		}
	}
	if !t.RecordID.IsZero() {
		query.Set("recordId", t.RecordID.String())
	}
	return c.control(ctx, http.MethodDelete, "/zapier/v1/holds/"+t.SHA256.String()+"?"+query.Encode(), nil)
}

// Retentions returns how all that the tenant has about a digest stands.
func (c *Client) Retentions(ctx context.Context, d wire.Digest) (wire.Retentions, error) {
	resp, err := c.get(ctx, "/zapier/v1/retentions/"+d.String())
	if err != nil {
		return wire.Retentions{}, err
	}
	return decode[wire.Retentions](resp)
}

// control sends a request that decides, with v as its JSON unless it is nil.
func (c *Client) control(ctx context.Context, method, path string, v any) (wire.Steered, error) {
	var body []byte
	if v != nil {
		var err error
		if body, err = json.Marshal(v); err != nil {
			return wire.Steered{}, fmt.Errorf("client: %w", err)
		}
	}
	req, err := http.NewRequestWithContext(ctx, method, c.base()+path, bytes.NewReader(body))
	if err != nil {
		return wire.Steered{}, fault.Wrap(fault.Invalid, fmt.Errorf("client: %w", err))
	}
	if v != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := c.do(req)
	if err != nil {
		return wire.Steered{}, err
	}
	return decode[wire.Steered](resp)
}
