package wire

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// plainLaw holds the readers and writers of the payloads of a lookup against
// encoding/json behind the strict scan: what one takes both read alike, and what is
// written has the same bytes. It reports whether data was read, and written again.
func plainLaw(t *testing.T, data []byte) (read, written bool) {
	t.Helper()
	if got, ok := plainQuery(data); ok {
		read = true
		want, err := Decode[Query](data)
		if err != nil || !reflect.DeepEqual(want, got) {
			t.Errorf("%q: %v\nplain  %+v\nDecode %+v", data, err, got, want)
		}
	}
	if got, ok := plainReply(data); ok {
		read = true
		want, err := Decode[Reply](data)
		if err != nil || !reflect.DeepEqual(want, got) {
			t.Errorf("%q: %v\nplain  %+v\nDecode %+v", data, err, got, want)
		}
	}
	var values []any
	if q, err := Decode[Query](data); err == nil {
		values = append(values, q)
	}
	if r, err := Decode[Reply](data); err == nil {
		values = append(values, r)
		for i := range r.Records {
			values = append(values, &r.Records[i])
		}
	}
	for _, v := range values {
		got, ok := encodePlain(v)
		written = written || ok
		want, err := encodeAny(v)
		if ok && (err != nil || string(got) != string(want)) {
			t.Errorf("%T: %v\nplain %s\njson  %s", v, err, got, want)
		}
	}
	return read, written
}

func FuzzPlainIsWhatJSONIs(f *testing.F) {
	for _, seed := range plainSeeds(f) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, data []byte) { plainLaw(t, data) })
}

// plainSeeds are the golden replies and queries as they are sent.
func plainSeeds(t testing.TB) (out [][]byte) {
	t.Helper()
	for _, pattern := range []string{"query*", "reply*"} {
		files, err := filepath.Glob("testdata/" + pattern + ".json")
		if err != nil || len(files) == 0 {
			t.Fatal(files, err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var v any
			if strings.HasPrefix(pattern, "query") {
				v, err = Decode[Query](text)
			} else {
				v, err = Decode[Reply](text)
			}
			if err != nil {
				t.Fatal(err)
			}
			data, err := encodeAny(v)
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, data)
		}
	}
	return out
}

// What we send takes the short way both ways; what is a byte off it is refused or
// read as ever.
func TestPlainIsWhatWeSend(t *testing.T) {
	for _, data := range plainSeeds(t) {
		if read, written := plainLaw(t, data); !read || !written {
			t.Errorf("read %v, written %v: %s", read, written, data)
		}
		text := string(data)
		for i := 0; i < len(text); i += 1 + len(text)/100 {
			plainLaw(t, []byte(text[:i]))
			for _, odd := range []string{`\`, `"`, `,`, `0`, ` `, "\n", "\xff", `\n`, `\u0041`} {
				plainLaw(t, []byte(text[:i]+odd+text[i:]))
				plainLaw(t, []byte(text[:i]+odd+text[i+1:]))
			}
		}
	}
}

// Texts and numbers of all sorts keep their bytes.
func TestPlainWritesOddTexts(t *testing.T) {
	texts := []string{"", "null", "a\"b\\c/d", "\b\f\n\r\t", "\x00\x1f", "\x7f", "<&>", "é — 😀", "\u2028", "\u2029", "\ufffd", "\xff", "a\xe2\x80", `\\`, "x\\"}
	for _, a := range texts {
		for _, n := range []int{0, 7, -7, MaxInteger} {
			r := Record{Kind: Kind(a), TenantID: TenantID(a), SubmissionID: SubmissionID(a), Part: n, AttachedAt: Time(a), StoredAt: Time(a),
				Seq: uint64(max(n, 0)), ContentType: a, Body: []byte(a), File: &File{Name: a, Size: int64(n), CID: a, ContentType: a},
				ShareWith: []Share{{TenantID(a), a}, {}}, Retention: &Retention{RetainUntil: Time(a), Holds: []Hold{{Name: a}}}}
			if n == 0 {
				r.Retention, r.ShareWith, r.ID, r.File.ID, r.BodySHA256 = nil, []Share{}, RecordID{1}, RecordID{2}, Digest{3}
			}
			for _, v := range []any{&r, Query{CorrelationID: CorrelationID(a), TenantID: TenantID(a), Kinds: []Kind{Kind(a), "k"}},
				Reply{ArchiveID: ArchiveID(a), Records: []Record{r, r}, Page: n, Pages: n, Boot: a, Answer: a, Lost: r.Seq, Checkpoint: a}} {
				got, ok := encodePlain(v)
				want, err := encodeAny(v)
				if ok && (err != nil || string(got) != string(want)) {
					t.Errorf("%v\nplain %s\njson  %s", err, got, want)
				}
				plainLaw(t, want)
			}
		}
	}
}
