package wire

import "encoding/hex"

// Digest is a SHA-256. Its zero value means "no digest". On the wire it is 64
// lower-case hex characters; ParseDigest accepts more forms.
type Digest [32]byte

// String returns the 64 lower-case hex characters of d.
func (d Digest) String() string { return hex.EncodeToString(d[:]) }

// IsZero reports whether d is the zero digest.
func (d Digest) IsZero() bool { return d == Digest{} }

// RecordID identifies a record by its content; see PutRecord.ID.
type RecordID [32]byte

// String returns the 64 lower-case hex characters of r.
func (r RecordID) String() string { return hex.EncodeToString(r[:]) }

// IsZero reports whether r is the zero id.
func (r RecordID) IsZero() bool { return r == RecordID{} }

// Identifiers that travel as text. ParseTenantID and its siblings say what each
// may contain; a value from outside is parsed before it is used.
type (
	TenantID      string // owner of records and jobs
	ArchiveID     string // one archive; also a subject token
	CorrelationID string // ties replies to a query; a subject token
	Kind          string // kind of a record
	JobID         string // UUID; one per digest
	SubmissionID  string // UUIDv7; one per accepted request
	PutID         string // UUIDv7; makes a put idempotent
	EventID       string // UUIDv7; equal on every redelivery
)

// Public is the tenant of a share that means everybody.
const Public TenantID = "*"

// Reserved kinds. A tenant may not send them as attachments.
const (
	KindMetadata        Kind = "metadata"
	KindPrivateMetadata Kind = "private-metadata"
	KindFile            Kind = "file"
	KindShare           Kind = "share"
	KindRetain          Kind = "retain"
	KindHold            Kind = "hold"
	KindRelease         Kind = "release"
)

// Control reports whether k is the kind of a control record, which steers
// others and is never shown as a receipt.
func (k Kind) Control() bool {
	switch k {
	case KindShare, KindRetain, KindHold, KindRelease:
		return true
	}
	return false
}

// Reserved reports whether k belongs to the system: it is the kind of a record
// that the system makes, or of a receipt, which an attachment must not pass for.
func (k Kind) Reserved() bool {
	switch k {
	case KindMetadata, KindPrivateMetadata, KindFile, ReceiptSeal, ReceiptMetadataAttach:
		return true
	}
	return k.Control()
}

// SealedMagic is what the stored body of private metadata starts with. Package
// vault defines the rest; a body that does not start so is not sealed.
const SealedMagic = "VERAESM"

// Share modes: what a grantee may see. A later share record with ModeNone
// revokes.
const (
	ModeProofs   = "A"    // proofs only
	ModeMetadata = "B"    // and metadata
	ModeFiles    = "C"    // and files
	ModeNone     = "none" // revoked
)

// Share grants a tenant, or Public, a view of a record.
type Share struct {
	TenantID TenantID `json:"tenantId"`
	Mode     string   `json:"mode"`
}

// RawJSON is a JSON value that is passed on as it was received. Unlike
// json.RawMessage it refuses to encode what is not JSON.
type RawJSON []byte
