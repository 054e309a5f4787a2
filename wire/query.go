package wire

import (
	"bytes"
	"reflect"
)

// Check reports the first rule that q breaks, as an *Error.
func (q Query) Check() error {
	if err := q.check(); err != nil {
		return err
	}
	return nil
}

func (q *Query) check() *Error {
	if err := correlationGrammar.check(string(q.CorrelationID)); err != nil {
		return err.in("correlationId")
	}
	if q.SHA256.IsZero() {
		return refuse("sha256", "missing; give the SHA-256 to look up")
	}
	if q.TenantID != Public { // who has no key sees what is shared with everybody
		if err := tenantGrammar.check(string(q.TenantID)); err != nil {
			return err.in("tenantId")
		}
	}
	if len(q.Kinds) > MaxKinds {
		return refuse("kinds", "%d kinds; at most %d may be named", len(q.Kinds), MaxKinds)
	}
	for i, k := range q.Kinds {
		if err := kindGrammar.check(string(k)); err != nil {
			return err.in(index(i)).in("kinds")
		}
	}
	return nil
}

// QueryDigest returns the digest that an encoded Query asks for. It applies the
// rules of Decode to the whole text and allocates nothing, so that an archive
// can find a filter miss before it pays for a Query. ok is false for what Decode
// refuses and for digests in another form than 64 hex characters: Decode then
// says why, or reads them.
func QueryDigest(data []byte) (d Digest, ok bool) {
	if d, ok := plainDigest(data); ok {
		return d, true
	}
	s := scanner{data: data, watch: queryShape}
	if s.document(queryShape) != nil || s.span[1]-s.span[0] != hexLen+2 {
		return Digest{}, false
	}
	return digestOfHex(data[s.span[0]+1 : s.span[1]-1])
}

// plainDigest reads what Encode makes of a Query without kinds: its keys in their
// order, no blanks, and strings of printable ASCII without escapes. That breaks
// no rule of Decode, and costs less than half. What it refuses may be
// a Query all the same.
func plainDigest(data []byte) (d Digest, ok bool) {
	_, data, ok = plainString(data, `{"correlationId":"`)
	if !ok {
		return Digest{}, false
	}
	hex, data, ok := plainString(data, `,"sha256":"`)
	if !ok {
		return Digest{}, false
	}
	_, data, ok = plainString(data, `,"tenantId":"`)
	if !ok || string(data) != `,"kinds":[]}` {
		return Digest{}, false
	}
	return digestOfHex(hex)
}

// plainString cuts prefix, which ends in a quote, and the text up to the next
// quote off data.
func plainString(data []byte, prefix string) (text, rest []byte, ok bool) {
	if len(data) < len(prefix) || string(data[:len(prefix)]) != prefix {
		return nil, nil, false
	}
	text, rest, ok = bytes.Cut(data[len(prefix):], []byte{'"'})
	for _, c := range text {
		if c < ' ' || c > '~' || c == '\\' {
			return nil, nil, false
		}
	}
	return text, rest, ok
}

var queryShape = shapeOf(reflect.TypeFor[Query]())
