package splitter

import (
	"strings"
	"testing"
)

// TestMP02NamelessPartsAreRefused: a part whose Content-Disposition leaves any
// doubt is refused, naming the part and the header.
func TestMP02NamelessPartsAreRefused(t *testing.T) {
	for _, c := range []struct {
		name, header, says string
	}{
		{"unquoted blank", `Content-Disposition: form-data; name="files"; filename=scan 1.pdf`, "does not parse"},
		{"open quote", `Content-Disposition: form-data; name="files"; filename="scan`, "does not parse"},
		{"open quote of the name", `Content-Disposition: form-data; name="files; filename=x`, "does not parse"},
		{"filename twice", `Content-Disposition: form-data; name="files"; filename="a"; filename="b"`, "does not parse"},
		{"filename twice and equal", `Content-Disposition: form-data; name="files"; filename="a"; filename="a"`, "more than once"},
		{"name twice and equal", `Content-Disposition: form-data; name="files"; name="files"`, "more than once"},
		{"attachment", `Content-Disposition: attachment; name="files"; filename="a"`, "is not form-data"},
		{"no name", `Content-Disposition: form-data; filename="a"`, "has no name"},
		{"empty name", `Content-Disposition: form-data; name=""; filename="a"`, "has no name"},
		{"extended name", `Content-Disposition: form-data; name*=UTF-8''files`, "extended spelling"},
		{"split filename", `Content-Disposition: form-data; name="files"; filename*0="a"; filename*1="b"`, "extended spelling"},
		{"filename in an unknown charset", `Content-Disposition: form-data; name="files"; filename*=koi8-r''%C1`, "does not decode"},
		{"unquoted UTF-8", "Content-Disposition: form-data; name=\"files\"; filename=\u00e9.pdf", "does not parse"},
		{"no header at all", ``, "is missing"},
		{"another header only", `Content-Type: text/plain`, "is missing"},
		{"two headers", "Content-Disposition: form-data; name=\"files\"\r\nContent-Disposition: form-data; name=\"data\"", "is given 2 times"},
		{"two content types", "Content-Disposition: form-data; name=\"files\"\r\nContent-Type: a/b\r\nContent-Type: c/d", "is given 2 times"},
		{"no colon", "Content-Disposition form-data", "do not parse"},
		{"blank before the colon", `Content-Disposition : form-data; name="data"`, "Content-Disposition is missing"},
		{"folded first line", " Content-Disposition: form-data; name=\"data\"", "do not parse"},
		{"control character", "Content-Disposition: form-data; name=\"da\x00ta\"", "do not parse"},
		{"bare CR", "Content-Disposition: form-data; name=\"data\"\rX: y", "do not parse"},
	} {
		t.Run(c.name, func(t *testing.T) {
			header := c.header
			if header != "" {
				header += "\r\n"
			}
			whole := body(upload("files", "first.txt", "first"), header+"\r\ncontent")
			_, d, err := readForm(t, strings.NewReader(whole), Config{})
			refused(t, err, CodeBadPart, "part 2", c.says)
			if len(d.uploads) != 1 {
				t.Errorf("%d uploads were opened, want the first file's alone", len(d.uploads))
			}
		})
	}
}

// TestMP03TransferEncodings: only encodings that change nothing are taken.
func TestMP03TransferEncodings(t *testing.T) {
	part := func(encoding, content string) string {
		return "Content-Disposition: form-data; name=\"files\"; filename=\"a\"\r\nContent-Transfer-Encoding: " + encoding + "\r\n\r\n" + content
	}
	for _, encoding := range []string{"7bit", "8BIT", "Binary", " binary "} {
		req := mustForm(t, part(encoding, "a=3D=C3=A9"))
		if req.Subject != digestOf("a=3D=C3=A9") {
			t.Errorf("%q: the bytes were changed", encoding)
		}
	}
	for _, encoding := range []string{"quoted-printable", "QUOTED-printable", "base64", "Base64", "x-uuencode", "", "7bit, base64", "8bit;x"} {
		_, d, err := readForm(t, strings.NewReader(body(part(encoding, "aGVsbG8="))), Config{})
		refused(t, err, CodeUnsupportedEncoding, "Content-Transfer-Encoding", "part 1")
		if len(d.uploads) != 0 {
			t.Errorf("%q: an upload was opened", encoding)
		}
	}
}

// A part that says that it is compressed is refused: its bytes are kept as they
// are, and its content type would be told of what they are not.
func TestPartsAreNotCompressed(t *testing.T) {
	for _, encoding := range []string{"gzip", "identity", "", "br, gzip"} {
		part := "Content-Disposition: form-data; name=\"files\"; filename=\"a\"\r\nContent-Encoding: " + encoding + "\r\n\r\nx"
		_, d, err := readForm(t, strings.NewReader(body(part)), Config{})
		refused(t, err, CodeUnsupportedEncoding, "Content-Encoding", "part 1")
		if len(d.uploads) != 0 {
			t.Errorf("%q: an upload was opened", encoding)
		}
	}
}

// TestMP06ContentTypes is the table of boundaries.
func TestMP06ContentTypes(t *testing.T) {
	with := func(b string) string { return strings.ReplaceAll(body(value("data", "x")), boundary, b) }
	long := strings.Repeat("x", maxBoundary)
	for _, c := range []struct {
		name, contentType, body, code, says string
	}{
		{"plain", formType, with(boundary), "", ""},
		{"a blank in quotes", `multipart/form-data; boundary="a b"`, with("a b"), "", ""},
		{"upper-case parameter", `multipart/form-data; BOUNDARY=x`, with("x"), "", ""},
		{"upper-case type, more parameters", `Multipart/Form-Data; charset=utf-8; boundary=x; foo="boundary=y"`, with("x"), "", ""},
		{"longest", "multipart/form-data; boundary=" + long, with(long), "", ""},
		{"every allowed character", `multipart/form-data; boundary="'()+_,-./:=?0aZ"`, with("'()+_,-./:=?0aZ"), "", ""},
		{"trailing semicolon", "multipart/form-data; boundary=x;", with("x"), "", ""},
		{"no boundary", "multipart/form-data", with("x"), CodeBadContentType, "no boundary"},
		{"no semicolon", "multipart/form-data boundary=x", with("x"), CodeBadContentType, "does not parse"},
		{"a blank outside quotes", "multipart/form-data; boundary=a b", with("a b"), CodeBadContentType, "does not parse"},
		{"empty", `multipart/form-data; boundary=""`, with(""), CodeBadContentType, "empty boundary"},
		{"empty without quotes", `multipart/form-data; boundary=`, with(""), CodeBadContentType, "does not parse"},
		{"twice", "multipart/form-data; boundary=x; boundary=y", with("x"), CodeBadContentType, "duplicate"},
		{"twice and equal", "multipart/form-data; boundary=x; boundary=x", with("x"), CodeBadContentType, "more than one boundary"},
		{"twice in quotes", `multipart/form-data; boundary="x\"\\"; a=b; Boundary="x\"\\"`, with("x"), CodeBadContentType, "more than one boundary"},
		{"extended", "multipart/form-data; boundary*=utf-8''x", with("x"), CodeBadContentType, "more than one boundary"},
		{"split", "multipart/form-data; boundary*0=x; boundary*1=y", with("xy"), CodeBadContentType, "more than one boundary"},
		{"too long", "multipart/form-data; boundary=x" + long, with("x" + long), CodeBadContentType, "71 bytes"},
		{"blank at the end", `multipart/form-data; boundary="x "`, with("x "), CodeBadContentType, "does not allow"},
		{"a character of no boundary", `multipart/form-data; boundary="a;b"`, with("a;b"), CodeBadContentType, "does not allow"},
		{"open quote", `multipart/form-data; boundary="x`, with("x"), CodeBadContentType, "does not parse"},
		{"missing", "", with("x"), CodeBadContentType, "does not parse"},
		{"mixed", "multipart/mixed; boundary=x", with("x"), CodeUnsupportedMediaType, "multipart/form-data"},
		{"urlencoded", "application/x-www-form-urlencoded", "data=x", CodeUnsupportedMediaType, "multipart/form-data"},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := &depot{t: t}
			req, err := ReadMultipart(t.Context(), strings.NewReader(c.body), c.contentType, d.config())
			d.sound(req, err)
			if c.code == "" {
				if err != nil || req.Subject != digestOf("x") {
					t.Fatalf("got %v, %v", req, err)
				}
				return
			}
			refused(t, err, c.code, c.says)
		})
	}
}

// TestFileNamesAreForDisplay: a name is kept as it was sent.
func TestFileNamesAreForDisplay(t *testing.T) {
	for header, want := range map[string]string{
		`filename="..\..\etc/passwd"`:                      `..\..\etc/passwd`,
		`filename="C:\fakepath\scan.pdf"`:                  `C:\fakepath\scan.pdf`,
		`filename="../../x"`:                               `../../x`,
		`filename=plain.txt`:                               `plain.txt`,
		`filename="a \"quoted\" name"`:                     `a "quoted" name`,
		"filename=\"r\u00e9sum\u00e9.pdf\"":                "r\u00e9sum\u00e9.pdf",
		`filename="?.pdf"; filename*=UTF-8''%E2%82%AC.pdf`: "\u20ac.pdf",
		`filename*=UTF-8'en'%E2%82%AC.pdf`:                 "\u20ac.pdf",
		`filename="kept.pdf"; filename*=koi8-r''%C1`:       "kept.pdf",
		"filename=\"folded\r\n name.pdf\"":                 "folded name.pdf",
		`filename="` + strings.Repeat("n", 255) + `"`:      strings.Repeat("n", 255),
		`FileName="Mixed.txt"`:                             "Mixed.txt",
	} {
		req := mustForm(t, `Content-Disposition: form-data; name="files"; `+header+"\r\n\r\nx")
		if got := req.Files[0].Name; got != want {
			t.Errorf("%s: the name is %q, want %q", header, got, want)
		}
	}
	for header, code := range map[string]string{
		"filename=\"\xff\xfe\"":                       CodeBadField,
		`filename*=UTF-8''a%0D%0AX-Injected%3A%20y`:   CodeBadField,
		`filename*=UTF-8''a%00b`:                      CodeBadField,
		`filename*=UTF-8''%C2%85`:                     CodeBadField,
		"filename=\"a\u0085b\"":                       CodeBadField,
		`filename="` + strings.Repeat("n", 256) + `"`: CodeTooLarge,
		"filename=\"a\r\nX-Injected: y\"":             CodeBadPart,
	} {
		_, d, err := readForm(t, strings.NewReader(body(`Content-Disposition: form-data; name="files"; `+header+"\r\n\r\nx")), Config{})
		refused(t, err, code, "part 1")
		if len(d.uploads) != 0 {
			t.Errorf("%s: an upload was opened", header)
		}
	}
}

// TestContentTypesAreKept: what is stored and served later must be a content
// type, and says nothing of bytes whose sender said nothing.
func TestContentTypesAreKept(t *testing.T) {
	part := func(name, contentType string) string {
		return "Content-Disposition: form-data; name=\"" + name + "\"; filename=\"a\"\r\n" + contentType + "\r\nx"
	}
	for header, want := range map[string]string{
		"": DefaultContentType, "Content-Type:\r\n": DefaultContentType, "Content-Type: \r\n": DefaultContentType,
		"Content-Type: Image/PNG\r\n": "Image/PNG", "content-type:text/plain; charset=\"utf-8\" \r\n": `text/plain; charset="utf-8"`,
	} {
		req := mustForm(t, part("files", header), part("attachment:note", header))
		if req.Files[0].ContentType != want || req.Attachments[0].ContentType != want {
			t.Errorf("%q: file %q, attachment %q, want %q", header, req.Files[0].ContentType, req.Attachments[0].ContentType, want)
		}
	}
	for header, code := range map[string]string{
		"Content-Type: file\r\n": CodeBadField, "Content-Type: a/b; c\r\n": CodeBadField, "Content-Type: a/b; c=\"\u00e9\"\r\n": CodeBadField,
		"Content-Type: a/" + strings.Repeat("b", 254) + "\r\n": CodeTooLarge,
	} {
		for _, name := range []string{"files", "attachment:note"} {
			_, _, err := readForm(t, strings.NewReader(body(part(name, header))), Config{})
			refused(t, err, code, "part 1", name, "content type")
		}
	}
	mustForm(t, value("data", "x"), "Content-Disposition: form-data; name=\"publicMetadata\"\r\nContent-Type: nonsense\r\n\r\n{}")
}
