package splitter

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestJSONFields reads a request that has everything.
func TestJSONFields(t *testing.T) {
	req := mustJSON(t, `{
		"data": "x", "publicMetadata": {"a":1}, "privateMetadata": {"b":2},
		"files": [{"name":"a.txt","contentType":"text/plain","dataBase64":"YWFh","ocr":true}, {"dataBase64":""}],
		"attachments": [{"kind":"note","contentType":"text/html","name":"n","dataBase64":"bm90ZQ=="},{"kind":"flag","dataBase64":""}],
		"includeAttached": true, "sealMetadata": true, "shareWith": ["b"], "public": true, "ocr": false,
		"callbackUrl": "https://example.com/", "expectFileSha256": "`+digestOf("aaa").String()+`",
		"tenantId": {"ignored": true}, "idempotencyKey": 7, "wait": "no", "unknown": [1,2,3]
	}`)
	if len(req.Files) != 2 || req.Files[0].Name != "a.txt" || req.Files[0].Size != 3 || !req.Files[0].OCR ||
		req.Files[1].SHA256 != digestOf("") || req.Files[1].ContentType != DefaultContentType || req.Files[1].OCR {
		t.Errorf("files: %+v", req.Files)
	}
	want := []Attachment{{Kind: "note", ContentType: "text/html", Name: "n", Body: []byte("note")}, {Kind: "flag", ContentType: DefaultContentType, Body: []byte{}}}
	if diff := cmp.Diff(want, req.Attachments); diff != "" {
		t.Error(diff)
	}
	if req.TenantID != theTenant || req.IdempotencyKey != "" || req.Wait != 0 {
		t.Errorf("the body speaks for the caller: %q %q %v", req.TenantID, req.IdempotencyKey, req.Wait)
	}
	if f := req.Files[0]; f.SHA1 != [20]byte{0x7e, 0x24, 0x0d, 0xe7, 0x4f, 0xb1, 0xed, 0x08, 0xfa, 0x08, 0xd3, 0x80, 0x63, 0xf6, 0xa6, 0xa9, 0x14, 0x62, 0xa8, 0x15} || len(f.Archives) != 2 {
		t.Errorf("sha1 %x, archives %v", f.SHA1, f.Archives)
	}
}

// TestJSONRefusals is the table of bad JSON bodies; see also the tests of the
// single fields.
func TestJSONRefusals(t *testing.T) {
	file := jsonFileOf("a", "aaa")
	for _, c := range []struct {
		name, body, code, says string
	}{
		{"empty", "", CodeBadJSON, "the body is empty"},
		{"blanks", " \r\n", CodeBadJSON, "the body is empty"},
		{"null", "null", CodeBadJSON, ""},
		{"a list", `[{"data":"x"}]`, CodeBadJSON, ""},
		{"cut", `{"data":"x"`, CodeBadJSON, ""},
		{"two values", `{"data":"x"}{"data":"y"}`, CodeBadJSON, ""},
		{"byte order mark", "\ufeff{\"data\":\"x\"}", CodeBadJSON, ""},
		{"bad UTF-8", "{\"data\":\"\xff\"}", CodeBadJSON, ""},
		{"lone surrogate", `{"data":"\ud800"}`, CodeBadJSON, ""},
		{"duplicate key", `{"data":"x","data":"y"}`, CodeBadJSON, "data"},
		{"duplicate unknown key", `{"data":"x","u":1,"u":2}`, CodeBadJSON, "u"},
		{"another case", `{"Data":"x"}`, CodeBadJSON, "data"},
		{"another case of two", `{"sha256":"x","SHA256":"y"}`, CodeBadJSON, "sha256"},
		{"another case in a file", `{"files":[{"Name":"x","dataBase64":""}]}`, CodeBadJSON, "files[0]"},
		{"flag as text", `{"data":"x","includeAttached":"true"}`, CodeBadJSON, "includeAttached"},
		{"sha256 as a number", `{"sha256":1}`, CodeBadJSON, "sha256"},
		{"data as an object", `{"data":{}}`, CodeBadJSON, "data"},
		{"data twice", `{"data":"x","dataBase64":"eA=="}`, CodeDuplicateField, "one of the two"},
		{"dataBase64 without padding", `{"dataBase64":"eA"}`, CodeBadField, "dataBase64"},
		{"dataBase64 with spare bits", `{"dataBase64":"eB=="}`, CodeBadField, "dataBase64"},
		{"dataBase64 with a line break", `{"dataBase64":"eHh4\neHh4"}`, CodeBadField, "line breaks"},
		{"dataBase64 of the URL alphabet", `{"dataBase64":"_-8="}`, CodeBadField, "standard base64"},
		{"files as an object", `{"files":` + file + `}`, CodeBadJSON, "files"},
		{"files as a link", `{"files":"https://example.com/x"}`, CodeFileIsURL, "files"},
		{"a file as a link", `{"files":["https://example.com/x"]}`, CodeFileIsURL, "files[0]"},
		{"a file as text", `{"files":["hello"]}`, CodeBadJSON, "files[0]"},
		{"a file as null", `{"files":[null]}`, CodeBadField, "files[0]: dataBase64 is missing"},
		{"a link behind another mistake", `{"files":["https://example.com/x"],"ocr":1}`, CodeFileIsURL, "files[0]"},
		{"a link in a body that is cut", `{"files":["https://example.com/x"`, CodeBadJSON, ""},
		{"a file as a list", `{"files":[[]]}`, CodeBadJSON, "files[0]"},
		{"a link as the bytes of a file", `{"files":[{"dataBase64":"` + b64("https://example.com/x") + `"}]}`, CodeFileIsURL, "files[0]"},
		{"a file without bytes", `{"files":[` + file + `,{"name":"b","url":"https://example.com/"}]}`, CodeBadField, "files[1]: dataBase64 is missing"},
		{"a file with bad base64", `{"files":[{"dataBase64":"*"}]}`, CodeBadField, "files[0].dataBase64"},
		{"a file with a bad name", `{"files":[{"name":"a\nb","dataBase64":""}]}`, CodeBadField, "files[0]"},
		{"a file with a bad content type", `{"files":[{"contentType":"text","dataBase64":""}]}`, CodeBadField, "files[0]"},
		{"attachments as an object", `{"attachments":{}}`, CodeBadJSON, "attachments"},
		{"an attachment without kind", `{"data":"x","attachments":[{"dataBase64":""}]}`, CodeBadField, "attachments[0]"},
		{"the digest of nothing known", `{"sha256":"` + strings.Repeat("0", 64) + `"}`, CodeBadDigest, "sha256"},
		{"an attachment that would pass for the seal", `{"data":"x","attachments":[{"kind":"seal","dataBase64":""}]}`, CodeReservedKind, "attachments[0]"},
		{"an attachment of a reserved kind", `{"data":"x","attachments":[{"kind":"share","dataBase64":""}]}`, CodeReservedKind, "attachments[0]"},
		{"an attachment without bytes", `{"data":"x","attachments":[{"kind":"note"}]}`, CodeBadField, "attachments[0]: dataBase64 is missing"},
		{"an attachment with bad base64", `{"data":"x","attachments":[{"kind":"note","dataBase64":"*"}]}`, CodeBadField, "attachments[0].dataBase64"},
		{"an attachment as null", `{"data":"x","attachments":[null]}`, CodeBadField, "attachments[0]"},
		{"metadata as text", `{"data":"x","publicMetadata":"{}"}`, CodeBadField, "publicMetadata"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, d, err := readJSON(t, strings.NewReader(c.body), Config{})
			refused(t, err, c.code, c.says)
			if len(d.uploads) != 0 {
				t.Error("an upload was opened for a request in memory that is refused")
			}
		})
	}
}

// TestBusCallersNameTheirTenant: with WantTenant the body speaks for the caller.
func TestBusCallersNameTheirTenant(t *testing.T) {
	read := func(text string) (*Request, error) {
		req, _, err := readJSON(t, strings.NewReader(text), Config{WantTenant: true})
		return req, err
	}
	req, err := read(`{"data":"x","tenantId":"tenant-b","idempotencyKey":"k 1","wait":25}`)
	if err != nil || req.TenantID != "tenant-b" || req.IdempotencyKey != "k 1" || req.Wait != 25*time.Second {
		t.Fatalf("%+v, %v", req, err)
	}
	if req, err := read(`{"data":"x","tenantId":"tenant-b","idempotencyKey":null,"wait":0}`); err != nil || req.IdempotencyKey != "" || req.Wait != 0 {
		t.Fatalf("%+v, %v", req, err)
	}
	if _, err := read(`{"data":"x","tenantId":"b","idempotencyKey":"` + strings.Repeat("k", MaxIdempotencyKey) + `","wait":60}`); err != nil {
		t.Fatal(err)
	}
	for text, says := range map[string]string{
		`{"data":"x"}`: "tenantId: it is missing", `{"data":"x","tenantId":null}`: "tenantId: it is missing", `{"data":"x","tenantId":""}`: "tenantId",
		`{"data":"x","tenantId":"*"}`: "tenantId", `{"data":"x","tenantId":7}`: "tenantId",
		`{"data":"x","tenantId":"b","idempotencyKey":""}`: "idempotencyKey", `{"data":"x","tenantId":"b","idempotencyKey":1}`: "idempotencyKey",
		`{"data":"x","tenantId":"b","idempotencyKey":"é"}`: "idempotencyKey", `{"data":"x","tenantId":"b","idempotencyKey":"` + strings.Repeat("k", MaxIdempotencyKey+1) + `"}`: "idempotencyKey",
		`{"data":"x","tenantId":"b","wait":-1}`: "wait", `{"data":"x","tenantId":"b","wait":61}`: "wait", `{"data":"x","tenantId":"b","wait":1.5}`: "wait", `{"data":"x","tenantId":"b","wait":true}`: "wait",
	} {
		_, err := read(text)
		refused(t, err, CodeBadField, says)
	}
}
