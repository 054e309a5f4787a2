package splitter

import (
	"sync"
	"time"

	"github.com/verae/archive/blob"
	"github.com/verae/archive/wire"
)

// Where the subject's digest came from: [Request.HashedFrom], and hashedFrom in
// answers.
const (
	FromSHA256 = "sha256" // the sender stated it
	FromData   = "data"   // it was computed over the data sent
	FromFile   = "file"   // it is the digest of the only file
)

// Request is a whole request, read and checked. It is plain data but for its
// open uploads: whoever holds it commits them, by File.UploadID, or calls
// [Request.Abort].
type Request struct {
	Subject    wire.Digest // what is sealed, and the key of every record
	HashedFrom string      // FromSHA256, FromData or FromFile

	// Placement is the key by which the archives of this request are chosen,
	// for its records as for its files: the subject when that was known before
	// the first byte of a file, else the SHA-256 of the submission id's text.
	Placement [32]byte

	// TenantID is Config.TenantID, or with Config.WantTenant the body's.
	TenantID wire.TenantID
	// IdempotencyKey and Wait are read only with Config.WantTenant: the JSON
	// fields idempotencyKey (at most MaxIdempotencyKey printable ASCII
	// characters) and wait (whole seconds, at most MaxWait).
	IdempotencyKey string
	Wait           time.Duration

	// PublicMetadata and PrivateMetadata are JSON objects, byte for byte as they
	// were received; nil means none was sent. PrivateMetadata is in clear.
	PublicMetadata  []byte
	PrivateMetadata []byte

	Files       []File       // in the sender's order
	Attachments []Attachment // in the sender's order

	// Unsealed asks for nothing but that the records are kept: no seal, no job,
	// no event. See ReadFile.
	Unsealed bool

	IncludeAttached bool         // ask the archives what they hold under the subject
	SealMetadata    bool         // also seal the digest of PublicMetadata
	ShareWith       []wire.Share // sorted by tenant, each once, mode C
	OCR             bool         // the request's default; File.OCR is what counts
	CallbackURL     string       // absolute http or https URL, or empty

	// ExpectFileSHA256 was stated by the sender and holds for exactly one file.
	ExpectFileSHA256 *wire.Digest

	mu      sync.Mutex
	uploads []Upload // open ones; none after Abort
}

// File is a file of a request. Its bytes rest in an open upload.
type File struct {
	Name        string // as sent, for display only, never a path; may be empty
	ContentType string // as stated by the sender, else DefaultContentType
	Size        int64  // bytes
	SHA256      wire.Digest
	SHA1        [20]byte     // for neighbours that still ask for it
	CID         string       // UnixFS root in Profile
	Profile     blob.Profile // how its DAG is built
	DAGSize     int64        // bytes of all blocks of the DAG together
	UploadID    string
	Archives    []wire.ArchiveID // that acknowledged all bytes; not committed yet
	OCR         bool             // text recognition is asked for
}

// Attachment is a small body of the sender's own kind. Its name is echoed to
// the sender and stored nowhere; a body that needs a name is a file.
type Attachment struct {
	Kind        wire.Kind // never a reserved one
	ContentType string    // as stated by the sender, else DefaultContentType
	Name        string
	Body        []byte // at least one byte
}

// DefaultContentType is the content type of bytes whose sender stated none. A
// part of a multipart body would be text/plain by RFC 7578, section 4.4; saying
// so of unknown bytes helps nobody.
const DefaultContentType = "application/octet-stream"

// Abort gives up every upload that belongs to the request. Calling it again, or
// from several goroutines, does nothing more. It must not be called once the
// uploads are about to be committed.
func (r *Request) Abort() {
	r.mu.Lock()
	uploads := r.uploads
	r.uploads = nil
	r.mu.Unlock()
	for _, u := range uploads {
		u.Abort()
	}
}
