package receipts

import (
	"slices"

	"github.com/verae/archive/blob"
	"github.com/verae/archive/wire"
)

// Reasons for which replies and records are dropped, as they are counted.
const (
	// Replies.
	dropUnlisted     = "unlisted-archive" // its archive is not enrolled, or it is of another process under its id
	dropTwoProcesses = "two-processes"    // another process answered under the same id
	dropDigest       = "wrong-digest"     // it answers another question
	dropPageRange    = "page-out-of-range"
	dropPageTwice    = "page-duplicate"
	dropPageTotal    = "page-contradicts" // it is of another answer than an earlier page
	dropNotAsked     = "kind-not-asked"
	dropNotVisible   = "not-visible" // the caller may not see it
	dropForeignKey   = "foreign-key" // it does not belong under the digest
	dropMalformed    = "malformed"   // it is what was stored, but no record by our rules
	dropDamaged      = "damaged"     // the id does not follow from the content
	dropWithheld     = "body-withheld"
	dropTooManyHeld  = "over-cap"
)

var dropReasons = []string{
	dropUnlisted, dropTwoProcesses, dropDigest, dropPageRange, dropPageTwice, dropPageTotal, dropNotAsked,
	dropNotVisible, dropForeignKey, dropMalformed, dropDamaged, dropWithheld, dropTooManyHeld,
}

// A question is what one gathering wants to know.
type question struct {
	digest wire.Digest
	tenant wire.TenantID
	kinds  []wire.Kind             // empty: all but the control kinds
	block  bool                    // the digest is that of a block: which files have it only archives know
	enough func(*wire.Record) bool // with one such record the others are not waited for long; nil: with none
}

// admit returns r as the caller may see it, with its id and digests filled in,
// or why it is dropped. hole says that the answer lacks something the caller
// should have seen. The checks that end without a hole come first: a damaged
// record that was none of the caller's business must not be felt.
func (q *question) admit(r wire.Record) (out wire.Record, reason string, hole bool) {
	if len(q.kinds) > 0 && !slices.Contains(q.kinds, r.Kind) || r.Kind.Control() {
		return r, dropNotAsked, false
	}
	mode, ok := wire.Visible(&r, q.tenant)
	if !ok {
		return r, dropNotVisible, false
	}
	if r.TenantID != q.tenant {
		r.Retention = nil
	}
	if !fill(&r) {
		return r, dropDamaged, true
	}
	if !q.under(&r) {
		return r, dropForeignKey, false
	}
	if r.CheckForm() != nil {
		return r, dropMalformed, false
	}
	if mode != wire.ModeProofs && len(r.Body) == 0 && !r.BodySHA256.IsZero() {
		return r, dropWithheld, true
	}
	r, _ = r.For(q.tenant)
	return r, "", false
}

// fill checks that the id and the digest of the body follow from the content
// and fills them in where a peer left them out, and that the state of retention
// is one. What is local to one archive,
// or means the same as absent, is brought to one form, so that all copies of a
// record are equal.
func fill(r *wire.Record) bool {
	if r.Retention.Check() != nil {
		return false
	}
	p := r.Portable()
	if len(r.Body) > 0 {
		body := p.BodySHA256()
		if !r.BodySHA256.IsZero() && r.BodySHA256 != body {
			return false
		}
		r.BodySHA256 = body
	} else {
		r.Body = nil
	}
	id := p.IDOver(r.BodySHA256)
	if !r.ID.IsZero() && r.ID != id {
		return false
	}
	r.ID, r.Seq = id, 0
	if len(r.ShareWith) == 0 {
		r.ShareWith = nil
	}
	if r.File != nil {
		f := *r.File
		if !f.ID.IsZero() && f.ID != id {
			return false
		}
		f.ID = id
		r.File = &f
	}
	return true
}

// under reports whether r belongs under the digest: it is the record's subject,
// the record's id, the SHA-256 of its file, or the digest in its file's CID.
func (q *question) under(r *wire.Record) bool {
	if r.SHA256 == q.digest || wire.Digest(r.ID) == q.digest {
		return true
	}
	if r.File == nil {
		return false
	}
	if r.File.SHA256 == q.digest || q.block {
		return true
	}
	cid, err := blob.ParseCID(r.File.CID)
	return err == nil && cid.Digest == q.digest
}
