package wire

import (
	"encoding/base64"
	"encoding/hex"
	"strconv"
	"unicode/utf8"
)

// encodePlain writes the payloads of a lookup, of which there may be many a second,
// byte for byte as encoding/json does, in a tenth of its time. ok is false for other
// types, and for values with texts that it would escape in a rare way.
func encodePlain(v any) (out []byte, ok bool) {
	var w plainWriter
	switch v := v.(type) {
	case Query:
		w.b = make([]byte, 0, 256)
		w.query(&v)
	case Reply:
		w.b = make([]byte, 0, roomFor(v.Records)+len(v.Checkpoint)+320)
		w.reply(&v)
	case *Record:
		if v == nil {
			return nil, false
		}
		w.b = make([]byte, 0, roomOf(v))
		w.record(v)
	default:
		return nil, false
	}
	return w.b, !w.odd
}

// roomOf is about as many bytes as r takes.
func roomOf(r *Record) int { return 640 + base64.StdEncoding.EncodedLen(len(r.Body)) }

func roomFor(records []Record) (n int) {
	for i := range records {
		n += roomOf(&records[i])
	}
	return n
}

// A plainWriter appends JSON. odd is set once something can not be written here.
type plainWriter struct {
	b   []byte
	odd bool
}

func (w *plainWriter) raw(s string) { w.b = append(w.b, s...) }

func (w *plainWriter) query(q *Query) {
	w.text(`{"correlationId":`, string(q.CorrelationID))
	w.hex(`,"sha256":`, q.SHA256)
	w.text(`,"tenantId":`, string(q.TenantID))
	w.raw(`,"kinds":[`)
	for i, k := range q.Kinds {
		w.comma(i)
		w.text("", string(k))
	}
	w.raw(`]}`)
}

func (w *plainWriter) reply(r *Reply) {
	w.text(`{"archiveId":`, string(r.ArchiveID))
	w.hex(`,"sha256":`, r.SHA256)
	w.raw(`,"records":[`)
	for i := range r.Records {
		w.comma(i)
		w.record(&r.Records[i])
	}
	w.raw(`]`)
	w.someInt(`,"page":`, int64(r.Page))
	w.someInt(`,"pages":`, int64(r.Pages))
	w.someText(`,"boot":`, r.Boot)
	w.someText(`,"answer":`, r.Answer)
	w.someUint(`,"lost":`, r.Lost)
	w.someText(`,"checkpoint":`, r.Checkpoint)
	w.raw(`}`)
}

func (w *plainWriter) record(r *Record) {
	w.hex(`{"id":`, r.ID)
	w.text(`,"kind":`, string(r.Kind))
	w.hex(`,"sha256":`, r.SHA256)
	w.text(`,"tenantId":`, string(r.TenantID))
	w.someText(`,"submissionId":`, string(r.SubmissionID))
	w.someInt(`,"part":`, int64(r.Part))
	w.someText(`,"attachedAt":`, string(r.AttachedAt))
	w.someText(`,"storedAt":`, string(r.StoredAt))
	w.someUint(`,"seq":`, r.Seq)
	w.someText(`,"contentType":`, r.ContentType)
	if len(r.Body) > 0 {
		w.raw(`,"body":"`)
		w.b = base64.StdEncoding.AppendEncode(w.b, r.Body)
		w.raw(`"`)
	}
	w.someHex(`,"bodySha256":`, r.BodySHA256)
	if r.File != nil {
		w.raw(`,"file":`)
		w.file(r.File)
	}
	for i, s := range r.ShareWith {
		if i == 0 {
			w.raw(`,"shareWith":[`)
		}
		w.comma(i)
		w.text(`{"tenantId":`, string(s.TenantID))
		w.text(`,"mode":`, s.Mode)
		w.raw(`}`)
	}
	if len(r.ShareWith) > 0 {
		w.raw(`]`)
	}
	if r.Retention != nil {
		says, err := encodeAny(r.Retention)
		w.raw(`,"retention":` + string(says))
		w.odd = w.odd || err != nil
	}
	w.raw(`}`)
}

func (w *plainWriter) file(f *File) {
	w.raw(`{`)
	if !f.ID.IsZero() {
		w.hex(`"id":`, f.ID)
		w.raw(`,`)
	}
	if f.Name != "" {
		w.text(`"name":`, f.Name)
		w.raw(`,`)
	}
	w.raw(`"size":`)
	w.b = strconv.AppendInt(w.b, f.Size, 10)
	w.hex(`,"sha256":`, f.SHA256)
	w.text(`,"cid":`, f.CID)
	w.someText(`,"contentType":`, f.ContentType)
	w.raw(`}`)
}

func (w *plainWriter) comma(i int) {
	if i > 0 {
		w.raw(`,`)
	}
}

func (w *plainWriter) hex(key string, d [32]byte) {
	w.raw(key)
	w.b = append(hex.AppendEncode(append(w.b, '"'), d[:]), '"')
}

func (w *plainWriter) someHex(key string, d [32]byte) {
	if d != [32]byte{} {
		w.hex(key, d)
	}
}

func (w *plainWriter) someInt(key string, n int64) {
	if n != 0 {
		w.b = strconv.AppendInt(append(w.b, key...), n, 10)
	}
}

func (w *plainWriter) someUint(key string, n uint64) {
	if n != 0 {
		w.b = strconv.AppendUint(append(w.b, key...), n, 10)
	}
}

func (w *plainWriter) someText(key, s string) {
	if s != "" {
		w.text(key, s)
	}
}

func (w *plainWriter) text(key, s string) {
	b := append(append(w.b, key...), '"')
	from := 0 // what is before it has been appended
	for i := 0; i < len(s); i++ {
		c := s[i]
		switch {
		case c >= utf8.RuneSelf:
			r, n := utf8.DecodeRuneInString(s[i:])
			if r == utf8.RuneError && n == 1 || r == '\u2028' || r == '\u2029' {
				w.odd = true
			}
			i += n - 1
		case c < ' ' || c == '"' || c == '\\':
			short := plainEscapes[c]
			w.odd = w.odd || short == 0
			b = append(append(b, s[from:i]...), '\\', short)
			from = i + 1
		}
	}
	w.b = append(append(b, s[from:]...), '"')
}

// plainEscapes has what stands behind the backslash in the escape of a character.
var plainEscapes = [utf8.RuneSelf]byte{'"': '"', '\\': '\\', '\b': 'b', '\f': 'f', '\n': 'n', '\r': 'r', '\t': 't'}
