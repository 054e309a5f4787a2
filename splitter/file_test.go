package splitter

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/verae/archive/blob"
)

// readFile reads a body as one file and checks what must hold of any result.
func readFile(t testing.TB, r io.Reader, cfg FileConfig) (*Request, *depot, error) {
	t.Helper()
	d := &depot{t: t, keep: true}
	if cfg.Profile == (blob.Profile{}) {
		cfg.Profile = blob.Default
	}
	cfg.Uploader, cfg.SubmissionID, cfg.TenantID = d, theSubmission, theTenant
	req, err := ReadFile(t.Context(), r, formType, cfg)
	d.sound(req, err)
	return req, d, err
}

// filePart is a part as clients of Kubo send it.
func filePart(field, fileName, contentType, content string) string {
	return fmt.Sprintf("Content-Disposition: form-data; name=%q; filename=%q\r\nContent-Type: %s\r\n\r\n%s", field, fileName, contentType, content)
}

func TestFileIsTakenUnderAnyFieldName(t *testing.T) {
	for _, field := range []string{"file", "file-0", "path", "data", "sha256", "files[3]", "a/b?mode=0644"} {
		req, _, err := readFile(t, strings.NewReader(body(filePart(field, "x.pdf", "application/pdf", "bytes"))), FileConfig{})
		if err != nil {
			t.Errorf("%s: %v", field, err)
			continue
		}
		f := req.Files[0]
		if !req.Unsealed || req.Subject != digestOf("bytes") || req.HashedFrom != FromFile || f.SHA256 != req.Subject ||
			f.Name != "x.pdf" || f.ContentType != "application/pdf" || f.Size != 5 || f.DAGSize != 5 || f.Profile != blob.Default {
			t.Errorf("%s: %+v", field, req)
		}
	}
}

// TestFileOfKubosOwnClient: what it says of the file on its disk means nothing, as
// it means nothing to Kubo unless it is told to keep it.
func TestFileOfKubosOwnClient(t *testing.T) {
	part := "Abspath: /home/me/a.txt\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a.txt\"; mode=0644; mtime=1700000000; mtime-nsecs=5\r\n" +
		"Content-Type: application/octet-stream\r\n\r\nbytes"
	req, _, err := readFile(t, strings.NewReader(body(part)), FileConfig{})
	if err != nil || req.Files[0].Name != "a.txt" || req.Subject != digestOf("bytes") {
		t.Errorf("%+v, %v", req, err)
	}
}

func TestFileNameIsUnescaped(t *testing.T) {
	for sent, want := range map[string]string{
		"a.pdf": "a.pdf", "exhibit%2099.pdf": "exhibit 99.pdf", "a+b.pdf": "a b.pdf", "100%.pdf": "100%.pdf", "": "",
		"%2Fa.pdf": "a.pdf", "/a.pdf": "a.pdf", "gr%C3%BC%C3%9Fe.txt": "grüße.txt",
	} {
		req, _, err := readFile(t, strings.NewReader(body(filePart("file", sent, "text/plain", "x"))), FileConfig{})
		if err != nil || req.Files[0].Name != want {
			t.Errorf("%q: %v, want %q", sent, err, want)
		}
	}
	for sent, code := range map[string]string{
		"a/b.pdf": CodeBadPart, "a%2Fb.pdf": CodeBadPart, "..": CodeBadPart, ".": CodeBadPart, "a%0Ab": CodeBadField, "%ff": CodeBadField,
		strings.Repeat("n", 256): CodeTooLarge,
	} {
		_, _, err := readFile(t, strings.NewReader(body(filePart("file", sent, "text/plain", "x"))), FileConfig{})
		refused(t, err, code)
	}
}

func TestFileIsOne(t *testing.T) {
	_, _, err := readFile(t, strings.NewReader("--"+boundary+"--\r\n"), FileConfig{})
	refused(t, err, CodeBadPart, "file argument 'path' is required")
	two := body(filePart("file", "a", "text/plain", "a"), filePart("file", "b", "text/plain", "b"))
	_, d, err := readFile(t, strings.NewReader(two), FileConfig{})
	refused(t, err, CodeManyFiles, "one file a request")
	if len(d.uploads) != 1 {
		t.Errorf("%d uploads were opened", len(d.uploads))
	}
	_, err = ReadFile(t.Context(), strings.NewReader("{}"), "application/json", FileConfig{Config: (&depot{t: t}).config(), Profile: blob.Default})
	refused(t, err, CodeUnsupportedMediaType, "send multipart/form-data")
	for _, media := range []string{"application/x-directory", "application/symlink", "multipart/mixed; boundary=x", "Application/X-Directory"} {
		_, d, err := readFile(t, strings.NewReader(body(filePart("file", "dir", media, ""))), FileConfig{})
		refused(t, err, CodeBadPart, "not kept")
		if len(d.uploads) != 0 {
			t.Errorf("%s: an upload was opened", media)
		}
	}
}

// TestFileIsWholeOrRefused cuts a body behind every byte, cleanly and not.
func TestFileIsWholeOrRefused(t *testing.T) {
	whole := body(filePart("file", "cut.txt", "text/plain", "some text\r\n--Xb\r\nmore"))
	least := len(whole) - len("\r\n") // the line end behind the closing delimiter means nothing
	for n := range len(whole) + 1 {
		_, _, err := readFile(t, strings.NewReader(whole[:n]), FileConfig{})
		if n >= least {
			if err != nil {
				t.Errorf("%d bytes of %d: %v", n, len(whole), err)
			}
			continue
		}
		refused(t, err, CodeIncompleteBody)
		_, _, err = readFile(t, io.MultiReader(strings.NewReader(whole[:n]), brokenReader{}), FileConfig{})
		refused(t, err, CodeIncompleteBody)
	}
}

type brokenReader struct{}

func (brokenReader) Read([]byte) (int, error) { return 0, errBroken }

func TestFileHasTheDAGOfItsProfile(t *testing.T) {
	content := bytes.Repeat([]byte("0123456789abcdef"), 40_000)
	for _, p := range []blob.Profile{blob.Default, blob.Legacy, {ChunkSize: 64 << 10, MaxLinks: 16}} {
		want, err := blob.SumReader(bytes.NewReader(content), p)
		if err != nil {
			t.Fatal(err)
		}
		var told []int64
		req, d, err := readFile(t, strings.NewReader(body(filePart("file", "x", "text/plain", string(content)))), FileConfig{
			Profile: p, Progress: func(name string, n int64) {
				if name != "x" {
					t.Errorf("progress of %q", name)
				}
				told = append(told, n)
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		f := req.Files[0]
		if f.CID != want.CID || f.DAGSize != want.DAGSize || f.Profile != p || d.uploads[0].profile != p {
			t.Errorf("%+v: %+v, the upload is of %+v", p, f, d.uploads[0].profile)
		}
		if fmt.Sprint(told) != "[262144 524288 640000]" {
			t.Errorf("progress %v", told)
		}
	}
	if _, err := ReadFile(t.Context(), strings.NewReader(""), formType, FileConfig{Config: Config{SubmissionID: theSubmission}}); err == nil {
		t.Error("a profile without sizes was taken")
	}
}

// TestUnsealedIsAnotherRequest: what is to be sealed never joins what is not.
func TestUnsealedIsAnotherRequest(t *testing.T) {
	part := filePart("files", "a.txt", "text/plain", "text")
	unsealed, _, err := readFile(t, strings.NewReader(body(part)), FileConfig{})
	if err != nil {
		t.Fatal(err)
	}
	sealed, _, err := readFile(t, strings.NewReader(body(part)), FileConfig{Sealed: true})
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Equal(unsealed.Canonical(), sealed.Canonical()) {
		t.Error("both are the same")
	}
	if plain := mustForm(t, part); !bytes.Equal(plain.Canonical(), sealed.Canonical()) {
		t.Error("a sealed file is not the submission that it is elsewhere")
	}
}
