package blob

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/verae/archive/internal/fault"
)

// TestFragmentsAreContiguous: gaps and overlaps are refused with what was
// expected and do no harm; repetitions are acknowledged.
func TestFragmentsAreContiguous(t *testing.T) {
	s := openStore(t, testConfig(t))
	data := content(t, "fragments", 1000)
	if err := s.Open("u", small); err != nil {
		t.Fatal(err)
	}
	steps := []struct {
		offset, n int64
		received  int64
		refusal   string // "" if taken
	}{
		{1, 10, 0, "gap of 1"},
		{0, 400, 400, ""},
		{0, 400, 400, ""},     // repeated
		{100, 200, 400, ""},   // repeated in part
		{400, 0, 400, ""},     // empty
		{399, 2, 400, "over"}, // overlaps by one byte
		{0, 401, 400, "overlaps 400"},
		{401, 1, 400, "gap of 1"},
		{900, 100, 400, "expects offset 400"},
		{-1, 1, 400, "begins at -1"},
		{1<<63 - 1, 1, 400, "begins at"},
		{400, 600, 1000, ""},
		{1000, 0, 1000, ""},
	}
	for _, st := range steps {
		fragment := make([]byte, st.n)
		if st.offset >= 0 && st.offset < int64(len(data)) {
			copy(fragment, data[st.offset:])
		}
		got, err := s.Write("u", st.offset, fragment)
		if got != st.received {
			t.Errorf("%+v: %d received", st, got)
		}
		if st.refusal == "" {
			if err != nil {
				t.Errorf("%+v: %v", st, err)
			}
			continue
		}
		wantFault(t, err, fault.Invalid, CodeBadOffset)
		if !strings.Contains(err.Error(), st.refusal) {
			t.Errorf("%v does not say %q", err, st.refusal)
		}
	}
	sums := sumsOf(t, data, small)
	if dup, err := s.Commit(t.Context(), "u", sums.Size, sums.SHA256, sums.CID); dup || err != nil {
		t.Fatal(dup, err)
	}
	if got, err := readAll(t, s, sums.CID, 100); err != nil || !bytes.Equal(got, data) {
		t.Error("the file differs", err)
	}
}

// TestCommitBelievesNobody: the store commits only what it computed itself.
func TestCommitBelievesNobody(t *testing.T) {
	data := content(t, "believe", MinChunkSize+5)
	sums := sumsOf(t, data, small)
	other := sumsOf(t, append(bytes.Clone(data), 0), small)
	tests := []struct {
		name   string
		size   int64
		sha256 [32]byte
		cid    string
		code   string
	}{
		{"cut", sums.Size + 1, other.SHA256, other.CID, CodeSizeMismatch},
		{"too long", sums.Size - 1, sums.SHA256, sums.CID, CodeSizeMismatch},
		{"wrong digest", sums.Size, other.SHA256, sums.CID, CodeDigestMismatch},
		{"wrong root", sums.Size, sums.SHA256, other.CID, CodeCIDMismatch},
		{"root of another profile", sums.Size, sums.SHA256, sumsOf(t, data, Default).CID, CodeCIDMismatch},
	}
	s := openStore(t, testConfig(t))
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			send(t, s, "u", data, small)
			_, err := s.Commit(t.Context(), "u", tt.size, tt.sha256, tt.cid)
			wantFault(t, err, fault.Invalid, tt.code)
			wantClean(t, s)
			_, err = s.Write("u", 0, data)
			wantFault(t, err, fault.NotFound, CodeUnknownUpload)
			for _, cid := range []string{sums.CID, tt.cid} {
				_, _, err = s.Read(t.Context(), cid, 0, 1)
				wantFault(t, err, fault.NotFound, CodeUnknownCID)
			}
		})
	}
	t.Run("not a CID", func(t *testing.T) {
		send(t, s, "u", data, small)
		_, err := s.Commit(t.Context(), "u", sums.Size, sums.SHA256, "bafkreaa")
		wantFault(t, err, fault.Invalid, CodeBadCID)
		if _, err := s.Commit(t.Context(), "u", sums.Size, sums.SHA256, sums.CID); err != nil {
			t.Errorf("the upload was lost over a bad cid: %v", err)
		}
	})
}

// TestCommitIsIdempotent: whoever repeats a commit learns that it succeeded, and
// only for exactly that file.
func TestCommitIsIdempotent(t *testing.T) {
	s := openStore(t, testConfig(t))
	data := content(t, "again", 100)
	sums, _ := store(t, s, "u", data, small)
	again := func(size int64, sha256 [32]byte, cid string) (bool, error) {
		return s.Commit(t.Context(), "u", size, sha256, cid)
	}
	check := func() {
		t.Helper()
		if dup, err := again(sums.Size, sums.SHA256, sums.CID); !dup || err != nil {
			t.Errorf("repeated commit: %v, %v", dup, err)
		}
		for _, err := range []error{
			second(again(sums.Size+1, sums.SHA256, sums.CID)),
			second(again(sums.Size, someDigest, sums.CID)),
			second(again(sums.Size, sums.SHA256, rawCID.String())),
		} {
			wantFault(t, err, fault.NotFound, CodeUnknownUpload)
		}
	}
	check()
	s = reopen(t, s)
	check()
	if _, dup := store(t, s, "v", data, small); !dup {
		t.Error("the same bytes in a new upload are no duplicate")
	}
	wantClean(t, s)
	for _, tt := range []struct {
		sha256 [32]byte
		cid    string
		want   bool
	}{{sums.SHA256, sums.CID, true}, {someDigest, sums.CID, false}, {sums.SHA256, rawCID.String(), false}} {
		if got, err := s.Has(t.Context(), tt.sha256, tt.cid); got != tt.want || err != nil {
			t.Errorf("Has(%x, %s) = %v, %v", tt.sha256, tt.cid, got, err)
		}
	}
}

func second[T any](_ T, err error) error { return err }

func TestUploadIDs(t *testing.T) {
	s := openStore(t, testConfig(t))
	for _, id := range []string{"a", "A-Z_09", strings.Repeat("x", maxUploadID)} {
		if err := s.Open(id, small); err != nil {
			t.Errorf("%q: %v", id, err)
		}
	}
	for _, id := range []string{"", ".", "..", "a/b", "../x", "a.b", "ä", "a b", "a\n", "a\x00", strings.Repeat("x", maxUploadID+1)} {
		wantFault(t, s.Open(id, small), fault.Invalid, CodeBadUploadID)
		_, err := s.Write(id, 0, []byte("x"))
		wantFault(t, err, fault.NotFound, CodeUnknownUpload)
		if err := s.Abort(id); err != nil {
			t.Errorf("Abort(%q): %v", id, err)
		}
	}
	wantFault(t, s.Open("new", Profile{}), fault.Invalid, CodeBadProfile)
}

// TestOpenMayBeRepeated: a lost answer is no reason to fail, another upload
// under the same id is.
func TestOpenMayBeRepeated(t *testing.T) {
	s := openStore(t, testConfig(t))
	for range 3 {
		if err := s.Open("u", small); err != nil {
			t.Fatal(err)
		}
	}
	wantFault(t, s.Open("u", Default), fault.Conflict, CodeUploadExists)
	if _, err := s.Write("u", 0, []byte("x")); err != nil {
		t.Fatal(err)
	}
	wantFault(t, s.Open("u", small), fault.Conflict, CodeUploadExists)
	if err := s.Abort("u"); err != nil {
		t.Fatal(err)
	}
	if err := s.Open("u", small); err != nil {
		t.Errorf("after Abort: %v", err)
	}
}

func TestLimitsOfUploads(t *testing.T) {
	cfg := testConfig(t)
	cfg.MaxUploads, cfg.MaxFileSize = 2, 100
	s := openStore(t, cfg)
	for _, id := range []string{"a", "b"} {
		if err := s.Open(id, small); err != nil {
			t.Fatal(err)
		}
	}
	err := s.Open("c", small)
	wantFault(t, err, fault.Transient, CodeTooMany)
	if fault.RetryAfter(err) <= 0 {
		t.Error("no time for another try")
	}
	if _, err := s.Write("a", 0, make([]byte, 100)); err != nil {
		t.Errorf("a file of exactly the limit: %v", err)
	}
	_, err = s.Write("a", 100, []byte{1})
	wantFault(t, err, fault.Invalid, CodeTooLarge)
	if err := s.Open("c", small); err != nil {
		t.Errorf("the refused upload kept its place: %v", err)
	}
	if err := errors.Join(s.Abort("b"), s.Abort("c"), s.Abort("c")); err != nil {
		t.Error(err)
	}
	wantClean(t, s)
}

// diskFS is a file system with as much free space as the test says.
type diskFS struct {
	vfs.FS
	mu    sync.Mutex
	avail uint64
}

func (d *diskFS) GetDiskUsage(string) (vfs.DiskUsage, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return vfs.DiskUsage{AvailBytes: d.avail}, nil
}

func (d *diskFS) set(avail uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.avail = avail
}

// TestDiskReserve: below the reserve uploads wait and reads go on.
func TestDiskReserve(t *testing.T) {
	cfg := testConfig(t)
	disk := &diskFS{FS: cfg.FS, avail: 100 << 20}
	cfg.FS, cfg.DiskReserve = disk, 100<<20
	s := openStore(t, cfg)
	sums, _ := store(t, s, "first", []byte("there was room"), small)

	if err := s.Open("under-way", small); err != nil {
		t.Fatal(err)
	}
	piece := make([]byte, 1<<20)
	var sent int64
	write := func() error {
		n, err := s.Write("under-way", sent, piece)
		sent = n
		return err
	}
	if err := write(); err != nil {
		t.Fatal(err)
	}
	disk.set(99 << 20)
	s.disk.Look()
	err := s.Open("second", small)
	wantFault(t, err, fault.Transient, CodeDiskFull)
	if fault.RetryAfter(err) <= 0 {
		t.Error("no time for another try")
	}
	for err = nil; err == nil && sent < 3*spaceEvery; {
		err = write()
	}
	wantFault(t, err, fault.Transient, CodeDiskFull)
	if sent > spaceEvery+int64(len(piece)) {
		t.Errorf("%d bytes were taken below the reserve", sent)
	}
	wantClean(t, s)
	if _, err := readAll(t, s, sums.CID, 100); err != nil {
		t.Errorf("reading on a full disk: %v", err)
	}
	disk.set(106 << 20) // a twentieth above, or it would go up and down
	s.disk.Look()
	if err := s.Open("second", small); err != nil {
		t.Errorf("with room again: %v", err)
	}
}

func TestIdleUploadsAreSwept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openStore(t, testConfig(t))
		send(t, s, "idle", []byte("a"), small)
		send(t, s, "alive", []byte("a"), small)
		time.Sleep(time.Minute)
		if _, err := s.Write("alive", 0, []byte("a")); err != nil { // a repetition is a sign of life
			t.Fatal(err)
		}
		if n, err := s.Sweep(time.Minute); n != 0 || err != nil {
			t.Errorf("swept %d after exactly the limit, %v", n, err)
		}
		time.Sleep(time.Nanosecond)
		if n, err := s.Sweep(time.Minute); n != 1 || err != nil {
			t.Errorf("swept %d, %v", n, err)
		}
		_, err := s.Write("idle", 1, []byte("b"))
		wantFault(t, err, fault.NotFound, CodeUnknownUpload)
		if n, err := s.Write("alive", 1, []byte("b")); n != 2 || err != nil {
			t.Error(n, err)
		}
	})
}

// TestManyUploadsLeaveNoTrace runs 64 uploads at once, half of them aborted.
func TestManyUploadsLeaveNoTrace(t *testing.T) {
	cfg := testConfig(t)
	cfg.MaxUploads = 64
	s := openStore(t, cfg)
	var wg sync.WaitGroup
	for i := range 64 {
		wg.Go(func() {
			id, data := fmt.Sprintf("u%d", i), content(t, fmt.Sprint(i), 1000+i*MinChunkSize/8)
			if i%2 == 0 {
				store(t, s, id, data, small)
				return
			}
			send(t, s, id, data, small)
			if err := s.Abort(id); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	wantClean(t, s)
	if got := s.Stats(); got.Commits != 32 || got.OpenUploads != 0 {
		t.Errorf("stats %+v", got)
	}
}

// TestSameBytesAtOnce commits one file from many uploads, each of them twice, at
// the same time: exactly one commit is the first.
func TestSameBytesAtOnce(t *testing.T) {
	s := openStore(t, testConfig(t))
	data := content(t, "same", 3*MinChunkSize)
	sums := sumsOf(t, data, small)
	for i := range 8 {
		send(t, s, fmt.Sprint(i), data, small)
	}
	var (
		wg    sync.WaitGroup
		first atomic.Int64
	)
	for i := range 16 {
		wg.Go(func() {
			dup, err := s.Commit(t.Context(), fmt.Sprint(i/2), sums.Size, sums.SHA256, sums.CID)
			if err != nil {
				t.Error(err)
			}
			if !dup {
				first.Add(1)
			}
		})
	}
	wg.Wait()
	if n := first.Load(); n != 1 {
		t.Errorf("%d commits were the first", n)
	}
	wantClean(t, s)
}

// TestCommitWaitsForItsContext: a commit that cannot begin leaves the upload.
func TestCommitWaitsForItsContext(t *testing.T) {
	s := openStore(t, testConfig(t))
	data := []byte("patience")
	send(t, s, "u", data, small)
	sums := sumsOf(t, data, small)
	unlock, err := s.commits.lock(t.Context(), sums.SHA256)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = s.Commit(ctx, "u", sums.Size, sums.SHA256, sums.CID)
	if !errors.Is(err, context.Canceled) || !fault.Is(err, fault.Transient) {
		t.Errorf("Commit = %v", err)
	}
	if _, err := s.Has(ctx, sums.SHA256, sums.CID); !errors.Is(err, context.Canceled) {
		t.Errorf("Has answered while a commit was under way: %v", err)
	}
	unlock()
	if _, err := s.Commit(t.Context(), "u", sums.Size, sums.SHA256, sums.CID); err != nil {
		t.Error(err)
	}
}

// TestNothingIsReadableBeforeItIsDurable: the index shows rows before they are
// synced, so whoever asks for a file waits for a commit of it that is under way.
func TestNothingIsReadableBeforeItIsDurable(t *testing.T) {
	s := openStore(t, testConfig(t))
	sums, _ := store(t, s, "u", []byte("visible"), small)
	unlock, err := s.commits.lock(t.Context(), sums.SHA256)
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for name, err := range map[string]error{
		"Read":      second(both(s.Read(ctx, sums.CID, 0, 1))),
		"NewReader": second(s.NewReader(ctx, sums.CID)),
		"Blocks":    second(s.Blocks(ctx, sums.SHA256, sums.CID)),
		"Has":       second(s.Has(ctx, sums.SHA256, sums.CID)),
		"Commit":    second(s.Commit(ctx, "gone", sums.Size, sums.SHA256, sums.CID)),
	} {
		if !errors.Is(err, context.Canceled) || !fault.Is(err, fault.Transient) {
			t.Errorf("%s did not wait: %v", name, err)
		}
	}
}

func both[A, B any](a A, _ B, err error) (A, error) { return a, err }
