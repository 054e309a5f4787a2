package splitter

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/iotest"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/wire"
)

// twoFiles is a request of two files of three fragments each, in both forms.
func twoFiles() (form, object string) {
	big := strings.Repeat("0123456789abcdef", 40_000) // 640,000 bytes
	return body(value("data", "x"), upload("files", "a", big), upload("files", "b", big)),
		`{"data":"x","files":[` + jsonFileOf("a", big) + `,` + jsonFileOf("b", big) + `]}`
}

// eachForm runs a test on both forms of the same request.
func eachForm(t *testing.T, test func(t *testing.T, read func(ctx context.Context, cfg Config) (*Request, error))) {
	form, object := twoFiles()
	t.Run("multipart", func(t *testing.T) {
		test(t, func(ctx context.Context, cfg Config) (*Request, error) {
			return ReadMultipart(ctx, strings.NewReader(form), formType, cfg)
		})
	})
	t.Run("json", func(t *testing.T) {
		test(t, func(ctx context.Context, cfg Config) (*Request, error) {
			return ReadJSON(ctx, strings.NewReader(object), cfg)
		})
	})
}

// TestUploadErrorsPassUnchanged: what an archive could not do is not the
// sender's fault, and nothing of the request stays.
func TestUploadErrorsPassUnchanged(t *testing.T) {
	noArchive := fault.New(fault.Transient, "NO_ARCHIVE", "no archive is reachable").After(5)
	plain := errors.New("disk on fire")
	third := func(written int) error {
		if written >= 2*wire.FragmentSize {
			return noArchive
		}
		return nil
	}
	for name, c := range map[string]struct {
		fail   func(d *depot)
		want   error
		opened int
	}{
		"first open":   {func(d *depot) { d.openErr = noArchive }, noArchive, 0},
		"second open":  {func(d *depot) { d.openErr, d.openAt = noArchive, 2 }, noArchive, 1},
		"first write":  {func(d *depot) { d.stop = func(int) error { return plain } }, plain, 1},
		"last write":   {func(d *depot) { d.stop = third }, noArchive, 1},
		"finish":       {func(d *depot) { d.finish = noArchive }, noArchive, 1},
		"unclassified": {func(d *depot) { d.finish = plain }, plain, 1},
		"short write":  {func(d *depot) { d.stop = func(int) error { return errShort } }, io.ErrShortWrite, 1},
		"caller's end": {func(d *depot) { d.stop = func(int) error { return context.DeadlineExceeded } }, context.DeadlineExceeded, 1},
		"no sender's":  {func(d *depot) { d.openErr = errBroken }, errBroken, 0},
	} {
		t.Run(name, func(t *testing.T) {
			eachForm(t, func(t *testing.T, read func(context.Context, Config) (*Request, error)) {
				d := &depot{t: t}
				c.fail(d)
				req, err := read(t.Context(), d.config())
				d.sound(req, err)
				if !errors.Is(err, c.want) || fault.KindOf(err) != fault.KindOf(c.want) || fault.CodeOf(err) != fault.CodeOf(c.want) || fault.RetryAfter(err) != fault.RetryAfter(c.want) {
					t.Errorf("%v %q: %v, want %v", fault.KindOf(err), fault.CodeOf(err), err, c.want)
				}
				if len(d.uploads) != c.opened {
					t.Errorf("%d uploads were opened, want %d", len(d.uploads), c.opened)
				}
			})
		})
	}
}

// errShort makes fakeUpload write less than it was given without an error.
var errShort = errors.New("short")

// TestEndedContextAbortsEverything, at whatever point it ends.
func TestEndedContextAbortsEverything(t *testing.T) {
	eachForm(t, func(t *testing.T, read func(context.Context, Config) (*Request, error)) {
		for n := range 8 {
			ctx, cancel := context.WithCancel(t.Context())
			writes := 0
			d := &depot{t: t, stop: func(int) error {
				if writes++; writes > n {
					cancel()
				}
				return nil
			}}
			if n == 0 {
				cancel()
			}
			req, err := read(ctx, d.config())
			d.sound(req, err)
			if ended := ctx.Err() != nil; ended != (err != nil) || ended && (!errors.Is(err, context.Canceled) || !fault.Is(err, fault.Transient)) {
				t.Errorf("ended in write %d: %v, context %v", n, err, ctx.Err())
			}
			cancel()
		}
	})
}

// TestPanicAbortsEverything: a handler that panics leaves no upload behind.
func TestPanicAbortsEverything(t *testing.T) {
	eachForm(t, func(t *testing.T, read func(context.Context, Config) (*Request, error)) {
		d := &depot{t: t, stop: func(written int) error {
			if written > 0 {
				panic("archive client gone mad")
			}
			return nil
		}}
		func() {
			defer func() {
				if recover() == nil {
					t.Error("the panic was swallowed")
				}
			}()
			_, err := read(t.Context(), d.config())
			t.Errorf("returned: %v", err)
		}()
		if len(d.uploads) != 1 {
			t.Errorf("%d uploads", len(d.uploads))
		}
		d.gone()
	})
}

// TestLateRefusalAbortsFinishedUploads: the last field may refuse what was
// uploaded before.
func TestLateRefusalAbortsFinishedUploads(t *testing.T) {
	_, d, err := readForm(t, strings.NewReader(body(upload("files", "a", "aaa"), upload("files", "b", "bbb"), value("includeAttached", "maybe"))), Config{})
	refused(t, err, CodeBadField, "part 3")
	if len(d.uploads) != 2 || !d.uploads[0].finished || !d.uploads[1].finished {
		t.Errorf("%d uploads", len(d.uploads))
	}
	_, d, err = readForm(t, strings.NewReader(body(upload("files", "a", "aaa"), upload("files", "b", "bbb"))), Config{})
	refused(t, err, CodeSubjectRequired)
	if len(d.uploads) != 2 {
		t.Errorf("%d uploads", len(d.uploads))
	}
}

// TestRequestAbort gives up every upload, once.
func TestRequestAbort(t *testing.T) {
	eachForm(t, func(t *testing.T, read func(context.Context, Config) (*Request, error)) {
		d := &depot{t: t}
		req, err := read(t.Context(), d.config())
		d.sound(req, err)
		if err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(req.Abort)
		}
		wg.Wait()
		if len(d.uploads) != 2 {
			t.Errorf("%d uploads", len(d.uploads))
		}
		d.gone()
	})
}

// TestConfigMistakesAreOurs: they never blame the sender.
func TestConfigMistakesAreOurs(t *testing.T) {
	eachForm(t, func(t *testing.T, read func(context.Context, Config) (*Request, error)) {
		for name, cfg := range map[string]Config{"no uploader": {SubmissionID: theSubmission}, "no submission": {Uploader: &depot{t: t}},
			"bad limits": {Uploader: &depot{t: t}, SubmissionID: theSubmission, Limits: Limits{Files: -1}}} {
			if req, err := read(t.Context(), cfg); req != nil || err == nil || !fault.Is(err, fault.Internal) {
				t.Errorf("%s: %v, %v", name, req, err)
			}
		}
	})
	req, err := ReadJSON(t.Context(), strings.NewReader(`{"data":"x"}`), Config{SubmissionID: theSubmission})
	if err != nil || req.Subject != digestOf("x") {
		t.Errorf("a request without files needs an uploader: %v", err)
	}
}

// TestNothingIsOpenedBeforeJSONIsChecked: every check that needs no archive
// comes first.
func TestNothingIsOpenedBeforeJSONIsChecked(t *testing.T) {
	file := jsonFileOf("a", "aaa")
	for _, object := range []string{
		`{"files":[` + file + `],"callbackUrl":"x"}`, `{"files":[` + file + `,` + file + `]}`, `{"files":[` + file + `],"sealMetadata":true}`,
		`{"files":[` + file + `],"expectFileSha256":"` + digestOf("b").String() + `"}`, `{"files":[` + file + `,{}]}`,
	} {
		_, d, err := readJSON(t, strings.NewReader(object), Config{})
		if !fault.Is(err, fault.Invalid) || len(d.uploads) != 0 {
			t.Errorf("%s: %v, %d uploads", object, err, len(d.uploads))
		}
	}
}

// TestReadErrorInsideAFile: the fragment that did not arrive is not sent.
func TestReadErrorInsideAFile(t *testing.T) {
	form, _ := twoFiles()
	for _, n := range []int{500, wire.FragmentSize + 500, 640_500, 1_000_000} {
		_, d, err := readForm(t, io.MultiReader(strings.NewReader(form[:n]), iotest.ErrReader(errBroken)), Config{})
		refused(t, err, CodeIncompleteBody)
		for _, u := range d.uploads {
			if u.n%wire.FragmentSize != 0 && u.n != 640_000 {
				t.Errorf("cut at %d: %d bytes were sent", n, u.n)
			}
		}
	}
}
