package wire

import (
	"bytes"
	"encoding/base64"
	"strings"
	"unicode/utf8"
)

// DecodeQuery is Decode[Query], in a tenth of its time for what Encode makes of one.
func DecodeQuery(data []byte) (Query, error) {
	if q, ok := plainQuery(data); ok {
		return q, nil
	}
	return Decode[Query](data)
}

// plainQuery and plainReply read what Encode writes: known keys in their order, no
// blanks. What that is breaks no rule of Decode, which reads it alike. What they
// refuse may be right all the same, and is left to Decode.
func plainQuery(data []byte) (q Query, ok bool) {
	r := plainReader{rest: data, bad: !utf8.Valid(data)}
	q.CorrelationID = CorrelationID(r.text(`{"correlationId":`))
	q.SHA256 = r.hex(`,"sha256":`)
	q.TenantID = TenantID(r.text(`,"tenantId":`))
	q.Kinds = []Kind{}
	for r.list(`,"kinds":[`, len(q.Kinds)) {
		q.Kinds = append(q.Kinds, Kind(r.text("")))
	}
	return q, r.end()
}

func plainReply(data []byte) (out Reply, ok bool) {
	r := plainReader{rest: data, bad: !utf8.Valid(data)}
	out.ArchiveID = ArchiveID(r.text(`{"archiveId":`))
	out.SHA256 = r.hex(`,"sha256":`)
	out.Records = []Record{}
	for r.list(`,"records":[`, len(out.Records)) {
		out.Records = append(out.Records, r.record())
	}
	out.Page = int(r.someInt(`,"page":`))
	out.Pages = int(r.someInt(`,"pages":`))
	out.Boot = r.someText(`,"boot":`)
	out.Answer = r.someText(`,"answer":`)
	out.Lost = uint64(r.someInt(`,"lost":`))
	out.Checkpoint = r.someText(`,"checkpoint":`)
	return out, r.end()
}

// A plainReader takes values off the front of a text. bad is sticky.
type plainReader struct {
	rest []byte
	bad  bool
}

func (r *plainReader) record() (out Record) {
	out.ID = r.hex(`{"id":`)
	out.Kind = Kind(r.text(`,"kind":`))
	out.SHA256 = r.hex(`,"sha256":`)
	out.TenantID = TenantID(r.text(`,"tenantId":`))
	if id := r.someText(`,"submissionId":`); id != "" {
		out.SubmissionID = lowerUUID[SubmissionID]([]byte(id))
	}
	out.Part = int(r.someInt(`,"part":`))
	out.AttachedAt = Time(r.someText(`,"attachedAt":`))
	out.StoredAt = Time(r.someText(`,"storedAt":`))
	out.Seq = uint64(r.someInt(`,"seq":`))
	out.ContentType = r.someText(`,"contentType":`)
	if r.has(`,"body":`) {
		out.Body = r.base64()
	}
	if r.has(`,"bodySha256":`) {
		out.BodySHA256 = r.hex("")
	}
	if r.has(`,"file":{`) {
		out.File = r.file()
	}
	if r.has(`,"shareWith":[`) {
		for r.list("", len(out.ShareWith)) {
			s := Share{TenantID: TenantID(r.text(`{"tenantId":`)), Mode: r.text(`,"mode":`)}
			r.must(`}`)
			out.ShareWith = append(out.ShareWith, s)
		}
		r.bad = r.bad || out.ShareWith == nil
	}
	r.must(`}`) // a state of retention is left to Decode
	return out
}

func (r *plainReader) file() *File {
	f := new(File)
	if r.has(`"id":`) {
		f.ID = r.hex("")
		r.must(`,`)
	}
	if r.has(`"name":`) {
		f.Name = r.text("")
		r.must(`,`)
	}
	f.Size = r.int(`"size":`)
	f.SHA256 = r.hex(`,"sha256":`)
	f.CID = r.text(`,"cid":`)
	f.ContentType = r.someText(`,"contentType":`)
	r.must(`}`)
	return f
}

// end takes the end of the outermost object and reports whether all was read.
func (r *plainReader) end() bool {
	r.must(`}`)
	return !r.bad && len(r.rest) == 0
}

// has takes prefix, if the text goes on with it.
func (r *plainReader) has(prefix string) bool {
	if r.bad || len(r.rest) < len(prefix) || string(r.rest[:len(prefix)]) != prefix {
		return false
	}
	r.rest = r.rest[len(prefix):]
	return true
}

func (r *plainReader) must(prefix string) { r.bad = !r.has(prefix) }

// list goes on to the next of the values of a list, of which n have been read, and
// takes what is around them.
func (r *plainReader) list(head string, n int) bool {
	if n == 0 {
		r.must(head)
		return !r.has(`]`) && !r.bad
	}
	if r.has(`]`) {
		return false
	}
	r.must(`,`)
	return !r.bad
}

// quoted takes a key and the string behind it, as it stands there.
func (r *plainReader) quoted(key string) []byte {
	r.must(key)
	r.must(`"`)
	for at := 0; !r.bad; {
		n := bytes.IndexByte(r.rest[at:], '"')
		if n < 0 {
			break
		}
		at += n
		if at == 0 || r.rest[at-1] != '\\' || escapes(r.rest[:at])%2 == 0 {
			text := r.rest[:at]
			r.rest = r.rest[at+1:]
			return text
		}
		at++
	}
	r.bad = true
	return nil
}

// escapes counts the backslashes at the end of text.
func escapes(text []byte) int { return len(text) - len(bytes.TrimRight(text, `\`)) }

func (r *plainReader) text(key string) string {
	text := r.quoted(key)
	escaped := false
	for _, c := range text {
		r.bad = r.bad || c < ' '
		escaped = escaped || c == '\\'
	}
	if !escaped {
		return string(text)
	}
	var b strings.Builder
	b.Grow(len(text))
	for i := 0; i < len(text); i++ {
		c := text[i]
		if c == '\\' {
			i++ // a text does not end in a single one
			if c = plainMeanings[text[i]&0x7f]; c == 0 || text[i] >= utf8.RuneSelf {
				r.bad = true // rare
				return ""
			}
		}
		b.WriteByte(c)
	}
	return b.String()
}

// plainMeanings is plainEscapes the other way round.
var plainMeanings = [utf8.RuneSelf]byte{'"': '"', '\\': '\\', 'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t'}

func (r *plainReader) someText(key string) string {
	if !r.has(key) {
		return ""
	}
	return r.text("")
}

func (r *plainReader) hex(key string) [32]byte {
	d, ok := digestOfHex(r.quoted(key))
	r.bad = r.bad || !ok
	return d
}

func (r *plainReader) base64() []byte {
	text := r.quoted("")
	out := make([]byte, base64.StdEncoding.DecodedLen(len(text)))
	n, err := base64.StdEncoding.Decode(out, text)
	r.bad = r.bad || err != nil || bytes.ContainsAny(text, "\r\n") // which that skips
	return out[:n]
}

// int takes a key and an integer that is not negative.
func (r *plainReader) int(key string) (n int64) {
	r.must(key)
	digits := 0
	for ; digits < len(r.rest) && '0' <= r.rest[digits] && r.rest[digits] <= '9'; digits++ {
	}
	if digits == 0 || digits > 1 && r.rest[0] == '0' || tooBig(r.rest[:digits]) {
		r.bad = true
		return 0
	}
	for _, c := range r.rest[:digits] {
		n = 10*n + int64(c-'0')
	}
	r.rest = r.rest[digits:]
	return n
}

func (r *plainReader) someInt(key string) int64 {
	if !r.has(key) {
		return 0
	}
	return r.int("")
}
