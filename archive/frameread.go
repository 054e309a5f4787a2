package archive

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"time"

	"github.com/verae/archive/wire"
)

// frame is a decoded frame. Its body and its digests share the memory it was
// decoded from.
type frame struct {
	header
	body []byte
	lost bool // a stub: only the envelope and the record id are set
	// place has the keys 1 to 5 of the header and their values, as they are
	// encoded, if the header is known to be in its one form.
	place []byte
}

var errFrame = errors.New("damaged frame")

// decodeFrame reads a frame and checks lengths, checksum and the form of the
// header. It allocates no more than a small multiple of len(b).
func decodeFrame(b []byte) (*frame, error) {
	f := new(frame)
	if err := f.decode(b); err != nil {
		return nil, err
	}
	return f, nil
}

// decode is decodeFrame into f, whose texts are used again where they are the
// same. After an error nothing in f has a meaning.
func (f *frame) decode(b []byte) error {
	head, body, err := splitFrame(b)
	if err != nil {
		return err
	}
	if b[3] == frameStub {
		return f.decodeStub(head, body)
	}
	f.body, f.lost = body, false
	if f.place = scanHeader(head, &f.header); f.place == nil {
		f.header = header{}
		if err := cborDec.Unmarshal(head, &f.header); err != nil {
			return fmt.Errorf("%w: header: %w", errFrame, err)
		}
	}
	return f.header.check(len(body))
}

func (f *frame) decodeStub(head, body []byte) error {
	var h stubHeader
	if err := cborDec.Unmarshal(head, &h); err != nil {
		return fmt.Errorf("%w: header of a stub: %w", errFrame, err)
	}
	if len(body) != 0 {
		return fmt.Errorf("%w: a stub with %d bytes of body", errFrame, len(body))
	}
	*f = frame{lost: true, header: header{
		Version: h.Version, ArchiveID: h.ArchiveID, Generation: h.Generation, Seq: h.Seq, StoredAt: h.StoredAt,
		PutID: h.PutID, RecordID: h.RecordID,
	}}
	return f.header.checkEnvelope()
}

func splitFrame(b []byte) (head, body []byte, err error) {
	if len(b) < frameFixed+frameSum || string(b[:len(frameMagic)]) != frameMagic {
		return nil, nil, fmt.Errorf("%w: %d bytes without the magic", errFrame, len(b))
	}
	if b[2] != frameVersion || b[3] > frameStub {
		return nil, nil, fmt.Errorf("%w: version %d with flags %#x", errFrame, b[2], b[3])
	}
	headLen, bodyLen := uint64(binary.BigEndian.Uint32(b[4:])), uint64(binary.BigEndian.Uint32(b[8:]))
	if uint64(len(b)) != uint64(frameFixed+frameSum)+headLen+bodyLen || headLen > maxHeader {
		return nil, nil, fmt.Errorf("%w: lengths %d and %d in %d bytes", errFrame, headLen, bodyLen, len(b))
	}
	sum := len(b) - frameSum
	if got := crc32.Checksum(b[:sum], castagnoli); got != binary.BigEndian.Uint32(b[sum:]) {
		return nil, nil, fmt.Errorf("%w: wrong checksum", errFrame)
	}
	head = b[frameFixed : frameFixed+int(headLen)]
	return head, b[frameFixed+int(headLen) : sum : sum], nil
}

// check refuses headers that decode but that encodeFrame never writes.
func (h *header) check(body int) error {
	if body == 0 && len(h.BodySHA256) > 0 {
		return fmt.Errorf("%w: the hash of a body without the body", errFrame)
	}
	if len(h.SHA256) != digestLen || body > 0 && len(h.BodySHA256) != digestLen || h.File != nil && len(h.File.SHA256) != digestLen {
		return fmt.Errorf("%w: a digest that does not have %d bytes", errFrame, digestLen)
	}
	return h.checkEnvelope()
}

// checkEnvelope is the part of check that holds for stubs too.
func (h *header) checkEnvelope() error {
	if h.Version != frameVersion || h.Seq == 0 || len(h.PutID) != 0 && len(h.PutID) != len(putKey{}) || len(h.RecordID) != digestLen {
		return fmt.Errorf("%w: version %d, seq %d, put id of %d bytes, record id of %d", errFrame, h.Version, h.Seq, len(h.PutID), len(h.RecordID))
	}
	return nil
}

// bone returns what the skeleton has of f.
func (f *frame) bone() bone {
	e := bone{seq: f.Seq, storedAt: f.StoredAt, id: wire.RecordID(f.RecordID)}
	copy(e.putID[:], f.PutID)
	return e
}

// record returns the record in f, with a body of its own; of a stub only its id
// and where it stood.
func (f *frame) record() wire.Record {
	if f.lost {
		return wire.Record{ID: wire.RecordID(f.RecordID), StoredAt: wire.At(time.Unix(0, f.StoredAt)), Seq: f.Seq}
	}
	p := f.portable()
	r := wire.Record{
		ID: wire.RecordID(f.RecordID), Kind: p.Kind, SHA256: p.SHA256, TenantID: p.TenantID,
		SubmissionID: p.SubmissionID, Part: p.Part, AttachedAt: p.AttachedAt, ContentType: p.ContentType,
		StoredAt: wire.At(time.Unix(0, f.StoredAt)), Seq: f.Seq, File: p.File, ShareWith: p.ShareWith,
	}
	if len(f.body) > 0 {
		r.Body = bytes.Clone(f.body)
		r.BodySHA256 = wire.Digest(f.BodySHA256)
	}
	if r.File != nil {
		r.File.ID = r.ID
	}
	return r
}

// portable returns the part of the record in f that any archive holding it agrees
// on. It shares the body of f. There is none in a stub.
func (f *frame) portable() wire.PutRecord {
	p := wire.PutRecord{
		Kind: wire.Kind(f.Kind), SHA256: wire.Digest(f.SHA256), TenantID: wire.TenantID(f.TenantID),
		SubmissionID: wire.SubmissionID(f.Submission), Part: f.Part, AttachedAt: wire.Time(f.AttachedAt),
		ContentType: f.Content, Body: f.body,
	}
	if h := f.File; h != nil {
		p.File = &wire.File{Name: h.Name, Size: h.Size, SHA256: wire.Digest(h.SHA256), CID: h.CID, ContentType: h.Content}
	}
	for _, s := range f.ShareWith {
		p.ShareWith = append(p.ShareWith, wire.Share{TenantID: wire.TenantID(s.TenantID), Mode: s.Mode})
	}
	return p
}

// verify checks the content hashes of the record in f: the body has its hash and
// the portable fields give the record id. The checksum finds accidents; this finds
// all else.
func (f *frame) verify(r *wire.Record) error {
	p := r.Portable()
	return f.verifyPortable(&p)
}

// verifyPortable is verify for what portable returned.
func (f *frame) verifyPortable(p *wire.PutRecord) error {
	if f.lost {
		return fmt.Errorf("%w: seq %d: the record is lost", errFrame, f.Seq)
	}
	var body wire.Digest
	if len(f.body) > 0 {
		if body = sha256.Sum256(f.body); body != wire.Digest(f.BodySHA256) {
			return fmt.Errorf("%w: seq %d: the body does not have its hash", errFrame, f.Seq)
		}
	}
	if p.IDOver(body) != wire.RecordID(f.RecordID) {
		return fmt.Errorf("%w: seq %d: the fields do not give the record id", errFrame, f.Seq)
	}
	return nil
}

// canonical reports whether b, from which f was decoded, is what encodeFrame or
// encodeStub writes for f: one record has one frame.
func (f *frame) canonical(b []byte) bool {
	if f.lost {
		e := envelope{archive: wire.ArchiveID(f.ArchiveID), generation: f.Generation, seq: f.Seq, storedAt: f.StoredAt}
		if len(f.PutID) > 0 {
			e.putID, e.hasPutID = putKey(f.PutID), true
		}
		again, err := encodeStub(e, wire.RecordID(f.RecordID))
		return err == nil && bytes.Equal(again, b)
	}
	if f.place != nil {
		return true
	}
	// What is not the header has no second form that could be decoded.
	head, err := cborEnc.Marshal(f.header)
	return err == nil && bytes.Equal(head, b[frameFixed:len(b)-len(f.body)-frameSum])
}
