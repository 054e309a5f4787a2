package splitter

import (
	"crypto/sha256"
	"encoding/binary"
)

// canonicalMagic begins every canonical form. A change of the form changes it,
// and with it every fingerprint.
const canonicalMagic = "verae-request/1"

// Canonical returns a text that two requests share exactly when they make the
// same records and have the same effects. Fingerprints are computed over it,
// under a key: it holds the plain SHA-256 of private metadata, and must neither
// be stored nor logged.
//
// It covers the subject and where it came from, both metadata, every file with
// its name, content type, digests and ocr, every attachment, sealMetadata, the
// shares and whether it is unsealed. It leaves out what only one caller's answer depends on
// (includeAttached, callbackUrl, wait), what was a check (expectFileSha256),
// and what differs from one attempt to the next (uploads, archives, placement,
// the order of multipart fields).
//
// Layout: the magic, then fields in the order above. A text is its length in 8
// bytes, big-endian, and its bytes; metadata is one byte 0 if absent, else 1 and
// its SHA-256; an attachment's body is its SHA-256; a list is its length in 8 bytes and its elements; a flag is one
// byte. A request that is unsealed has one byte 1 behind all, others nothing.
func (r *Request) Canonical() []byte {
	c := canonical(canonicalMagic)
	c.bytes(r.Subject[:])
	c.text(r.HashedFrom)
	c.metadata(r.PublicMetadata)
	c.metadata(r.PrivateMetadata)
	c.count(len(r.Files))
	for i := range r.Files {
		f := &r.Files[i]
		c.text(f.Name)
		c.text(f.ContentType)
		c.count(int(f.Size))
		c.bytes(f.SHA256[:])
		c.text(f.CID)
		c.flag(f.OCR)
	}
	c.count(len(r.Attachments))
	for _, a := range r.Attachments {
		c.text(string(a.Kind))
		c.text(a.ContentType)
		c.text(a.Name)
		c.digest(a.Body)
	}
	c.flag(r.SealMetadata)
	c.count(len(r.ShareWith))
	for _, s := range r.ShareWith {
		c.text(string(s.TenantID))
		c.text(s.Mode)
	}
	if r.Unsealed {
		c.flag(true)
	}
	return c
}

// canonical is a canonical form under way.
type canonical []byte

func (c *canonical) bytes(p []byte) { *c = append(*c, p...) }

func (c *canonical) count(n int) { *c = binary.BigEndian.AppendUint64(*c, uint64(n)) }

func (c *canonical) text(s string) {
	c.count(len(s))
	*c = append(*c, s...)
}

func (c *canonical) flag(on bool) {
	if on {
		*c = append(*c, 1)
	} else {
		*c = append(*c, 0)
	}
}

func (c *canonical) metadata(p []byte) {
	c.flag(p != nil)
	if p != nil {
		c.digest(p)
	}
}

func (c *canonical) digest(p []byte) {
	digest := sha256.Sum256(p)
	c.bytes(digest[:])
}
