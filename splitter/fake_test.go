package splitter

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"strings"
	"sync"
	"testing"

	"github.com/verae/archive/blob"
	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/wire"
)

// depot is an Uploader that holds its user to the protocol of Upload.
type depot struct {
	t       testing.TB
	keep    bool  // the bytes, not only their digest
	openErr error // of the openFail-th OpenUpload, from 1
	openAt  int
	stop    func(written int) error // called before every write with the bytes so far
	finish  error

	mu      sync.Mutex
	uploads []*fakeUpload
}

type fakeUpload struct {
	d               *depot
	id              string
	key             [32]byte
	profile         blob.Profile
	sum             hash.Hash
	content         bytes.Buffer
	n               int64
	writes, biggest int
	finished        bool
	aborts          int
}

func (d *depot) OpenUpload(_ context.Context, key [32]byte, p blob.Profile) (Upload, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.openErr != nil && len(d.uploads)+1 >= d.openAt {
		return nil, d.openErr
	}
	u := &fakeUpload{d: d, id: fmt.Sprintf("upload-%d", len(d.uploads)), key: key, profile: p, sum: sha256.New()}
	d.uploads = append(d.uploads, u)
	return u, nil
}

func (u *fakeUpload) ID() string { return u.id }

func (u *fakeUpload) Write(p []byte) (int, error) {
	if u.finished || u.aborts > 0 {
		u.d.t.Errorf("%s: write after Finish or Abort", u.id)
	}
	if len(p) == 0 || len(p) > wire.FragmentSize {
		u.d.t.Errorf("%s: write of %d bytes; fragments have 1 to %d", u.id, len(p), wire.FragmentSize)
	}
	if u.d.stop != nil {
		switch err := u.d.stop(int(u.n)); err {
		case nil:
		case errShort:
			return len(p) - 1, nil
		default:
			return 0, err
		}
	}
	u.n += int64(len(p))
	u.writes++
	u.biggest = max(u.biggest, len(p))
	u.sum.Write(p)
	if u.d.keep {
		u.content.Write(p)
	}
	return len(p), nil
}

func (u *fakeUpload) Finish(context.Context) ([]wire.ArchiveID, error) {
	if u.finished || u.aborts > 0 {
		u.d.t.Errorf("%s: Finish after Finish or Abort", u.id)
	}
	u.finished = true
	if u.d.finish != nil {
		return nil, u.d.finish
	}
	return []wire.ArchiveID{"archive-a", "archive-b"}, nil
}

func (u *fakeUpload) Abort() {
	if u.aborts++; u.aborts > 1 {
		u.d.t.Errorf("%s: aborted %d times", u.id, u.aborts)
	}
}

// gone checks that every upload that was opened has been aborted.
func (d *depot) gone() {
	d.t.Helper()
	for _, u := range d.uploads {
		if u.aborts != 1 {
			d.t.Errorf("%s was aborted %d times after a refusal, want once", u.id, u.aborts)
		}
	}
}

// open checks that every file of req rests in an upload of its own that is
// finished and not aborted, with the file's bytes.
func (d *depot) open(req *Request) {
	d.t.Helper()
	if len(d.uploads) != len(req.Files) {
		d.t.Errorf("%d uploads for %d files", len(d.uploads), len(req.Files))
	}
	byID := make(map[string]*fakeUpload)
	for _, u := range d.uploads {
		byID[u.id] = u
	}
	for _, f := range req.Files {
		u := byID[f.UploadID]
		if u == nil {
			d.t.Errorf("file %q has the unknown upload %q", f.Name, f.UploadID)
			continue
		}
		delete(byID, f.UploadID)
		if !u.finished || u.aborts != 0 {
			d.t.Errorf("%s of an accepted request: finished %v, aborts %d", u.id, u.finished, u.aborts)
		}
		if got := wire.Digest(u.sum.Sum(nil)); got != f.SHA256 || u.n != f.Size {
			d.t.Errorf("%s got %d bytes %s, the file has %d bytes %s", u.id, u.n, got, f.Size, f.SHA256)
		}
		if u.key != req.Placement {
			d.t.Errorf("%s was placed by %x, the request by %x", u.id, u.key, req.Placement)
		}
	}
}

const (
	boundary      = "XbX"
	formType      = "multipart/form-data; boundary=" + boundary
	theTenant     = wire.TenantID("tenant-a")
	theSubmission = wire.SubmissionID("01890a5d-ac96-774b-bcce-b302099a8057")
)

// body is a multipart body of parts, each with headers, an empty line, content.
func body(parts ...string) string {
	var b strings.Builder
	for _, p := range parts {
		b.WriteString("--" + boundary + "\r\n" + p + "\r\n")
	}
	return b.String() + "--" + boundary + "--\r\n"
}

func value(name, content string) string {
	return fmt.Sprintf("Content-Disposition: form-data; name=%q\r\n\r\n%s", name, content)
}

func upload(name, fileName, content string) string {
	return fmt.Sprintf("Content-Disposition: form-data; name=%q; filename=%q\r\nContent-Type: text/plain\r\n\r\n%s", name, fileName, content)
}

func (d *depot) config() Config {
	return Config{Uploader: d, SubmissionID: theSubmission, TenantID: theTenant}
}

// readForm reads a multipart body and checks what must hold of any result.
func readForm(t testing.TB, r io.Reader, cfg Config) (*Request, *depot, error) {
	t.Helper()
	d := &depot{t: t, keep: true}
	cfg.Uploader, cfg.SubmissionID, cfg.TenantID = d, theSubmission, theTenant
	req, err := ReadMultipart(t.Context(), r, formType, cfg)
	d.sound(req, err)
	return req, d, err
}

// readJSON is readForm for the JSON form.
func readJSON(t testing.TB, r io.Reader, cfg Config) (*Request, *depot, error) {
	t.Helper()
	d := &depot{t: t, keep: true}
	cfg.Uploader, cfg.SubmissionID, cfg.TenantID = d, theSubmission, theTenant
	req, err := ReadJSON(t.Context(), r, cfg)
	d.sound(req, err)
	return req, d, err
}

// sound checks the promise that there is a request or nothing.
func (d *depot) sound(req *Request, err error) {
	d.t.Helper()
	switch {
	case (req == nil) == (err == nil):
		d.t.Errorf("request %v and error %v", req, err)
	case err != nil:
		d.gone()
	default:
		d.open(req)
	}
}

// mustForm reads a body that must be accepted.
func mustForm(t testing.TB, parts ...string) *Request {
	t.Helper()
	req, _, err := readForm(t, strings.NewReader(body(parts...)), Config{})
	if err != nil {
		t.Fatalf("refused: %v", err)
	}
	return req
}

func mustJSON(t testing.TB, text string) *Request {
	t.Helper()
	req, _, err := readJSON(t, strings.NewReader(text), Config{})
	if err != nil {
		t.Fatalf("refused: %v\n%s", err, text)
	}
	return req
}

// refused checks that err is the sender's fault, with a code and with words of
// the message.
func refused(t testing.TB, err error, code string, words ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("accepted, want %s", code)
	}
	if !fault.Is(err, fault.Invalid) || fault.CodeOf(err) != code {
		t.Fatalf("got %v %s (%v), want invalid %s", fault.KindOf(err), fault.CodeOf(err), err, code)
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("the message %q does not say %q", err, w)
		}
	}
}

var errBroken = errors.New("connection reset by peer")

func digestOf(s string) wire.Digest { return sha256.Sum256([]byte(s)) }
