package archive

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"time"

	"github.com/fxamacker/cbor/v2"

	"github.com/verae/archive/wire"
)

const (
	frameMagic   = "VR"
	frameVersion = 1
	frameFixed   = len(frameMagic) + 1 + 1 + 4 + 4 // before the header
	frameSum     = 4                               // after the body
	frameStub    = 1                               // flag: a lost record

	// maxHeader bounds the header of a frame that is decoded. The largest that
	// wire.PutRecord.Check lets through is below 20 KiB.
	maxHeader = 64 << 10
	// maxShares bounds the lists in a header.
	maxShares = 2 * wire.MaxShares
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// header is the CBOR map of a frame. The numbers are frozen.
type header struct {
	Version    int         `cbor:"1,keyasint"`
	ArchiveID  string      `cbor:"2,keyasint"`
	Generation int         `cbor:"3,keyasint"`
	Seq        uint64      `cbor:"4,keyasint"`
	StoredAt   int64       `cbor:"5,keyasint"`
	PutID      []byte      `cbor:"6,keyasint,omitempty"`
	RecordID   []byte      `cbor:"7,keyasint"`
	Kind       string      `cbor:"10,keyasint"`
	SHA256     []byte      `cbor:"11,keyasint"`
	TenantID   string      `cbor:"12,keyasint"`
	Submission string      `cbor:"13,keyasint,omitempty"`
	Part       int         `cbor:"14,keyasint,omitempty"`
	AttachedAt string      `cbor:"15,keyasint,omitempty"`
	Content    string      `cbor:"16,keyasint,omitempty"`
	BodySHA256 []byte      `cbor:"17,keyasint,omitempty"`
	File       *fileHeader `cbor:"18,keyasint,omitempty"`
	ShareWith  []share     `cbor:"19,keyasint,omitempty"`
}

// stubHeader is the header of a lost stub: the envelope and the record id, which
// prove the leaf, and nothing of the record.
type stubHeader struct {
	Version    int    `cbor:"1,keyasint"`
	ArchiveID  string `cbor:"2,keyasint"`
	Generation int    `cbor:"3,keyasint"`
	Seq        uint64 `cbor:"4,keyasint"`
	StoredAt   int64  `cbor:"5,keyasint"`
	PutID      []byte `cbor:"6,keyasint,omitempty"`
	RecordID   []byte `cbor:"7,keyasint"`
}

type fileHeader struct {
	Name    string `cbor:"1,keyasint,omitempty"`
	Size    int64  `cbor:"2,keyasint"`
	SHA256  []byte `cbor:"3,keyasint"`
	CID     string `cbor:"4,keyasint"`
	Content string `cbor:"5,keyasint,omitempty"`
}

type share struct {
	_        struct{} `cbor:",toarray"`
	TenantID string
	Mode     string
}

// cborEnc and cborDec are the one dialect of this package: deterministic on the
// way out; on the way in nothing that the encoder does not write.
var (
	cborEnc = must(cbor.CoreDetEncOptions().EncMode())
	cborDec = must(cbor.DecOptions{
		DupMapKey:         cbor.DupMapKeyEnforcedAPF,
		IndefLength:       cbor.IndefLengthForbidden,
		TagsMd:            cbor.TagsForbidden,
		UTF8:              cbor.UTF8RejectInvalid,
		ExtraReturnErrors: cbor.ExtraDecErrorUnknownField,
		MaxNestedLevels:   8,
		MaxArrayElements:  maxShares,
		MaxMapPairs:       32,
	}.DecMode())
)

func must[T any](v T, err error) T {
	if err != nil {
		panic(err) // the options above are constants
	}
	return v
}

// envelope is what an archive adds to a record when it stores it.
type envelope struct {
	archive    wire.ArchiveID
	generation int
	seq        uint64
	storedAt   int64 // nanoseconds since 1970, rising with seq
	putID      putKey
	hasPutID   bool
}

// encodeFrame returns the frame of r under id. The body's hash is given because
// the caller has computed it for the id already.
func encodeFrame(e envelope, r *wire.PutRecord, id wire.RecordID, body wire.Digest) ([]byte, error) {
	f, err := newDraft(e, r, id, body)
	if err != nil {
		return nil, err
	}
	return f.appendTo(make([]byte, 0, f.size(e.seq, e.storedAt)), e.seq, e.storedAt), nil
}

// draft is a frame without its place in the log: all that can be encoded before
// the commit that gives the record its number and its time.
type draft struct {
	head []byte // the header with 0 for both
	at   int    // where in head they are: two keys of one byte, each with its 0
	body []byte
}

// placeLen is the length in a draft's header of seq and storedAt with their keys.
const placeLen = 4

// newDraft encodes r for the archive and generation of e.
func newDraft(e envelope, r *wire.PutRecord, id wire.RecordID, body wire.Digest) (draft, error) {
	h := header{
		Version: frameVersion, ArchiveID: string(e.archive), Generation: e.generation,
		RecordID: id[:], Kind: string(r.Kind), SHA256: r.SHA256[:], TenantID: string(r.TenantID),
		Submission: string(r.SubmissionID), Part: r.Part, AttachedAt: string(r.AttachedAt), Content: r.ContentType,
	}
	if e.hasPutID {
		h.PutID = e.putID[:]
	}
	if !body.IsZero() {
		h.BodySHA256 = body[:]
	}
	if f := r.File; f != nil {
		h.File = &fileHeader{Name: f.Name, Size: f.Size, SHA256: f.SHA256[:], CID: f.CID, Content: f.ContentType}
	}
	for _, s := range r.ShareWith {
		h.ShareWith = append(h.ShareWith, share{TenantID: string(s.TenantID), Mode: s.Mode})
	}
	head, err := cborEnc.Marshal(h)
	if err != nil {
		return draft{}, fmt.Errorf("archive: encode a header: %w", err)
	}
	// Before the place are the head of the map and keys 1 to 3, each of a byte.
	at := 1 + 2 + 1 + cborLen(uint64(len(e.archive))) + len(e.archive) + 1 + cborLen(uint64(e.generation))
	if !bytes.HasPrefix(head[at:], []byte{4, 0, 5, 0}) {
		return draft{}, fmt.Errorf("archive: encode a header: the place is not at byte %d of %x", at, head)
	}
	return draft{head, at, r.Body}, nil
}

// size returns how many bytes the frame has at a place.
func (f draft) size(seq uint64, storedAt int64) int {
	return frameFixed + f.headLen(seq, storedAt) + len(f.body) + frameSum
}

func (f draft) headLen(seq uint64, storedAt int64) int {
	return len(f.head) - 2 + cborLen(seq) + cborLen(magnitude(storedAt))
}

// appendTo appends the frame with its place to b.
func (f draft) appendTo(b []byte, seq uint64, storedAt int64) []byte {
	begin := len(b)
	b = appendFixed(b, 0, f.headLen(seq, storedAt), len(f.body))
	b = append(b, f.head[:f.at]...)
	b = appendCBOR(append(b, 4), seq)
	b = appendCBOR(append(b, 5), magnitude(storedAt))
	if storedAt < 0 {
		b[len(b)-cborLen(magnitude(storedAt))] |= 1 << 5 // major type 1
	}
	b = append(b, f.head[f.at+placeLen:]...)
	b = append(b, f.body...)
	return binary.BigEndian.AppendUint32(b, crc32.Checksum(b[begin:], castagnoli))
}

// appendCBOR appends v as an unsigned integer in its shortest form (RFC 8949,
// sections 3.1 and 4.2.1).
func appendCBOR(b []byte, v uint64) []byte {
	switch cborLen(v) {
	case 1:
		return append(b, byte(v))
	case 2:
		return append(b, 24, byte(v))
	case 3:
		return binary.BigEndian.AppendUint16(append(b, 25), uint16(v))
	case 5:
		return binary.BigEndian.AppendUint32(append(b, 26), uint32(v))
	}
	return binary.BigEndian.AppendUint64(append(b, 27), v)
}

// magnitude returns the argument of v's encoding: a negative v is -1 less it.
func magnitude(v int64) uint64 { return uint64(max(v, ^v)) }

// cborLen returns the length of what appendCBOR appends.
func cborLen(v uint64) int {
	switch {
	case v < 24:
		return 1
	case v <= math.MaxUint8:
		return 2
	case v <= math.MaxUint16:
		return 3
	case v <= math.MaxUint32:
		return 5
	}
	return 9
}

// encodeStub returns the frame that stands where the record id was, once no copy
// of it is found.
func encodeStub(e envelope, id wire.RecordID) ([]byte, error) {
	h := stubHeader{
		Version: frameVersion, ArchiveID: string(e.archive), Generation: e.generation, Seq: e.seq, StoredAt: e.storedAt,
		RecordID: id[:],
	}
	if e.hasPutID {
		h.PutID = e.putID[:]
	}
	head, err := cborEnc.Marshal(h)
	if err != nil {
		return nil, fmt.Errorf("archive: encode a stub: %w", err)
	}
	return assemble(frameStub, head, nil), nil
}

func assemble(flags byte, head, body []byte) []byte {
	b := make([]byte, 0, frameFixed+len(head)+len(body)+frameSum)
	b = appendFixed(b, flags, len(head), len(body))
	b = append(b, head...)
	b = append(b, body...)
	return binary.BigEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

// appendFixed appends what stands before a header.
func appendFixed(b []byte, flags byte, head, body int) []byte {
	b = append(b, frameMagic...)
	b = append(b, frameVersion, flags)
	b = binary.BigEndian.AppendUint32(b, uint32(head))
	return binary.BigEndian.AppendUint32(b, uint32(body))
}

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
