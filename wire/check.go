package wire

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

// Check reports the first rule that p breaks, as an *Error. PutID may be absent:
// a peer that knows only the original contract sends none.
func (p Put) Check() error {
	if p.PutID != "" {
		if err := checkUUID(string(p.PutID), "a put id"); err != nil {
			return err.in("putId")
		}
	}
	if err := p.Record.check(false); err != nil {
		return err.in("record")
	}
	return nil
}

// Check reports the first rule that r breaks, as an *Error: the form of every
// field, the limits above, and what goes with which kind.
func (r PutRecord) Check() error {
	if err := r.check(false); err != nil {
		return err
	}
	return nil
}

// Check reports the first rule that r breaks, as an *Error: those of its
// portable part, a body that is not the one its digest names, and an id that is
// not ComputeID. A record of a peer that computes no ids has none. Where the
// body was withheld its digest stands for it. Whether the record belongs under
// the key that was asked for is the caller's question.
func (r Record) Check() error {
	if err := r.check(); err != nil {
		return err
	}
	return nil
}

// CheckForm is Check without the body, for a caller who computed the id and the digest
// of the body himself: metadata that is no JSON passes, and still has a digest to show.
func (r *Record) CheckForm() error {
	p := r.Portable()
	p.Body = nil
	if err := p.check(!r.BodySHA256.IsZero()); err != nil {
		return err
	}
	return nil
}

func (r *Record) check() *Error {
	p := r.Portable()
	if err := p.check(!r.BodySHA256.IsZero()); err != nil {
		return err
	}
	if body := p.BodySHA256(); len(r.Body) > 0 && !r.BodySHA256.IsZero() && body != r.BodySHA256 {
		return refuse("bodySha256", "the body has %s", body)
	}
	if id := r.ComputeID(); !r.ID.IsZero() && id != r.ID {
		return refuse("id", "the fields of the record give %s", id)
	}
	return nil
}

// check takes a body that is known by its digest only as present if withheld is
// set.
func (r *PutRecord) check(withheld bool) *Error {
	if err := kindGrammar.check(string(r.Kind)); err != nil {
		return err.in("kind")
	}
	if r.Kind == ReceiptSeal || r.Kind == ReceiptMetadataAttach {
		return refuse("kind", "%q is a kind of receipts, not of records", r.Kind)
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
	if err := r.checkContent(withheld); err != nil {
		return err
	}
	if err := checkShares(r.ShareWith, r.Kind == KindShare); err != nil {
		return err.in("shareWith")
	}
	return nil
}

// checkContent says what may stand in body and file of which kind.
func (r *PutRecord) checkContent(withheld bool) *Error {
	most := MaxBody
	switch r.Kind {
	case KindFile:
		if r.File == nil {
			return refuse("file", "missing in a record of kind %q", r.Kind)
		}
		if len(r.Body) > 0 || withheld {
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
		if len(r.Body) == 0 && !withheld {
			return refuse("body", "missing in a record of kind %q", r.Kind)
		}
		if r.Kind == KindPrivateMetadata {
			most = MaxSealedBody
		}
	case KindRetain, KindHold, KindRelease:
		if !withheld || len(r.Body) > 0 {
			if err := r.checkControl(); err != nil {
				return err
			}
		}
	}
	if r.File != nil {
		return refuse("file", "only a record of kind %q has one", KindFile)
	}
	if len(r.Body) > most {
		return refuse("body", "%d bytes; at most %d are taken, send more as a file", len(r.Body), most)
	}
	if r.Kind == KindMetadata && len(r.Body) > 0 {
		// It will be embedded in job JSON; one body that is not an object would
		// make every answer that lists it impossible to write.
		if err := scan(r.Body, opaqueObject); err != nil {
			return err.in("body")
		}
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
