package envelope

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/verae/archive/wire"
)

// QueueOCR is the queue of OCR jobs, and the routing key of their messages.
const QueueOCR = "ocr.jobs"

// KindOCR is the kind of every payload on QueueOCR.
const KindOCR = "ocr"

// Domains that an OCR job may come from.
const (
	DomainEDGAR  = "edgar"
	DomainFraud  = "fraud"
	DomainManual = "manual"
)

// maxName bounds the texts of an OCR job, in bytes.
const maxName = 1024

// OCRJob is the payload on QueueOCR: read the text of a file.
type OCRJob struct {
	Kind       string  `json:"kind"`     // KindOCR
	JobID      string  `json:"job_id"`   // the writer's name of the job; see OCRJobID for ours
	IPFSCID    string  `json:"ipfs_cid"` // CIDv1 in base32 of the file's bytes
	Filename   string  `json:"filename"` // for people, and to name the result
	SHA1       string  `json:"sha1,omitzero"`
	Bytes      *int64  `json:"bytes,omitempty"`
	TotalPages *int64  `json:"total_pages,omitempty"`
	Origin     *Origin `json:"origin,omitempty"`
}

// Origin says where a job comes from; nobody may depend on it.
type Origin struct {
	Domain string `json:"domain"`
	Ref    string `json:"ref"`
}

// OCRJob reads the payload as that of an OCR job. Members that it does not know
// are ignored.
func (e *Envelope) OCRJob() (OCRJob, error) {
	job, err := wire.Decode[OCRJob](e.Payload)
	if err != nil {
		return OCRJob{}, unreadable(CodePayload, "payload", err)
	}
	return job, job.Check()
}

// Check reports the first rule that j breaks, as a permanent refusal that names
// the field.
func (j *OCRJob) Check() error {
	if j.Kind != KindOCR {
		return bad("kind", "%.40q; on %s it is %q", j.Kind, QueueOCR, KindOCR)
	}
	for _, f := range []struct{ name, text string }{{"job_id", j.JobID}, {"ipfs_cid", j.IPFSCID}, {"filename", j.Filename}} {
		if f.text == "" {
			return bad(f.name, "missing; an OCR job needs job_id, ipfs_cid and filename")
		}
		if !printable(f.text) {
			return bad(f.name, "it has a control character, is not UTF-8, or is longer than %d bytes", maxName)
		}
	}
	if err := wire.CheckCID(j.IPFSCID); err != nil {
		return bad("ipfs_cid", "%w", err)
	}
	if raw, err := hex.DecodeString(j.SHA1); j.SHA1 != "" && (err != nil || len(raw) != 20) {
		return bad("sha1", "%.50q; it is 40 hexadecimal digits, or left out", j.SHA1)
	}
	if j.Bytes != nil && *j.Bytes < 0 {
		return bad("bytes", "%d; it is the length of the file, or left out", *j.Bytes)
	}
	if j.TotalPages != nil && *j.TotalPages < 0 {
		return bad("total_pages", "%d; it is a number of pages, or left out", *j.TotalPages)
	}
	return j.Origin.check()
}

func (o *Origin) check() error {
	if o == nil {
		return nil
	}
	switch o.Domain {
	case DomainEDGAR, DomainFraud, DomainManual:
	default:
		return bad("origin.domain", "%.40q; it is %s, %s or %s", o.Domain, DomainEDGAR, DomainFraud, DomainManual)
	}
	if !printable(o.Ref) {
		return bad("origin.ref", "it has a control character, is not UTF-8, or is longer than %d bytes", maxName)
	}
	return nil
}

func printable(s string) bool {
	return len(s) <= maxName && utf8.ValidString(s) && !strings.ContainsFunc(s, unicode.IsControl)
}

// bad refuses a field of the payload.
func bad(field, format string, args ...any) error {
	return refuse(CodePayload, "payload."+field, format, args...)
}

// ocrIDMagic begins what a job id is the digest of. The layout is frozen: another
// one would have every file read a second time.
const ocrIDMagic = "verae-ocr/1"

// OCRJobID names the job of a file that a tenant attached to a digest: the same
// attachment has the same job, whenever and however often it is sent. It is
// "ocr_verae_" and the first 32 hex digits of the SHA-256 of the magic, the
// tenant and the CID, each behind its length in 8 bytes, big-endian, and the two
// digests in between.
func OCRJobID(tenant wire.TenantID, subject, file wire.Digest, cid string) string {
	b := []byte(ocrIDMagic)
	b = append(binary.BigEndian.AppendUint64(b, uint64(len(tenant))), tenant...)
	b = append(append(b, subject[:]...), file[:]...)
	b = append(binary.BigEndian.AppendUint64(b, uint64(len(cid))), cid...)
	sum := sha256.Sum256(b)
	return "ocr_verae_" + hex.EncodeToString(sum[:16])
}
