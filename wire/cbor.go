package wire

import "encoding/binary"

// The little of CBOR (RFC 8949) that record ids need, in the core deterministic
// encoding of its section 4.2.1: shortest heads, definite lengths, map keys in
// the order of their encoded bytes, which for the small integer keys used here
// is numeric order. Writing it out keeps this package on the standard library;
// a test compares it with a full CBOR library.

// Major types of RFC 8949, section 3.1.
const (
	cborUint   = 0
	cborNegint = 1
	cborBytes  = 2
	cborText   = 3
	cborArray  = 4
	cborMap    = 5
)

// appendHead appends the head of an item: its major type and its argument in
// the shortest of the five widths.
func appendHead(b []byte, major byte, n uint64) []byte {
	m := major << 5
	switch {
	case n < 24:
		return append(b, m|byte(n))
	case n < 1<<8:
		return append(b, m|24, byte(n))
	case n < 1<<16:
		return binary.BigEndian.AppendUint16(append(b, m|25), uint16(n))
	case n < 1<<32:
		return binary.BigEndian.AppendUint32(append(b, m|26), uint32(n))
	}
	return binary.BigEndian.AppendUint64(append(b, m|27), n)
}

func appendInt(b []byte, n int64) []byte {
	if n < 0 {
		return appendHead(b, cborNegint, uint64(-1-n))
	}
	return appendHead(b, cborUint, uint64(n))
}

func appendBytes(b, v []byte) []byte {
	return append(appendHead(b, cborBytes, uint64(len(v))), v...)
}

func appendText(b []byte, v string) []byte {
	return append(appendHead(b, cborText, uint64(len(v))), v...)
}

// A cborFields builds a map with small integer keys. Entries are added in
// ascending order of key, and are fewer than 24, so that the head of the map is
// one byte, which is written when their number is known. Its methods return what
// it becomes, so that the bytes can be on the stack.
type cborFields struct {
	at   int // of the head in body
	n    byte
	body []byte
}

// fieldsBehind begins a map behind what b has.
func fieldsBehind(b []byte) cborFields { return cborFields{at: len(b), body: append(b, 0)} }

// add appends an entry; v is one encoded item.
func (f cborFields) add(key uint64, v []byte) cborFields {
	f.n++
	f.body = append(appendHead(f.body, cborUint, key), v...)
	return f
}

// must appends an entry.
func (f cborFields) must(key uint64, v string) cborFields {
	f.n++
	f.body = appendText(appendHead(f.body, cborUint, key), v)
	return f
}

// text appends an entry unless v is empty.
func (f cborFields) text(key uint64, v string) cborFields {
	if v == "" {
		return f
	}
	return f.must(key, v)
}

// digest appends an entry.
func (f cborFields) digest(key uint64, v [32]byte) cborFields {
	f.n++
	f.body = appendBytes(appendHead(f.body, cborUint, key), v[:])
	return f
}

// bytes returns all that was there before, and the map.
func (f cborFields) bytes() []byte {
	f.body[f.at] = cborMap<<5 | f.n
	return f.body
}
