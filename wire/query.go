package wire

import "reflect"

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
	if err := tenantGrammar.check(string(q.TenantID)); err != nil {
		return err.in("tenantId")
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
	s := scanner{data: data, watch: queryShape}
	if s.document(queryShape) != nil || s.span[1]-s.span[0] != hexLen+2 {
		return Digest{}, false
	}
	return digestOfHex(data[s.span[0]+1 : s.span[1]-1])
}

var queryShape = shapeOf(reflect.TypeFor[Query]())
