package archive

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"

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
