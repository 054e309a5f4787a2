package wire

import (
	"encoding/base64"
	"encoding/json"
)

// putInput is a Put in either of its forms. Pointers tell absent from empty.
type putInput struct {
	PutID         PutID      `json:"putId"`
	RosterVersion uint64     `json:"rosterVersion"`
	Checkpoint    bool       `json:"checkpoint"`
	Record        *PutRecord `json:"record"`

	SHA256   *Digest   `json:"sha256"`
	TenantID *TenantID `json:"tenantId"`
	Kind     *Kind     `json:"kind"`
	Body     RawJSON   `json:"body"`
}

// DecodePut reads a Put, strictly as Decode does, in the form {putId,
// rosterVersion, record} or in the minimal one of a peer that knows only the
// original contract, {sha256, tenantId, kind, body}. There the body is either a
// string, the base64 of the bytes to store, or any other JSON value, whose exact
// text is stored. Everything else of a minimal Put stays absent. A text with
// parts of both forms is refused, because two readers would take two records
// from it.
//
// DecodePut does not Check the result.
func DecodePut(data []byte) (Put, error) {
	in, err := Decode[putInput](data)
	if err != nil {
		return Put{}, err
	}
	flat := in.SHA256 != nil || in.TenantID != nil || in.Kind != nil || in.Body != nil
	switch {
	case in.Record != nil && flat:
		return Put{}, refuse("record", "stands beside sha256, tenantId, kind or body; send either a record or the minimal form")
	case in.Record != nil:
		return Put{PutID: in.PutID, RosterVersion: in.RosterVersion, Checkpoint: in.Checkpoint, Record: *in.Record}, nil
	case !flat:
		return Put{}, refuse("record", "missing; send {putId, record} or {sha256, tenantId, kind, body}")
	}
	body, err := minimalBody(in.Body)
	if err != nil {
		return Put{}, err
	}
	put := Put{PutID: in.PutID, RosterVersion: in.RosterVersion, Checkpoint: in.Checkpoint, Record: PutRecord{Body: body}}
	if in.SHA256 != nil {
		put.Record.SHA256 = *in.SHA256
	}
	if in.TenantID != nil {
		put.Record.TenantID = *in.TenantID
	}
	if in.Kind != nil {
		put.Record.Kind = *in.Kind
	}
	return put, nil
}

// minimalBody returns the bytes that the body of a minimal Put stands for.
func minimalBody(text RawJSON) ([]byte, error) {
	if len(text) == 0 || text[0] != '"' {
		return text, nil
	}
	var s string
	if err := json.Unmarshal(text, &s); err != nil {
		return nil, refuse("body", "%v", err)
	}
	body, err := base64.StdEncoding.DecodeString(s)
	if err != nil {
		return nil, refuse("body", "a string body is standard base64 with padding: %v", err)
	}
	return body, nil
}
