package splitter

import (
	"bytes"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/verae/archive/internal/fault"
)

var codes = map[string]bool{
	CodeBadContentType: true, CodeUnsupportedMediaType: true, CodeUnsupportedEncoding: true, CodeIncompleteBody: true, CodeMalformedMultipart: true,
	CodeBadPart: true, CodeBadJSON: true, CodeUnknownField: true, CodeDuplicateField: true, CodeBadField: true, CodeBadDigest: true,
	CodeReservedKind: true, CodeTooLarge: true, CodeSubjectRequired: true, CodeDigestMismatch: true, CodeFileIsURL: true,
	CodeFileRequired: true,
}

// small limits let a fuzzer reach them.
var small = Limits{
	Body: 4 << 10, JSONBody: 4 << 10, Data: 512, Field: 128, Metadata: 256, Attachment: 256, Attachments: 3, Files: 3,
	Parts: 8, PartHeader: 512, FileName: 32, ContentType: 64, Shares: 3, CallbackURL: 64,
}

// agree reads the same bytes in one piece and byte by byte, and checks what must
// hold of both results: with an uploader that never fails there is a request or
// the sender's fault, the same both times.
func agree(t *testing.T, data []byte, read func(r io.Reader, cfg Config) (*Request, error)) *Request {
	var reqs [2]*Request
	var errs [2]error
	for i, r := range []io.Reader{bytes.NewReader(data), iotest.OneByteReader(bytes.NewReader(data))} {
		d := &depot{t: t}
		cfg := d.config()
		cfg.Limits = small
		reqs[i], errs[i] = read(r, cfg)
		d.sound(reqs[i], errs[i])
		if err := errs[i]; err != nil && (!fault.Is(err, fault.Invalid) || !codes[fault.CodeOf(err)] || len(err.Error()) > 2000) {
			t.Fatalf("%v %q: %v", fault.KindOf(err), fault.CodeOf(err), err)
		}
	}
	if fault.CodeOf(errs[0]) != fault.CodeOf(errs[1]) {
		t.Fatalf("in one piece: %v; byte by byte: %v", errs[0], errs[1])
	}
	if errs[0] != nil {
		return nil
	}
	if !bytes.Equal(reqs[0].Canonical(), reqs[1].Canonical()) || reqs[0].Placement != reqs[1].Placement {
		t.Fatal("two readings of the same bytes differ")
	}
	records, err := Split(reqs[0], stamp, seal)
	if err != nil {
		t.Fatalf("an accepted request makes no records: %v", err)
	}
	for i, r := range records {
		if r.Part != i || r.SHA256 != reqs[0].Subject || r.Kind.Control() {
			t.Fatalf("record %d: %+v", i, r)
		}
	}
	return reqs[0]
}

func FuzzReadMultipart(f *testing.F) {
	f.Add([]byte(sample()), formType)
	f.Add([]byte(body(value("data", "x"))), `multipart/form-data; boundary="XbX"; charset=utf-8`)
	for _, parts := range [][]string{
		{value("sha256", digestOf("x").String()), upload("files[1]", "a", "aaa"), upload("files[0]", "b", "bbb"), value("ocr:1", "true")},
		{value("data", "x"), value("attachment:note", "n"), value("shareWith", "a,b"), value("public", "true"), value("callbackUrl", "https://example.com/")},
		{value("files", "https://example.com/x")}, {upload("files", "", "")}, {value("privateMetadata", `{"a":[1,{}]}`)},
		{"Content-Disposition: form-data; name=files; filename=\"a\\\"b\"; filename*=UTF-8''%20\r\nContent-Transfer-Encoding: 8bit\r\n\r\nx"},
		{"Content-Disposition: attachment; name=\"files\"\r\n\r\nx"},
	} {
		f.Add([]byte(body(parts...)), formType)
	}
	f.Add([]byte("\r\n--XbX \r\n\r\n--XbX--"), formType)
	f.Fuzz(func(t *testing.T, data []byte, contentType string) {
		req := agree(t, data, func(r io.Reader, cfg Config) (*Request, error) {
			return ReadMultipart(t.Context(), r, contentType, cfg)
		})
		if req == nil {
			return
		}
		// Every accepted body is complete: without its last delimiter it is not.
		end := bytes.LastIndex(data, []byte("--"))
		d := &depot{t: t}
		cfg := d.config()
		cfg.Limits = small
		cut, err := ReadMultipart(t.Context(), bytes.NewReader(data[:end]), contentType, cfg)
		d.sound(cut, err)
		if fault.CodeOf(err) != CodeIncompleteBody {
			t.Fatalf("cut before its last delimiter ends: %v", err)
		}
	})
}

func FuzzReadJSON(f *testing.F) {
	for _, object := range []string{
		`{"data":"x"}`, `{"sha256":"` + strings.ToUpper(digestOf("x").String()) + `","data":"x"}`, `{"dataBase64":"eA=="}`, `{}`, `null`, `[]`,
		`{"data":"x","publicMetadata":{ "a":1.0},"privateMetadata":{"b":"\ud83d\ude00"},"sealMetadata":true,"includeAttached":true}`,
		`{"files":[{"name":"a","contentType":"a/b","dataBase64":"eA==","ocr":true}],"ocr":false,"expectFileSha256":"` + digestOf("x").String() + `"}`,
		`{"data":"x","attachments":[{"kind":"note","dataBase64":""}],"shareWith":["a",{"tenantId":"b","mode":"A"}],"public":true,"callbackUrl":"https://example.com/"}`,
		`{"files":["https://example.com/"]}`, `{"data":"x","tenantId":1,"unknown":{"a":[]}}`,
	} {
		f.Add([]byte(object))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		agree(t, data, func(r io.Reader, cfg Config) (*Request, error) { return ReadJSON(t.Context(), r, cfg) })
	})
}

// FuzzContentIsExact hides any content between delimiters: it comes out as it
// went in, or not at all.
func FuzzContentIsExact(f *testing.F) {
	for _, content := range []string{"", "x", "\r\n", "\r\n--XbX", "--XbX--", "\r\n--Xb", "a\r\n--XbXx\r\n", "\r\r\n--XbX \r\n"} {
		f.Add(content)
	}
	f.Fuzz(func(t *testing.T, content string) {
		got, err := contentOf(strings.NewReader(body("X: y\r\n\r\n" + content)))
		if holdsDelimiter(content + "\r\n--XbX--") {
			if err == nil {
				t.Fatalf("%q with a delimiter inside came out as %q", content, got)
			}
			return
		}
		if err != nil || got != content {
			t.Fatalf("%q came out as %q, %v", content, got, err)
		}
	})
}
