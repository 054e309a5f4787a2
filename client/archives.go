package client

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/wire"
)

// LostRecord is a record that an archive acknowledged and that no archive has.
type LostRecord struct {
	RecordID     wire.RecordID     `json:"recordId"`
	Kind         wire.Kind         `json:"kind"`
	TenantID     wire.TenantID     `json:"tenantId"`
	SubmissionID wire.SubmissionID `json:"submissionId"`
	SHA256       wire.Digest       `json:"sha256"` // the subject
	FoundAt      wire.Time         `json:"foundAt"`
}

// Accounting is how far the acknowledgements of an archive are accounted for.
type Accounting struct {
	Submissions uint64    `json:"submissions"` // looked at
	Records     uint64    `json:"records"`     // of them acknowledged by the archive
	Absent      uint64    `json:"absent"`      // acknowledged, and not there
	Lost        uint64    `json:"lost"`        // of these on no archive
	Undecided   uint64    `json:"undecided,omitzero"`
	StartedAt   wire.Time `json:"startedAt"`
	DoneAt      wire.Time `json:"doneAt,omitzero"` // absent: not yet
}

// LostPage is some of the list of lost records of an archive. More says that the
// list goes on behind the last of them.
type LostPage struct {
	ArchiveID  wire.ArchiveID `json:"archiveId"`
	Accounting *Accounting    `json:"accounting,omitempty"` // nil: it never was accounted for
	Records    []LostRecord   `json:"records"`
	More       bool           `json:"more,omitzero"`
}

// AcceptArchive admits a newer generation of an archive, for ever instead of the
// older ones; an empty key stands for that of the process that says hello. It
// returns the list of archives as the server sent it.
func (c *Client) AcceptArchive(ctx context.Context, id wire.ArchiveID, generation int, key string) (json.RawMessage, error) {
	return c.order(ctx, id, "accept", struct {
		Generation int    `json:"generation"`
		Key        string `json:"key,omitzero"`
	}{generation, key})
}

// RetireArchive takes an archive out of the roster; without force only if no
// record needs it. It returns the list of archives that are left.
func (c *Client) RetireArchive(ctx context.Context, id wire.ArchiveID, force bool) (json.RawMessage, error) {
	return c.order(ctx, id, "retire", struct {
		Force bool `json:"force,omitzero"`
	}{force})
}

// LostRecords returns records that were lost with an archive, behind the one
// named, zero for the first.
func (c *Client) LostRecords(ctx context.Context, id wire.ArchiveID, after wire.RecordID) (LostPage, error) {
	path := archivePath(id, "lost")
	if !after.IsZero() {
		path += "?after=" + after.String()
	}
	resp, err := c.get(ctx, path)
	if err != nil {
		return LostPage{}, err
	}
	return decode[LostPage](resp)
}

func archivePath(id wire.ArchiveID, what string) string {
	return "/zapier/v1/archives/" + url.PathEscape(string(id)) + "/" + what
}

// order posts what an operator decided about an archive.
func (c *Client) order(ctx context.Context, id wire.ArchiveID, what string, v any) (json.RawMessage, error) {
	body, err := wire.Encode(v)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.base()+archivePath(id, what), bytes.NewReader(body))
	if err != nil {
		return nil, fault.Wrap(fault.Invalid, fmt.Errorf("client: %w", err))
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := c.do(req)
	if err != nil {
		return nil, err
	}
	return decode[json.RawMessage](resp)
}
