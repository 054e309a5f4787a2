package bus

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/verae/archive/blob"
	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/wire"
)

// content returns n bytes that differ everywhere and are the same every time.
func content(n int) []byte {
	data := make([]byte, n)
	r := rand.NewChaCha8([32]byte{1})
	r.Read(data)
	return data
}

// upload sends data in pieces of odd sizes and finishes.
func send(t testing.TB, a *Archives, data []byte) (id string, on []wire.ArchiveID) {
	t.Helper()
	u, err := a.OpenUpload(t.Context(), [32]byte{}, blob.Default)
	if err != nil {
		t.Fatal(err)
	}
	for piece := range slices.Chunk(data, 100_003) {
		if n, err := u.Write(piece); err != nil || n != len(piece) {
			t.Fatal(n, err)
		}
	}
	on, err = u.Finish(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return u.ID(), on
}

func TestUploadReachesItsCopiesByteForByte(t *testing.T) {
	for _, size := range []int{0, 1, wire.FragmentSize - 1, wire.FragmentSize, wire.FragmentSize + 1, 5<<20 + 7} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			w := startWorld(t, 3, patient, nil)
			data := content(size)
			file := describe(data)
			id, on := send(t, w.archives, data)
			if !slices.Equal(on, w.ids[:2]) {
				t.Fatalf("sent to %v, want the first two of the ranking", on)
			}
			for _, s := range w.sites {
				if s.blobs.file(file.CID) != nil {
					t.Error("a file is there before its commit")
				}
			}
			for _, a := range on {
				for range 2 { // a repeated commit is a duplicate, not an error
					if err := w.archives.CommitUpload(t.Context(), a, id, file); err != nil {
						t.Fatal(err)
					}
				}
			}
			for i, s := range w.sites {
				has, err := w.archives.HasFile(t.Context(), w.ids[i], file)
				if err != nil || has != (i < 2) || has != (s.blobs.file(file.CID) != nil) {
					t.Errorf("%s: has %v, %v", w.ids[i], has, err)
				}
				if has && !bytes.Equal(s.blobs.file(file.CID), data) {
					t.Errorf("%s: other bytes", w.ids[i])
				}
				if n := s.blobs.openUploads(); n != 0 {
					t.Errorf("%s: %d uploads left open", w.ids[i], n)
				}
			}
		})
	}
}

// 400 fragments to a slow archive: without credits nats.go drops most of them in
// silence. The fake fails the test on any gap.
func TestFourHundredFragmentsAndNoneIsLost(t *testing.T) {
	const size = 400 * wire.FragmentSize
	var w *world
	var most atomic.Int64
	w = startWorld(t, 2, patient, func(i int, s *site) {
		s.blobs.onWrite = func(string, int64) error {
			if i == 0 && w != nil {
				w.archives.mu.Lock()
				defer w.archives.mu.Unlock()
				win := w.archives.peers["archive-a"].blobs
				win.mu.Lock()
				defer win.mu.Unlock()
				most.Store(max(most.Load(), win.most-win.bytes))
			}
			return nil
		}
	})
	data := content(size)
	var wg sync.WaitGroup
	for range 4 { // together more than the window of an archive
		wg.Go(func() {
			u, err := w.archives.OpenUpload(t.Context(), [32]byte{}, blob.Default)
			if err != nil {
				t.Error(err)
				return
			}
			if _, err := io.Copy(u, bytes.NewReader(data[:size/4])); err != nil {
				t.Error(err)
			}
			if on, err := u.Finish(t.Context()); err != nil || len(on) != 2 {
				t.Error(on, err)
			}
			for _, id := range w.ids {
				if err := w.archives.CommitUpload(t.Context(), id, u.ID(), describe(data[:size/4])); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if most.Load() > MaxBlobBytesInFlight {
		t.Errorf("%d bytes under way to one archive, credit for %d", most.Load(), MaxBlobBytesInFlight)
	}
	if n := w.sites[0].conn.metrics.dropped.total(); n != 0 {
		t.Errorf("%d messages dropped", n)
	}
	win := w.archives.peer("archive-a").blobs
	if win.bytes != win.most || win.msgs != MaxBlobBytesInFlight/wire.FragmentSize || win.waiting.Len() != 0 {
		t.Errorf("credits are not all back: %+v", win)
	}
}

func TestUploadSurvivesAnArchiveThatDiesInMidStream(t *testing.T) {
	full := fault.New(fault.Transient, "DISK_FULL", "full")
	for name, tc := range map[string]struct {
		min   int
		err   error // what the dying archive says
		die   bool  // its process ends instead
		stall time.Duration
	}{
		"refuses":           {1, full, false, 0},
		"refuses, needed":   {2, full, false, 0},
		"forgot the upload": {1, fault.New(fault.NotFound, CodeUnknownUpload, "restarted"), false, 0},
		"dies":              {1, nil, true, 0},
		"dies, needed":      {2, nil, true, 0},
		"hangs":             {1, nil, false, 2 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			hang := make(chan struct{})
			cfg := patient
			cfg.MinCopies, cfg.AwayTimeout, cfg.UploadIdle = tc.min, 10*time.Millisecond, 300*time.Millisecond
			cfg.StallTimeout = cmp.Or(tc.stall, cfg.StallTimeout)
			w := startWorld(t, 2, cfg, func(i int, s *site) {
				s.blobs.onWrite = func(_ string, off int64) error {
					if i != 0 || off < 1<<20 {
						return nil
					}
					if tc.die {
						s.conn.bulk.Close()
					}
					if tc.err == nil {
						<-hang
					}
					return tc.err
				}
			})
			t.Cleanup(func() { close(hang) })
			data := content(8 << 20)
			u, err := w.archives.OpenUpload(t.Context(), [32]byte{}, blob.Default)
			if err != nil {
				t.Fatal(err)
			}
			_, err = u.Write(data)
			var on []wire.ArchiveID
			if err == nil {
				on, err = u.Finish(t.Context())
			}
			if tc.min == 2 {
				wantFault(t, err, fault.Transient, CodeNoArchive)
				if fault.RetryAfter(err) <= 0 {
					t.Error("no word on when to try again")
				}
				u.Abort()
				eventually(t, "the other copy is dropped", func() bool { return w.sites[1].blobs.openUploads() == 0 })
				return
			}
			if err != nil || !slices.Equal(on, w.ids[1:]) {
				t.Fatalf("finished on %v, %v; want %v", on, err, w.ids[1:])
			}
			if err := w.archives.CommitUpload(t.Context(), "archive-b", u.ID(), describe(data)); err != nil {
				t.Error(err)
			}
			if tc.err != nil {
				eventually(t, "the lost copy is dropped", func() bool { return w.sites[0].blobs.openUploads() == 0 })
			}
		})
	}
}

func TestOpenUploadTakesTheNextArchiveForOneThatRefuses(t *testing.T) {
	w := startWorld(t, 4, patient, nil)
	for _, gone := range []int{0, 2} {
		if err := w.sites[gone].service.Drain(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	_, on := send(t, w.archives, content(10))
	if want := []wire.ArchiveID{"archive-b", "archive-d"}; !slices.Equal(on, want) {
		t.Errorf("sent to %v, want %v", on, want)
	}
}

func TestTooFewArchivesIsNoArchive(t *testing.T) {
	cfg := patient
	cfg.MinCopies = 2
	w := startWorld(t, 2, cfg, nil)
	if err := w.sites[1].service.Drain(t.Context()); err != nil {
		t.Fatal(err)
	}
	_, err := w.archives.OpenUpload(t.Context(), [32]byte{}, blob.Default)
	wantFault(t, err, fault.Transient, CodeNoArchive)
	wantText(t, err, "1 take files now and 2 are needed", "archive-b")
	eventually(t, "the copy that was opened is dropped", func() bool { return w.sites[0].blobs.openUploads() == 0 })
	w.archives.ranker = static(nil)
	_, err = w.archives.OpenUpload(t.Context(), [32]byte{}, blob.Default)
	wantFault(t, err, fault.Transient, CodeNoArchive)
}

func TestAbortCleansUpWhereverTheUploadStands(t *testing.T) {
	for name, drive := range map[string]func(t *testing.T, u io.Writer, finish func(), cancel func()){
		"opened":   func(*testing.T, io.Writer, func(), func()) {},
		"written":  func(t *testing.T, u io.Writer, _, _ func()) { u.Write(content(1 << 20)) },
		"partial":  func(t *testing.T, u io.Writer, _, _ func()) { u.Write(content(100)) },
		"finished": func(t *testing.T, u io.Writer, finish, _ func()) { u.Write(content(1 << 20)); finish() },
		"canceled": func(t *testing.T, u io.Writer, _, cancel func()) {
			u.Write(content(1 << 20))
			cancel()
			for {
				if _, err := u.Write(content(1 << 20)); err != nil {
					if !errors.Is(err, context.Canceled) {
						t.Errorf("write after cancel: %v", err)
					}
					return
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := startWorld(t, 2, patient, nil)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			u, err := w.archives.OpenUpload(ctx, [32]byte{}, blob.Default)
			if err != nil {
				t.Fatal(err)
			}
			drive(t, u, func() { u.Finish(ctx) }, cancel)
			u.Abort()
			for _, s := range w.sites {
				eventually(t, "nothing is open", func() bool { return s.blobs.openUploads() == 0 })
				if !slices.Equal(s.blobs.aborted, []string{u.ID()}) {
					t.Errorf("%s: aborted %v", s.node.id, s.blobs.aborted)
				}
			}
			if _, err := u.Write([]byte("x")); err == nil {
				t.Error("a write after the abort was taken")
			}
			err = w.archives.CommitUpload(t.Context(), "archive-a", u.ID(), describe(nil))
			wantFault(t, err, fault.NotFound, CodeUnknownUpload)
			if err := w.archives.AbortUpload(t.Context(), "archive-a", u.ID()); err != nil {
				t.Errorf("a second abort: %v", err)
			}
		})
	}
}

// An upload outlives the context of its opening once it is finished.
func TestFinishedUploadOutlivesItsContext(t *testing.T) {
	w := startWorld(t, 1, patient, nil)
	ctx, cancel := context.WithCancel(t.Context())
	u, err := w.archives.OpenUpload(ctx, [32]byte{}, blob.Default)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := u.Finish(ctx); err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := w.archives.CommitUpload(t.Context(), "archive-a", u.ID(), describe(nil)); err != nil {
		t.Error(err)
	}
}

// The slowest copy sets the pace: the fragments in memory stay below the bound.
func TestMemoryOfAnUploadIsBounded(t *testing.T) {
	block := make(chan struct{})
	w := startWorld(t, 2, ArchivesConfig{StallTimeout: time.Hour}, func(i int, s *site) {
		s.blobs.onWrite = func(string, int64) error {
			if i == 0 {
				<-block
			}
			return nil
		}
	})
	release := sync.OnceFunc(func() { close(block) })
	t.Cleanup(release)
	u, err := w.archives.OpenUpload(t.Context(), [32]byte{}, blob.Default)
	if err != nil {
		t.Fatal(err)
	}
	var written atomic.Int64
	done := make(chan error, 1)
	go func() {
		piece := content(wire.FragmentSize)
		for range 2 * roomMost {
			if _, err := u.Write(piece); err != nil {
				done <- err
				return
			}
			written.Add(int64(len(piece)))
		}
		done <- nil
	}()
	eventually(t, "the writer waits", func() bool { return u.(*upload).room.holds() == roomMost && written.Load() == MaxUploadMemory })
	release()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if _, err := u.Finish(t.Context()); err != nil {
		t.Fatal(err)
	}
	if held, shared := u.(*upload).room.holds(), len(w.archives.shared); held != 0 || shared != 0 {
		t.Errorf("%d fragments still held, %d of them shared", held, shared)
	}
}

func TestClosingTheClientEndsItsUploads(t *testing.T) {
	w := startWorld(t, 2, patient, nil)
	u, err := w.archives.OpenUpload(t.Context(), [32]byte{}, blob.Default)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.archives.Close(); err != nil {
		t.Fatal(err)
	}
	if inner := u.(*upload); inner.running != 0 {
		t.Errorf("%d goroutines of an upload outlive Close", inner.running)
	}
	_, err = u.Write(content(MaxUploadMemory + 1))
	wantFault(t, err, fault.Transient, CodeDisconnected)
	u.Abort()
	_, err = w.archives.OpenUpload(t.Context(), [32]byte{}, blob.Default)
	wantFault(t, err, fault.Transient, CodeDisconnected)
}

// An archive that acknowledges more than was sent does not keep the books.
func TestImpossibleAcknowledgementEndsTheCopy(t *testing.T) {
	w := startWorld(t, 1, patient, nil)
	if _, err := w.conn.bulk.Subscribe(wire.SubjectBlobPrefix+"archive-x", func(m *nats.Msg) {
		ack := wire.BlobAck{Credit: 1 << 40}
		if m.Header.Get(wire.HeaderOp) == wire.OpData {
			ack.Received = 1 << 40
		}
		m.Respond(encode(t, ack))
	}); err != nil {
		t.Fatal(err)
	}
	w.archives.ranker = static{"archive-x"}
	u, err := w.archives.OpenUpload(t.Context(), [32]byte{}, blob.Default)
	if err != nil {
		t.Fatal(err)
	}
	u.Write(content(10))
	_, err = u.Finish(t.Context())
	wantFault(t, err, fault.Transient, CodeNoArchive)
	wantText(t, err, "more than were sent")
	u.Abort()
}

// A commit of other bytes than were sent is refused and leaves nothing.
func TestCommitOfAnotherFileIsRefused(t *testing.T) {
	w := startWorld(t, 1, patient, nil)
	id, _ := send(t, w.archives, []byte("these bytes"))
	err := w.archives.CommitUpload(t.Context(), "archive-a", id, describe([]byte("other bytes")))
	wantFault(t, err, fault.Invalid, "DIGEST_MISMATCH")
	if w.sites[0].blobs.openUploads() != 0 || len(w.sites[0].blobs.files) != 0 {
		t.Error("something was left behind")
	}
}

func TestMalformedBlobFramesAreRefused(t *testing.T) {
	w := startWorld(t, 1, patient, nil)
	for name, tc := range map[string]struct {
		op     string
		header map[string]string
		data   []byte
	}{
		"no operation":        {"", nil, nil},
		"unknown operation":   {"delete", nil, nil},
		"open without JSON":   {wire.OpOpen, nil, []byte("x")},
		"data without offset": {wire.OpData, nil, []byte("x")},
		"offset no number":    {wire.OpData, map[string]string{wire.HeaderOffset: "1e3"}, []byte("x")},
		"fragment too large":  {wire.OpData, map[string]string{wire.HeaderOffset: "0"}, make([]byte, wire.FragmentSize+1)},
		"commit null":         {wire.OpCommit, nil, []byte("null")},
		"read without tenant": {wire.OpRead, nil, encode(t, wire.BlobRead{Length: 1})},
		"read of odd CID":     {wire.OpRead, map[string]string{wire.HeaderTenant: "t", wire.HeaderCID: "Qm"}, encode(t, wire.BlobRead{Length: 1})},
		"read too much":       {wire.OpRead, nil, encode(t, wire.BlobRead{Length: wire.FragmentSize + 1})},
		"read before start":   {wire.OpRead, nil, encode(t, wire.BlobRead{Offset: -1, Length: 1})},
		"has without JSON":    {wire.OpHas, nil, nil},
	} {
		msg := frame("archive-a", tc.op, "upload", tc.data)
		for k, v := range tc.header {
			msg.Header.Set(k, v)
		}
		_, err := w.archives.request(t.Context(), "archive-a", msg, time.Minute)
		if !fault.Is(err, fault.Invalid) {
			t.Errorf("%s: got %v, want Invalid", name, err)
		}
	}
	if n := w.sites[0].blobs.openUploads(); n != 0 {
		t.Errorf("%d uploads open", n)
	}
}
