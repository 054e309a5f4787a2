package wire

import (
	"bytes"
	"encoding/base32"
	"fmt"
	"strings"
	"unicode/utf8"
)

// Limits of a record. An input beyond one is refused with a message that names
// it.
const (
	// MaxBody is the largest body in bytes: metadata or an attachment. Bytes
	// beyond it travel as a file.
	MaxBody = 256 << 10

	// MaxSealedBody is the largest body of private metadata, which is
	// ciphertext: a full MaxBody of plaintext and what sealing adds.
	MaxSealedBody = MaxBody + 1<<10

	MaxPart        = 1<<16 - 1 // ordinal of a part in its submission
	MaxFileName    = 255       // bytes; for display only
	MaxContentType = 255       // bytes
	MaxTimeText    = 64        // bytes of a Time, which may be a peer's own text
	MaxShares      = 64        // shares of one record
	MaxKinds       = 64        // kinds named in one query
)

// Check reports the first rule that q breaks, as an *Error.
func (q Query) Check() error {
	if err := q.check(); err != nil {
		return err
	}
	return nil
}

func (q *Query) check() *Error {
	if err := correlationGrammar.check(string(q.CorrelationID)); err != nil {
		return err.in("correlationId")
	}
	if q.SHA256.IsZero() {
		return refuse("sha256", "missing; give the SHA-256 to look up")
	}
	if err := tenantGrammar.check(string(q.TenantID)); err != nil {
		return err.in("tenantId")
	}
	if len(q.Kinds) > MaxKinds {
		return refuse("kinds", "%d kinds; at most %d may be named", len(q.Kinds), MaxKinds)
	}
	for i, k := range q.Kinds {
		if err := kindGrammar.check(string(k)); err != nil {
			return err.in(index(i)).in("kinds")
		}
	}
	return nil
}

// Check reports the first rule that p breaks, as an *Error. PutID may be absent:
// a peer that knows only the original contract sends none.
func (p Put) Check() error {
	if p.PutID != "" {
		if err := checkUUID(string(p.PutID), "a put id"); err != nil {
			return err.in("putId")
		}
	}
	if err := p.Record.check(); err != nil {
		return err.in("record")
	}
	return nil
}

// Check reports the first rule that r breaks, as an *Error: the form of every
// field, the limits above, and what goes with which kind.
func (r PutRecord) Check() error {
	if err := r.check(); err != nil {
		return err
	}
	return nil
}

func (r *PutRecord) check() *Error {
	if err := kindGrammar.check(string(r.Kind)); err != nil {
		return err.in("kind")
	}
	if r.SHA256.IsZero() {
		return refuse("sha256", "missing; give the SHA-256 that the record is about")
	}
	if err := tenantGrammar.check(string(r.TenantID)); err != nil {
		return err.in("tenantId")
	}
	if r.SubmissionID != "" {
		if err := checkUUID(string(r.SubmissionID), "a submission id"); err != nil {
			return err.in("submissionId")
		}
	}
	if r.Part < 0 || r.Part > MaxPart {
		return refuse("part", "%d; a part is numbered from 0 to %d", r.Part, MaxPart)
	}
	if err := checkText(string(r.AttachedAt), MaxTimeText); err != nil {
		return err.in("attachedAt")
	}
	if err := checkText(r.ContentType, MaxContentType); err != nil {
		return err.in("contentType")
	}
	if err := r.checkContent(); err != nil {
		return err
	}
	if err := checkShares(r.ShareWith, r.Kind == KindShare); err != nil {
		return err.in("shareWith")
	}
	return nil
}

// checkContent says what may stand in body and file of which kind.
func (r *PutRecord) checkContent() *Error {
	most := MaxBody
	switch r.Kind {
	case KindFile:
		if r.File == nil {
			return refuse("file", "missing in a record of kind %q", r.Kind)
		}
		if len(r.Body) > 0 {
			return refuse("body", "a record of kind %q has none; its bytes travel as an upload", r.Kind)
		}
		if id := r.File.ID; !id.IsZero() && id != r.ID() {
			return refuse("file.id", "differs from the record's id; leave it out")
		}
		if err := r.File.check(); err != nil {
			return err.in("file")
		}
		return nil
	case KindMetadata, KindPrivateMetadata:
		if len(r.Body) == 0 {
			return refuse("body", "missing in a record of kind %q", r.Kind)
		}
		if r.Kind == KindPrivateMetadata {
			most = MaxSealedBody
		}
	}
	if r.File != nil {
		return refuse("file", "only a record of kind %q has one", KindFile)
	}
	if len(r.Body) > most {
		return refuse("body", "%d bytes; at most %d are taken, send more as a file", len(r.Body), most)
	}
	return nil
}

func (f *File) check() *Error {
	if err := checkText(f.Name, MaxFileName); err != nil {
		return err.in("name")
	}
	if f.Size < 0 || f.Size > MaxInteger {
		return refuse("size", "%d; a size is from 0 to %d bytes", f.Size, MaxInteger)
	}
	if f.SHA256.IsZero() {
		return refuse("sha256", "missing; give the SHA-256 of the file's bytes")
	}
	if err := checkCID(f.CID); err != nil {
		return err.in("cid")
	}
	if err := checkText(f.ContentType, MaxContentType); err != nil {
		return err.in("contentType")
	}
	return nil
}

// checkShares says which shares a record may carry; only a share record may
// revoke.
func checkShares(shares []Share, revoke bool) *Error {
	if len(shares) > MaxShares {
		return refuse("", "%d shares; a record has at most %d", len(shares), MaxShares)
	}
	seen := map[TenantID]bool{}
	for i, s := range shares {
		at := index(i)
		if s.TenantID != Public {
			if err := tenantGrammar.check(string(s.TenantID)); err != nil {
				return err.in("tenantId").in(at)
			}
		}
		if rank(s.Mode) < 0 && (s.Mode != ModeNone || !revoke) {
			return refuse("mode", "%s; give A (proofs), B (and metadata) or C (and files)", show(s.Mode)).in(at)
		}
		if seen[s.TenantID] {
			return refuse("tenantId", "%s is named twice", show(string(s.TenantID))).in(at)
		}
		seen[s.TenantID] = true
	}
	return nil
}

// index is the path of a list element.
func index(i int) string { return fmt.Sprintf("[%d]", i) }

// checkUUID refuses what is not a UUID in the lower case that every payload has
// after Decode.
func checkUUID(s, what string) *Error {
	id, err := parseUUID(s, what)
	if err == nil && id != s {
		err = refuse("", "%s is written in lower case", what)
	}
	return err
}

// checkText admits printable UTF-8. These texts end up in headers, terminals
// and file dialogs, where a control character is an attack or an accident.
func checkText(s string, most int) *Error {
	if len(s) > most {
		return refuse("", "%d bytes; at most %d are taken", len(s), most)
	}
	if !utf8.ValidString(s) {
		return &Error{Offset: firstInvalid([]byte(s)), Msg: "not valid UTF-8"}
	}
	if i := strings.IndexFunc(s, func(r rune) bool { return r < 0x20 || 0x7f <= r && r < 0xa0 }); i >= 0 {
		return &Error{Offset: i, Msg: "a control character"}
	}
	return nil
}

// cidPrefixes are how the bytes of an admitted CID begin: version 1, codec raw
// or dag-pb, multihash sha2-256 with 32 bytes.
var cidPrefixes = [][]byte{{0x01, 0x55, 0x12, 0x20}, {0x01, 0x70, 0x12, 0x20}}

var base32Lower = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// checkCID admits the one canonical spelling of a CIDv1 over SHA-256: multibase
// "b" and lower-case base32. Package blob reads CIDs with the IPFS library; this
// keeps what can never be one out of records.
func checkCID(s string) *Error {
	const want = "give a bare CIDv1 in lower-case base32, raw or dag-pb over sha2-256"
	text, ok := strings.CutPrefix(s, "b")
	if !ok || len(text) != base32Lower.EncodedLen(36) {
		return refuse("", "%s; %s", show(s), want)
	}
	raw, err := base32Lower.DecodeString(text)
	if err != nil || base32Lower.EncodeToString(raw) != text {
		return refuse("", "%s; %s", show(s), want)
	}
	for _, p := range cidPrefixes {
		if bytes.HasPrefix(raw, p) {
			return nil
		}
	}
	return refuse("", "%s; %s", show(s), want)
}
