package main

import (
	"bytes"
	"io"
	"testing"

	"github.com/verae/archive/client"
	"github.com/verae/archive/harness/world"
	"github.com/verae/archive/wire"
)

// A killedOn is the body of a file in whose middle something is done.
type killedOn struct {
	io.Reader
	left int // bytes until then
	do   func()
}

func (k *killedOn) Read(p []byte) (int, error) {
	if k.left == 0 && k.do != nil {
		k.do()
		k.do = nil
	}
	if k.do != nil {
		p = p[:min(len(p), k.left)]
	}
	n, err := k.Reader.Read(p)
	k.left -= min(n, k.left)
	return n, err
}

func (k *killedOn) Close() error { return nil }

// An archive that is killed in the middle of an upload and started again: the same
// request is accepted by both, and that archive has the bytes.
func TestUploadGoesOnAfterAnArchiveWasKilled(t *testing.T) {
	w := startWorld(t, world.Config{Archives: []wire.ArchiveID{"archive-a", "archive-b"}, Env: []string{"PUT_COPIES=2", "PUT_MIN_COPIES=2"}})
	data := randomBytes(20<<20+3, 6)
	body := &killedOn{Reader: bytes.NewReader(data), left: 14 << 20, do: func() {
		if err := w.Kill(t.Context(), "archive-b"); err != nil {
			t.Error(err)
		}
		// The request goes on meanwhile, as far as memory allows.
		go func() {
			if err := w.Restart(t.Context(), "archive-b"); err != nil {
				t.Error(err)
			}
		}()
	}}
	file := client.File{Name: "scan", Open: func() (io.ReadCloser, error) { return body, nil }}
	accepted, err := w.Client("acme").Submit(t.Context(), client.Submission{SHA256: sum(data), Files: []client.File{file}, IncludeAttached: true})
	if err != nil {
		t.Fatal(err)
	}
	if len(accepted.Parts) != 1 || accepted.Parts[0].SHA256 != sum(data) {
		t.Fatalf("accepted %+v", accepted)
	}
	if err := w.StopOne(t.Context(), "archive-a"); err != nil { // the other alone has all of it
		t.Fatal(err)
	}
	got, _, err := w.Client("acme").File(t.Context(), accepted.Parts[0].CID)
	if err != nil {
		t.Fatal(err)
	}
	defer got.Close()
	if all, err := io.ReadAll(got); err != nil || !bytes.Equal(all, data) {
		t.Errorf("%d bytes, %v", len(all), err)
	}
}
