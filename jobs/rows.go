package jobs

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"slices"
	"strings"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/wire"
)

// Prefixes of the key space; see the package comment.
const (
	rowMeta        = 'm'
	rowReservation = 'd'
	rowJob         = 'j'
	rowSubmission  = 's'
	rowByDigest    = 't'
	rowFingerprint = 'f'
	rowIdempotency = 'k'
	rowOutbox      = 'o'
	rowPending     = 'p'
	rowEvent       = 'e'
	rowUnannounced = 'n'
	rowExpiry      = 'x'
	rowAccount     = 'w'
	rowLost        = 'l'
	rowVanished    = 'v'
	rowSteering    = 'r'
	rowControl     = 'c'
	rowSpread      = 'a'
	rowUnsealed    = 'u'
	rowOCRJob      = 'g'
	rowOCRWaiting  = 'q'
)

// rowVersion is the first byte of every value. Raise it when a payload changes
// in a way that an older program would misread, and keep reading the old one.
const rowVersion = 1

// rowHeader is the length of the version byte and the checksum.
const rowHeader = 5

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// encodeRow frames a value for the store.
func encodeRow(v any) ([]byte, error) {
	payload, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("jobs: encode %T: %w", v, err)
	}
	return frameRow(payload), nil
}

func frameRow(payload []byte) []byte {
	row := make([]byte, rowHeader, rowHeader+len(payload))
	row[0] = rowVersion
	binary.BigEndian.PutUint32(row[1:], crc32.Checksum(payload, castagnoli))
	return append(row, payload...)
}

// openRow returns the payload of a row, or a Corrupt fault.
func openRow(key, row []byte) ([]byte, error) {
	switch {
	case len(row) < rowHeader:
		return nil, fault.New(fault.Corrupt, "ROW_SHORT", "jobs: row %x has %d bytes, fewer than its header", key, len(row))
	case row[0] != rowVersion:
		return nil, fault.New(fault.Corrupt, "ROW_VERSION", "jobs: row %x has version %d, this program reads %d", key, row[0], rowVersion)
	case binary.BigEndian.Uint32(row[1:]) != crc32.Checksum(row[rowHeader:], castagnoli):
		return nil, fault.New(fault.Corrupt, "ROW_CHECKSUM", "jobs: row %x does not match its checksum", key)
	}
	return row[rowHeader:], nil
}

func decodeRow[T any](key, row []byte) (T, error) {
	var v T
	payload, err := openRow(key, row)
	if err != nil {
		return v, err
	}
	if err := json.Unmarshal(payload, &v); err != nil {
		return v, fault.New(fault.Corrupt, "ROW_PAYLOAD", "jobs: row %x: %w", key, err)
	}
	return v, nil
}

// ref names a submission: state, waits and events are keyed by it.
type ref struct {
	tenant     wire.TenantID
	submission wire.SubmissionID
}

// key is the form of a ref in keys: tenantTag(16) submissionId(16).
func (r ref) key() []byte {
	return append(tenantTag(r.tenant), uuidBytes(string(r.submission))...)
}

func tenantTag(t wire.TenantID) []byte {
	sum := sha256.Sum256([]byte(t))
	return sum[:16]
}

// uuidBytes returns the 16 bytes of a canonical UUID. Ids are parsed before
// they reach the store; anything else maps to a hash, so that it can never
// equal the key of a real id.
func uuidBytes(id string) []byte {
	b, err := hex.DecodeString(strings.ReplaceAll(id, "-", ""))
	if err != nil || len(b) != 16 || len(id) != 36 {
		sum := sha256.Sum256([]byte(id))
		return sum[:]
	}
	return b
}

// uuidText is the canonical text of a UUID.
func uuidText(b []byte) string {
	h := hex.EncodeToString(b)
	return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
}

func rowKey(prefix byte, parts ...[]byte) []byte {
	return append([]byte{prefix}, slices.Concat(parts...)...)
}

func ordinal(n int) []byte { return binary.BigEndian.AppendUint32(nil, uint32(n)) }

// reservation is the job id given out for a digest.
type reservation struct {
	JobID wire.JobID `json:"jobId"`
}

// seen is the row of a fingerprint or an idempotency key.
type seen struct {
	Tenant     wire.TenantID     `json:"tenant"`
	Submission wire.SubmissionID `json:"submission"`
	Content    wire.Digest       `json:"content"` // keyed fingerprint of the request
	At         int64             `json:"at"`      // Unix seconds
}
