package splitter

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/verae/archive/wire"
)

func b64(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }

// quoted is s as a JSON string.
func quoted(s string) string {
	b, err := json.Marshal(s)
	if err != nil {
		panic(err)
	}
	return string(b)
}

// jsonFileOf is a file as JSON has it.
func jsonFileOf(name, content string) string {
	return fmt.Sprintf(`{"name":%q,"contentType":"text/plain","dataBase64":%q}`, name, b64(content))
}

// both reads the same request in its two forms.
func both(t *testing.T, object string, parts ...string) (form, object2 *Request, errs [2]error) {
	t.Helper()
	form, _, errs[0] = readForm(t, strings.NewReader(body(parts...)), Config{})
	object2, _, errs[1] = readJSON(t, strings.NewReader(object), Config{})
	return form, object2, errs
}

// TestSubject is the table of what a request is about, the same in both forms.
func TestSubject(t *testing.T) {
	a, b := upload("files", "a", "aaa"), upload("files", "b", "bbb")
	ja, jb := jsonFileOf("a", "aaa"), jsonFileOf("b", "bbb")
	hello, other := digestOf("hello"), digestOf("other")
	for _, c := range []struct {
		name       string
		object     string
		parts      []string
		subject    wire.Digest
		hashedFrom string
		code, says string
	}{
		{"sha256", fmt.Sprintf(`{"sha256":%q}`, hello), []string{value("sha256", hello.String())}, hello, FromSHA256, "", ""},
		{"sha256 with blanks", fmt.Sprintf(`{"sha256":" sha256:%s\n"}`, hello), []string{value("sha256", " sha256:"+hello.String()+"\n")}, hello, FromSHA256, "", ""},
		{"data", `{"data":"hello"}`, []string{value("data", "hello")}, hello, FromData, "", ""},
		{"sha256 and the same data", fmt.Sprintf(`{"sha256":%q,"data":"hello"}`, hello), []string{value("sha256", hello.String()), value("data", "hello")}, hello, FromSHA256, "", ""},
		{"the only file", `{"files":[` + ja + `]}`, []string{a}, digestOf("aaa"), FromFile, "", ""},
		{"sha256 with a file of something else", fmt.Sprintf(`{"sha256":%q,"files":[%s]}`, hello, ja), []string{a, value("sha256", hello.String())}, hello, FromSHA256, "", ""},
		{"sha256 with several files", fmt.Sprintf(`{"sha256":%q,"files":[%s,%s]}`, hello, ja, jb), []string{a, b, value("sha256", hello.String())}, hello, FromSHA256, "", ""},
		{"data with a file", `{"data":"hello","files":[` + ja + `]}`, []string{a, value("data", "hello")}, hello, FromData, "", ""},
		{"data of no bytes", `{"data":""}`, []string{value("data", "")}, digestOf(""), FromData, "", ""},

		{"sha256 and other data", fmt.Sprintf(`{"sha256":%q,"data":"hello"}`, other), []string{value("sha256", other.String()), value("data", "hello")}, wire.Digest{}, "", CodeDigestMismatch, hello.String()},
		{"other data first", fmt.Sprintf(`{"data":"hello","files":[%s],"sha256":%q}`, ja, other), []string{value("data", "hello"), a, value("sha256", other.String())}, wire.Digest{}, "", CodeDigestMismatch, hello.String()},
		{"several files", `{"files":[` + ja + `,` + jb + `]}`, []string{a, b}, wire.Digest{}, "", CodeSubjectRequired, "2 files"},
		{"metadata only", `{"publicMetadata":{}}`, []string{value("publicMetadata", "{}")}, wire.Digest{}, "", CodeSubjectRequired, "nothing to seal"},
		{"nothing", `{}`, nil, wire.Digest{}, "", CodeSubjectRequired, "nothing to seal"},
	} {
		t.Run(c.name, func(t *testing.T) {
			parts := c.parts
			form, object, errs := both(t, c.object, parts...)
			if parts == nil { // a form without parts is the closing delimiter alone
				form, _, errs[0] = readForm(t, strings.NewReader("--"+boundary+"--"), Config{})
			}
			if c.code != "" {
				refused(t, errs[0], c.code, c.says)
				refused(t, errs[1], c.code, c.says)
				return
			}
			if errs[0] != nil || errs[1] != nil {
				t.Fatal(errs)
			}
			for _, req := range []*Request{form, object} {
				if req.Subject != c.subject || req.HashedFrom != c.hashedFrom || req.TenantID != theTenant {
					t.Errorf("%s from %q for %q", req.Subject, req.HashedFrom, req.TenantID)
				}
			}
			if !bytes.Equal(form.Canonical(), object.Canonical()) {
				t.Error("the two forms make different records")
			}
		})
	}
}

// TestSH05DataIsHashedAsGiven: data is never taken for a digest, and never
// changed before it is hashed.
func TestSH05DataIsHashedAsGiven(t *testing.T) {
	for _, data := range []string{
		digestOf("x").String(), "hello", "hello\n", "hello\r\n", "\ufeffhello", " ", "\r\n", "a\r\n--Xb", "https://example.com/", "<é\u2028>", "\x00",
	} {
		form, object, errs := both(t, `{"data":`+quoted(data)+`}`, value("data", data))
		if errs[0] != nil || errs[1] != nil {
			t.Fatalf("%q: %v", data, errs)
		}
		third := mustJSON(t, `{"dataBase64":`+quoted(b64(data))+`}`)
		for _, req := range []*Request{form, object, third} {
			if req.Subject != digestOf(data) || req.HashedFrom != FromData {
				t.Errorf("%q: %s from %s", data, req.Subject, req.HashedFrom)
			}
		}
	}
	raw := "\xff\xfe not UTF-8"
	if mustForm(t, value("data", raw)).Subject != digestOf(raw) || mustJSON(t, `{"dataBase64":"`+b64(raw)+`"}`).Subject != digestOf(raw) {
		t.Error("data that is no text was changed")
	}
	if got := mustJSON(t, `{"data":"\u0068\u00e9\ud83d\ude00"}`).Subject; got != digestOf("h\u00e9\U0001F600") {
		t.Error("escapes in data are not the characters they stand for")
	}
}

// TestBadDigests: a refusal says what the text looks like.
func TestBadDigests(t *testing.T) {
	for _, field := range []string{"sha256", "expectFileSha256"} {
		for text, says := range map[string]string{
			"da39a3ee5e6b4b0d3255bfef95601890afd80709": "SHA-1", "": "", "xyz": "", "0x" + digestOf("x").String(): "",
			"sha256-" + digestOf("x").String(): "base64",
		} {
			_, _, errs := both(t, fmt.Sprintf(`{%q:%q}`, field, text), value(field, text))
			refused(t, errs[0], CodeBadDigest, field, says)
			refused(t, errs[1], CodeBadDigest, field, says)
		}
	}
}

// TestExpectFileSHA256: exactly one file has the digest, or nothing is done.
func TestExpectFileSHA256(t *testing.T) {
	a, b := upload("files", "a", "aaa"), upload("files", "b", "bbb")
	ja, jb := jsonFileOf("a", "aaa"), jsonFileOf("b", "bbb")
	want := digestOf("bbb")
	for _, c := range []struct {
		name         string
		objects      []string
		parts        []string
		accept, says string
	}{
		{"the file", []string{jb}, []string{b}, "yes", ""},
		{"one of two", []string{ja, jb}, []string{a, b}, "yes", ""},
		{"none", []string{ja}, []string{a}, "", digestOf("aaa").String()},
		{"twice", []string{jb, jb}, []string{b, b}, "", "exactly one"},
		{"no file", nil, nil, "", "no file"},
	} {
		t.Run(c.name, func(t *testing.T) {
			object := fmt.Sprintf(`{"data":"x","files":[%s],"expectFileSha256":%q}`, strings.Join(c.objects, ","), want)
			form, fromJSON, errs := both(t, object, append([]string{value("expectFileSha256", want.String()), value("data", "x")}, c.parts...)...)
			if c.accept == "" {
				refused(t, errs[0], CodeDigestMismatch, "expectFileSha256", c.says)
				refused(t, errs[1], CodeDigestMismatch, "expectFileSha256", c.says)
				return
			}
			if errs[0] != nil || errs[1] != nil {
				t.Fatal(errs)
			}
			if *form.ExpectFileSHA256 != want || *fromJSON.ExpectFileSHA256 != want {
				t.Error("the digest is not in the request")
			}
		})
	}
}

// TestPlacement: the digest where it is known before the first file, else the
// submission.
func TestPlacement(t *testing.T) {
	x, file := digestOf("x"), upload("files", "a", "aaa")
	unused := upload("files", "", "")
	for name, c := range map[string]struct {
		parts []string
		want  [32]byte
	}{
		"sha256 first":                 {[]string{value("sha256", x.String()), file}, x},
		"data first":                   {[]string{value("data", "x"), file}, x},
		"sha256 after":                 {[]string{file, value("sha256", x.String())}, submissionKey(theSubmission)},
		"the only file":                {[]string{file}, submissionKey(theSubmission)},
		"between files":                {[]string{file, value("data", "x"), file}, submissionKey(theSubmission)},
		"no file":                      {[]string{value("publicMetadata", "{}"), value("sha256", x.String())}, x},
		"after an input left empty":    {[]string{unused, value("sha256", x.String()), file}, x},
		"an input left empty, no file": {[]string{unused, value("sha256", x.String())}, x},
	} {
		if req := mustForm(t, c.parts...); req.Placement != c.want {
			t.Errorf("%s: placed by %x, want %x", name, req.Placement, c.want)
		}
	}
	if req := mustJSON(t, `{"files":[`+jsonFileOf("a", "aaa")+`]}`); req.Placement != digestOf("aaa") {
		t.Error("a file in JSON is known before it is sent, and not placed by its digest")
	}
}

// TestOCR: the request's default and a file's own wish.
func TestOCR(t *testing.T) {
	a, b := upload("files", "a", "aaa"), upload("files", "b", "bbb")
	wish := func(name, wish string) string {
		return fmt.Sprintf(`{"name":%q,"dataBase64":%q%s}`, name, b64(strings.Repeat(name, 3)), wish)
	}
	for _, c := range []struct {
		name   string
		object string
		parts  []string
		want   []bool
	}{
		{"off", wish("a", "") + "," + wish("b", ""), nil, []bool{false, false}},
		{"second", wish("a", "") + "," + wish("b", `,"ocr":true`), []string{value("ocr:1", "true")}, []bool{false, true}},
		{"null is absent", wish("a", `,"ocr":null`) + "," + wish("b", `,"ocr":true`), []string{value("ocr:1", "true")}, []bool{false, true}},
	} {
		form, object, errs := both(t, `{"data":"x","files":[`+c.object+`]}`, append([]string{value("data", "x"), a, b}, c.parts...)...)
		if errs[0] != nil || errs[1] != nil {
			t.Fatalf("%s: %v", c.name, errs)
		}
		for _, req := range []*Request{form, object} {
			if got := []bool{req.Files[0].OCR, req.Files[1].OCR}; !cmp.Equal(got, c.want) {
				t.Errorf("%s: %v, want %v", c.name, got, c.want)
			}
		}
	}
	form, object, errs := both(t, `{"ocr":true,"data":"x","files":[`+wish("a", `,"ocr":false`)+","+wish("b", "")+`]}`,
		value("ocr:0", "false"), value("ocr", " true\n"), value("data", "x"), a, b)
	if errs[0] != nil || errs[1] != nil {
		t.Fatal(errs)
	}
	for _, req := range []*Request{form, object} {
		if !req.OCR || req.Files[0].OCR || !req.Files[1].OCR {
			t.Errorf("a file's own wish does not beat the default: %+v", req.Files)
		}
	}
	req := mustForm(t, upload("files[3]", "a", "aaa"), value("ocr:7", "true"), upload("files[7]", "b", "bbb"), value("data", "x"))
	if req.Files[0].OCR || !req.Files[1].OCR {
		t.Errorf("ocr:7 is not for files[7]: %+v", req.Files)
	}
	req = mustForm(t, upload("files", "", ""), upload("files", "b", "bbb"), value("ocr:1", "true"))
	if !req.Files[0].OCR {
		t.Error("ocr:1 does not count the input that was left empty")
	}
	mustForm(t, value("ocr", "false"), value("data", "x"))
	for name, parts := range map[string][]string{
		"no such file": {a, value("ocr:1", "true")}, "an empty input": {a, upload("files", "", ""), value("ocr:1", "true")},
		"no word":        {a, value("ocr", "on")},
		"no file at all": {value("data", "x"), value("ocr:0", "false")},
	} {
		_, _, err := readForm(t, strings.NewReader(body(parts...)), Config{})
		refused(t, err, CodeBadField, "ocr", name[:0])
	}
	_, _, err := readJSON(t, strings.NewReader(`{"data":"x","ocr":true}`), Config{})
	refused(t, err, CodeFileRequired, "ocr", "no file")
	_, _, err = readForm(t, strings.NewReader(body(upload("files", "", ""), value("data", "x"), value("ocr", "true"))), Config{})
	refused(t, err, CodeFileRequired, "ocr", "no file")
}
