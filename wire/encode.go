package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"unicode/utf8"
)

// Encode returns v as JSON, ready to be a payload: without the escaping that
// encoding/json does for HTML, without a trailing newline, and with [] where a
// list that is always present is nil. What it writes, Decode reads, as long as
// integers keep within MaxInteger.
//
// encoding/json drops the insignificant white space of an embedded RawJSON; all
// its other bytes pass. Whoever needs a stored value byte for byte fetches the
// record's body.
func Encode(v any) ([]byte, error) {
	if v == nil {
		return nil, errors.New("wire: encode: nil is no payload")
	}
	if out, ok := encodePlain(v); ok {
		return out, nil
	}
	return encodeAny(v)
}

func encodeAny(v any) ([]byte, error) {
	var buf bytes.Buffer
	e := json.NewEncoder(&buf)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, fmt.Errorf("wire: encode %T: %w", v, err)
	}
	out := bytes.TrimSuffix(buf.Bytes(), []byte("\n"))
	if !bytes.Contains(out, []byte("null")) {
		return out, nil
	}
	return fillNulls(out, shapeOf(reflect.TypeOf(v)))
}

// fillNulls puts an empty list or map where encoding/json wrote null for one.
// Doing it in the text spares every payload type its own marshaller.
func fillNulls(out []byte, sh *shape) ([]byte, error) {
	var nulls []nullAt
	s := scanner{data: out, trace: true, nulls: &nulls}
	if err := s.document(sh); err != nil {
		return nil, fmt.Errorf("wire: encode: %w", err)
	}
	filled, from := make([]byte, 0, len(out)), 0
	for _, n := range nulls {
		filled = append(append(filled, out[from:n.pos]...), n.empty...)
		from = n.pos + len("null")
	}
	return append(filled, out[from:]...), nil
}

// MarshalJSON returns the bytes of r, or null if it has none. It refuses bytes
// that Decode would refuse.
func (r RawJSON) MarshalJSON() ([]byte, error) {
	if len(r) == 0 {
		return []byte("null"), nil
	}
	if !utf8.Valid(r) {
		return nil, &Error{Offset: firstInvalid(r), Msg: "not valid UTF-8"}
	}
	if err := CheckJSON(r); err != nil {
		return nil, err
	}
	return r, nil
}

// UnmarshalJSON keeps a copy of the bytes; null counts as absent.
func (r *RawJSON) UnmarshalJSON(data []byte) error {
	if string(data) == "null" {
		*r = nil
		return nil
	}
	*r = append((*r)[:0:0], data...)
	return nil
}
