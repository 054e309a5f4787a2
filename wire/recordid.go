package wire

import "crypto/sha256"

// recordDomain separates record ids from every other SHA-256. Its number
// changes only together with a new layout; ids made so far stay valid for ever.
const recordDomain = "verae-record/1"

// Keys of the portable fields. The list is frozen: a new field takes a new
// number and is left out when absent, so that old records keep their ids.
const (
	keyKind = 1 + iota
	keySHA256
	keyTenantID
	keySubmissionID
	keyPart
	keyAttachedAt
	keyContentType
	keyBodySHA256
	keyFile
	keyShareWith
)

// Keys inside the file.
const (
	keyFileName = 1 + iota
	keyFileSize
	keyFileSHA256
	keyFileCID
	keyFileContentType
)

// BodySHA256 returns the SHA-256 of the body, or zero when there is none: an
// empty body and no body are the same thing.
func (r PutRecord) BodySHA256() Digest {
	if len(r.Body) == 0 {
		return Digest{}
	}
	return sha256.Sum256(r.Body)
}

// ID returns the id of the record: SHA-256 over "verae-record/1" and the
// deterministic CBOR of its portable fields, laid out as the package comment
// shows. Two records with one id are the same record.
func (r PutRecord) ID() RecordID { return r.IDOver(r.BodySHA256()) }

// IDOver is ID for a caller who has computed BodySHA256 already.
func (r PutRecord) IDOver(body Digest) RecordID { return recordID(&r, body) }

// ComputeID returns the id that the portable fields of r have. Where the body
// was withheld, BodySHA256 stands for it, so that a proof can be checked
// without the content.
func (r Record) ComputeID() RecordID {
	p := r.Portable()
	if len(r.Body) == 0 {
		return recordID(&p, r.BodySHA256)
	}
	return p.ID()
}

// Portable returns the part of r that any archive holding it agrees on. It
// shares the body, file and shares of r.
func (r Record) Portable() PutRecord {
	return PutRecord{
		Kind:         r.Kind,
		SHA256:       r.SHA256,
		TenantID:     r.TenantID,
		SubmissionID: r.SubmissionID,
		Part:         r.Part,
		AttachedAt:   r.AttachedAt,
		ContentType:  r.ContentType,
		Body:         r.Body,
		File:         r.File,
		ShareWith:    r.ShareWith,
	}
}

func recordID(r *PutRecord, body Digest) RecordID {
	return sha256.Sum256(appendPortable(append(make([]byte, 0, idRoom), recordDomain...), r, body))
}

// idRoom is as many bytes as the portable fields of most records have.
const idRoom = 384

// portableCBOR encodes the portable fields. Absent optional fields are left
// out, so a field added later does not change the ids of records without it.
func portableCBOR(r *PutRecord, body Digest) []byte { return appendPortable(nil, r, body) }

func appendPortable(b []byte, r *PutRecord, body Digest) []byte {
	f := fieldsBehind(b)
	f = f.must(keyKind, string(r.Kind))
	f = f.digest(keySHA256, r.SHA256)
	f = f.must(keyTenantID, string(r.TenantID))
	f = f.text(keySubmissionID, string(r.SubmissionID))
	if r.Part != 0 {
		f = f.add(keyPart, appendInt(nil, int64(r.Part)))
	}
	f = f.text(keyAttachedAt, string(r.AttachedAt))
	f = f.text(keyContentType, r.ContentType)
	if !body.IsZero() {
		f = f.digest(keyBodySHA256, body)
	}
	if r.File != nil {
		f = f.add(keyFile, fileCBOR(r.File))
	}
	if len(r.ShareWith) > 0 {
		f = f.add(keyShareWith, sharesCBOR(r.ShareWith))
	}
	return f.bytes()
}

// fileCBOR leaves out the id, which is the record's own.
func fileCBOR(file *File) []byte {
	f := fieldsBehind(nil)
	f = f.text(keyFileName, file.Name)
	f = f.add(keyFileSize, appendInt(nil, file.Size))
	f = f.digest(keyFileSHA256, file.SHA256)
	f = f.must(keyFileCID, file.CID)
	f = f.text(keyFileContentType, file.ContentType)
	return f.bytes()
}

// sharesCBOR keeps the order of the shares: it is what the owner signed off.
func sharesCBOR(shares []Share) []byte {
	b := appendHead(nil, cborArray, uint64(len(shares)))
	for _, s := range shares {
		b = appendHead(b, cborArray, 2)
		b = appendText(b, string(s.TenantID))
		b = appendText(b, s.Mode)
	}
	return b
}
