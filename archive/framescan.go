package archive

import (
	"encoding/binary"
	"math"
	"unicode/utf8"
)

// Major types of CBOR (RFC 8949, section 3.1) that headers have.
const (
	cborUint  = 0
	cborBytes = 2
	cborText  = 3
	cborArray = 4
	cborMap   = 5
)

// headerScan reads items of CBOR in the deterministic encoding, in which each has
// one form. rest is what is left; failed is set by the first item that is of
// another form or type, and everything read from then on is zero.
type headerScan struct {
	rest   []byte
	failed bool
}

// Keys that every header has, and the highest of all.
const (
	neededKeys = 1<<1 | 1<<2 | 1<<3 | 1<<4 | 1<<5 | 1<<7 | 1<<10 | 1<<11 | 1<<12
	lastKey    = 19
)

// scanHeader reads a header that is exactly what cborEnc writes for it; it is many
// times as fast as cborDec, which reads all others, so that ok may be false for
// what is rare: a time before 1970. The digests in h share the memory of b. Where
// a text is the one that h had before, it is not copied anew. It returns the part
// of b that has the keys 1 to 5 and their values, or nil for another header.
func scanHeader(b []byte, h *header) (place []byte) {
	old := *h
	*h = header{}
	s := headerScan{rest: b}
	seen := 0
	for range s.head(cborMap) {
		key := s.head(cborUint)
		if s.failed || key > lastKey || seen>>key != 0 {
			return nil
		}
		seen |= 1 << key
		switch key {
		case 1:
			h.Version = s.number()
		case 2:
			h.ArchiveID = s.text(old.ArchiveID)
		case 3:
			h.Generation = s.number()
		case 4:
			h.Seq = s.head(cborUint)
		case 5:
			h.StoredAt = s.int64()
			place = b[1 : len(b)-len(s.rest)]
		case 6:
			h.PutID = s.given(s.bytes())
		case 7:
			h.RecordID = s.bytes()
		case 10:
			h.Kind = s.text(old.Kind)
		case 11:
			h.SHA256 = s.bytes()
		case 12:
			h.TenantID = s.text(old.TenantID)
		case 13:
			h.Submission = s.givenText(old.Submission)
		case 14:
			h.Part = s.number()
			s.failed = s.failed || h.Part == 0
		case 15:
			h.AttachedAt = s.givenText(old.AttachedAt)
		case 16:
			h.Content = s.givenText(old.Content)
		case 17:
			h.BodySHA256 = s.given(s.bytes())
		case 18:
			h.File = s.file()
		case 19:
			h.ShareWith = s.shares()
		default:
			return nil
		}
	}
	if s.failed || len(s.rest) > 0 || seen&neededKeys != neededKeys {
		return nil
	}
	return place
}

// head reads the head of an item of a major type and returns its argument.
func (s *headerScan) head(major byte) (v uint64) {
	if s.failed || len(s.rest) == 0 || s.rest[0]>>5 != major {
		s.failed = true
		return 0
	}
	v = uint64(s.rest[0] & 31)
	if v < 24 {
		s.rest = s.rest[1:]
		return v
	}
	width, least := 1+(1<<(v&3)), uint64(24)
	if v > 27 || len(s.rest) < width {
		s.failed = true
		return 0
	}
	switch width {
	case 2:
		v = uint64(s.rest[1])
	case 3:
		v, least = uint64(binary.BigEndian.Uint16(s.rest[1:])), 1<<8
	case 5:
		v, least = uint64(binary.BigEndian.Uint32(s.rest[1:])), 1<<16
	default:
		v, least = binary.BigEndian.Uint64(s.rest[1:]), 1<<32
	}
	if v < least {
		s.failed = true // there is a shorter form
		return 0
	}
	s.rest = s.rest[width:]
	return v
}

// below is head for arguments up to a bound.
func (s *headerScan) below(major byte, bound uint64) uint64 {
	v := s.head(major)
	if v > bound {
		s.failed = true
		return 0
	}
	return v
}

func (s *headerScan) int64() int64 { return int64(s.below(cborUint, math.MaxInt64)) }

func (s *headerScan) number() int { return int(s.below(cborUint, math.MaxInt32)) }

func (s *headerScan) string(major byte) []byte {
	n := s.below(major, uint64(len(s.rest)))
	if n > uint64(len(s.rest)) { // its head is behind it now
		s.failed = true
		n = 0
	}
	v := s.rest[:n:n]
	s.rest = s.rest[n:]
	return v
}

func (s *headerScan) bytes() []byte { return s.string(cborBytes) }

// text returns old if that is the text.
func (s *headerScan) text(old string) string {
	v := s.string(cborText)
	if string(v) == old {
		return old
	}
	s.failed = s.failed || !utf8.Valid(v)
	return string(v)
}

// given fails if there is nothing in v: the encoder leaves out such a field.
func (s *headerScan) given(v []byte) []byte {
	s.failed = s.failed || len(v) == 0
	return v
}

func (s *headerScan) givenText(old string) string {
	v := s.text(old)
	s.failed = s.failed || v == ""
	return v
}

func (s *headerScan) file() *fileHeader {
	f := new(fileHeader)
	seen := 0
	for range s.below(cborMap, 5) {
		key := s.below(cborUint, 5)
		if s.failed || seen>>key != 0 {
			s.failed = true
			return nil
		}
		seen |= 1 << key
		switch key {
		case 1:
			f.Name = s.givenText("")
		case 2:
			f.Size = s.int64()
		case 3:
			f.SHA256 = s.bytes()
		case 4:
			f.CID = s.text("")
		case 5:
			f.Content = s.givenText("")
		default:
			s.failed = true
		}
	}
	const needed = 1<<2 | 1<<3 | 1<<4
	s.failed = s.failed || seen&needed != needed
	return f
}

func (s *headerScan) shares() (list []share) {
	n := s.below(cborArray, maxShares)
	s.failed = s.failed || n == 0
	for range n {
		s.failed = s.failed || s.head(cborArray) != 2
		if s.failed {
			return nil
		}
		list = append(list, share{TenantID: s.text(""), Mode: s.text("")})
	}
	return list
}
