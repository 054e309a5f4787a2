package blob

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/verae/archive/internal/fault"
)

// write adds data at an offset, and checks that all of it was taken.
func write(t testing.TB, s *Store, id string, off int, data []byte) {
	t.Helper()
	got, err := s.Write(id, int64(off), bytes.Clone(data))
	if err != nil || got != int64(off+len(data)) {
		t.Fatalf("Write of %d at %d = %d, %v", len(data), off, got, err)
	}
}

func commit(t testing.TB, s *Store, id string, data []byte, p Profile) (dup bool, err error) {
	t.Helper()
	sums := sumsOf(t, data, p)
	return s.CommitFile(t.Context(), id, FileRef{SHA256: sums.SHA256, CID: sums.CID, Size: sums.Size, Profile: p})
}

// TestUploadGoesOnAfterRestarts: two of them, each at an offset that is not where
// a leaf ends.
func TestUploadGoesOnAfterRestarts(t *testing.T) {
	s := openStore(t, testConfig(t))
	data := content(t, "restart", 5*MinChunkSize+77)
	stops := []int{0, MinChunkSize + 1000, 3*MinChunkSize + 5, len(data)}
	if err := s.Open("u", small); err != nil {
		t.Fatal(err)
	}
	for i := range len(stops) - 1 {
		from, to := stops[i], stops[i+1]
		write(t, s, "u", from, data[from:to])
		if durable, err := s.Sync("u"); durable != int64(to) || err != nil || s.Durable("u") != int64(to) {
			t.Fatalf("Sync = %d, %v", durable, err)
		}
		if to == len(data) {
			break
		}
		write(t, s, "u", to, data[to:to+500]) // not durable, and not waited for
		s = reopen(t, s)
		_, err := s.Write("u", int64(to), data[to:])
		wantFault(t, err, fault.NotFound, CodeUnknownUpload)
		if got, err := s.Resume("u", small, int64(to)); got != int64(to) || err != nil {
			t.Fatalf("Resume = %d, %v", got, err)
		}
		if got := s.Durable("u"); got != int64(to) {
			t.Errorf("%d bytes are durable after a resume at %d", got, to)
		}
	}
	if dup, err := commit(t, s, "u", data, small); dup || err != nil {
		t.Fatal(dup, err)
	}
	if got, err := readAll(t, s, sumsOf(t, data, small).CID, 1<<20); err != nil || !bytes.Equal(got, data) {
		t.Error("the file differs", err)
	}
	wantClean(t, s)
}

func TestResumeTakesOnlyWhatIsHere(t *testing.T) {
	data := content(t, "resume", MinChunkSize)
	for name, tc := range map[string]struct {
		restart bool
		profile Profile
		offset  int64
		want    int64 // -1: refused
		kind    fault.Kind
		code    string
		gone    bool
	}{
		"open, at its begin":      {false, small, 0, MinChunkSize, 0, "", false},
		"open, at its end":        {false, small, MinChunkSize, MinChunkSize, 0, "", false},
		"open, beyond":            {false, small, MinChunkSize + 1, -1, fault.NotFound, CodeUnknownUpload, false},
		"open, another profile":   {false, Default, 0, -1, fault.Conflict, CodeUploadExists, false},
		"open, before its begin":  {false, small, -1, -1, fault.Invalid, CodeBadOffset, false},
		"left, at its begin":      {true, small, 0, 0, 0, "", false},
		"left, in its middle":     {true, small, 1000, 1000, 0, "", false},
		"left, at its end":        {true, small, MinChunkSize, MinChunkSize, 0, "", false},
		"left, beyond":            {true, small, MinChunkSize + 1, -1, fault.NotFound, CodeUnknownUpload, true},
		"left, no profile":        {true, Profile{}, 0, -1, fault.Invalid, CodeBadProfile, false},
		"left, before its begin":  {true, small, -1, -1, fault.Invalid, CodeBadOffset, false},
		"left, another profile":   {true, Profile{MaxChunkSize, 16}, 1000, 1000, 0, "", false}, // the commit tells
		"left, opened, not so":    {true, small, 1000, 1000, 0, "", false},
		"unknown, with something": {false, small, 1, -1, fault.NotFound, CodeUnknownUpload, true},
	} {
		t.Run(name, func(t *testing.T) {
			s := openStore(t, testConfig(t))
			id := "u"
			send(t, s, "u", data, small)
			if tc.restart {
				s = reopen(t, s)
			}
			if tc.code == CodeUnknownUpload && !tc.restart && tc.gone {
				id = "other"
			}
			got, err := s.Resume(id, tc.profile, tc.offset)
			if tc.want >= 0 {
				if err != nil || got != tc.want {
					t.Fatalf("Resume = %d, %v", got, err)
				}
				if again, err := s.Resume(id, tc.profile, tc.offset); again != tc.want || err != nil {
					t.Errorf("repeated: %d, %v", again, err)
				}
				return
			}
			wantFault(t, err, tc.kind, tc.code)
			if known := s.lookup(id) != nil; known == tc.gone {
				t.Errorf("the upload is known: %v", known)
			}
		})
	}
	s := openStore(t, testConfig(t))
	if got, err := s.Resume("new", small, 0); got != 0 || err != nil { // its Open was lost
		t.Errorf("Resume of a new one = %d, %v", got, err)
	}
	write(t, s, "new", 0, data)
}

// TestCommitAdoptsWhatARestartLeft: between the last byte and the commit.
func TestCommitAdoptsWhatARestartLeft(t *testing.T) {
	data := content(t, "adopt", 2*MinChunkSize+1)
	other := content(t, "other", 2*MinChunkSize+1)
	for name, tc := range map[string]struct {
		named   []byte
		upload  Profile
		profile Profile // of the commit
		code    string
	}{
		"the file":           {data, small, small, ""},
		"the default":        {data, Default, Profile{}, ""},
		"another file":       {other, small, small, CodeUnknownUpload},
		"a shorter one":      {data[:100], small, small, CodeUnknownUpload},
		"a longer one":       {append(bytes.Clone(data), 1), small, small, CodeUnknownUpload},
		"no profile of that": {data, small, Profile{1, 1}, CodeBadProfile},
	} {
		t.Run(name, func(t *testing.T) {
			s := openStore(t, testConfig(t))
			send(t, s, "u", data, tc.upload)
			s = reopen(t, s)
			if n := s.Stats().OpenUploads; n != 1 {
				t.Errorf("%d uploads wait", n)
			}
			sums := sumsOf(t, tc.named, tc.upload)
			file := FileRef{SHA256: sums.SHA256, CID: sums.CID, Size: sums.Size, Profile: tc.profile}
			dup, err := s.CommitFile(t.Context(), "u", file)
			if fault.CodeOf(err) != tc.code || dup {
				t.Fatalf("Commit = %v, %v, want %q", dup, err, tc.code)
			}
			if tc.code == CodeBadProfile {
				return
			}
			wantClean(t, s)
			if tc.code != "" {
				return
			}
			s = reopen(t, s)
			if dup, err := s.CommitFile(t.Context(), "u", file); !dup || err != nil {
				t.Errorf("repeated after a restart: %v, %v", dup, err)
			}
		})
	}
}

// TestEndedCommitLeavesAnUploadToAdopt: who was too slow may ask again.
func TestEndedCommitLeavesAnUploadToAdopt(t *testing.T) {
	s := openStore(t, testConfig(t))
	data := content(t, "slow", MinChunkSize)
	send(t, s, "u", data, small)
	s = reopen(t, s)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	sums := sumsOf(t, data, small)
	file := FileRef{SHA256: sums.SHA256, CID: sums.CID, Size: sums.Size, Profile: small}
	if _, err := s.CommitFile(ctx, "u", file); !errors.Is(err, context.Canceled) || !fault.Is(err, fault.Transient) {
		t.Errorf("Commit = %v", err)
	}
	if dup, err := s.CommitFile(t.Context(), "u", file); dup || err != nil {
		t.Error(dup, err)
	}
}

// TestNothingBeyondTheOffsetCounts: bytes that no sender will write over are no
// part of the file.
func TestNothingBeyondTheOffsetCounts(t *testing.T) {
	s := openStore(t, testConfig(t))
	data := content(t, "tail", 2000)
	send(t, s, "u", data, small)
	s = reopen(t, s)
	if _, err := s.Resume("u", small, 500); err != nil {
		t.Fatal(err)
	}
	write(t, s, "u", 500, data[500:1000])
	_, err := commit(t, s, "u", data[:1000], small)
	wantFault(t, err, fault.Invalid, CodeSizeMismatch)
	wantClean(t, s)
}

func TestUploadsLeftByARestartEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := testConfig(t)
		cfg.MaxUploads = 3
		s := openStore(t, cfg)
		for _, id := range []string{"aborted", "begun-anew", "idle"} {
			send(t, s, id, []byte("some bytes"), small)
		}
		for _, name := range []string{"not.an.id", "zz-one-too-many"} {
			f, err := cfg.FS.Create(s.path(dirTemp, name), vfs.WriteCategoryUnspecified)
			if err = errors.Join(err, f.Close()); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Hour)
		s = reopen(t, s)
		wantFault(t, s.Open("new", small), fault.Transient, CodeTooMany)
		if err := s.Abort("aborted"); err != nil {
			t.Error(err)
		}
		if err := s.Open("begun-anew", small); err != nil {
			t.Error(err)
		}
		write(t, s, "begun-anew", 0, []byte("other"))
		if dup, err := commit(t, s, "begun-anew", []byte("other"), small); dup || err != nil {
			t.Error(dup, err)
		}
		time.Sleep(time.Minute)
		if n, err := s.Sweep(time.Minute); n != 0 || err != nil { // an hour does not count in which nobody could be heard
			t.Errorf("swept %d, %v", n, err)
		}
		time.Sleep(time.Nanosecond)
		if n, err := s.Sweep(time.Minute); n != 1 || err != nil {
			t.Errorf("swept %d, %v", n, err)
		}
		wantClean(t, s)
	})
}

// TestDurableSurvivesAPowerCut, and what is beyond it may be anything.
func TestDurableSurvivesAPowerCut(t *testing.T) {
	data := content(t, "power", 4*MinChunkSize)
	for _, percent := range []int{0, 50, 100} {
		for _, synced := range []int{0, 1, MinChunkSize + 9, 3 * MinChunkSize} {
			disk := vfs.NewCrashableMem()
			s := openStore(t, StoreConfig{Dir: "blobs", FS: disk, Create: true})
			if err := s.Open("u", small); err != nil {
				t.Fatal(err)
			}
			write(t, s, "u", 0, data[:synced])
			if synced > 0 {
				if _, err := s.Sync("u"); err != nil {
					t.Fatal(err)
				}
			}
			write(t, s, "u", synced, data[synced:])
			durable := s.Durable("u")
			if durable < int64(synced) {
				t.Fatalf("%d durable, %d were synced", durable, synced)
			}
			after := openStore(t, StoreConfig{Dir: "blobs", FS: disk.CrashClone(vfs.CrashCloneCfg{
				UnsyncedDataPercent: percent, RNG: rand.New(rand.NewPCG(uint64(synced), uint64(percent))),
			})})
			got, err := after.Resume("u", small, durable)
			if err != nil || got != durable {
				t.Fatalf("%d%%, %d synced: Resume at %d = %d, %v", percent, synced, durable, got, err)
			}
			if durable < int64(len(data)) {
				write(t, after, "u", int(durable), data[durable:])
			}
			if _, err := commit(t, after, "u", data, small); err != nil {
				t.Errorf("%d%%, %d synced: %v", percent, synced, err)
			}
			wantClean(t, after)
		}
	}
}

// TestResumedUploadSurvivesEveryFault fails each change of the disk of an upload
// that is synced, resumed after a restart, synced and committed. Whatever was
// acknowledged as durable before is there after a power cut, or the file is.
func TestResumedUploadSurvivesEveryFault(t *testing.T) {
	data := content(t, "faults", 3*MinChunkSize+3)
	half := MinChunkSize + 1
	for _, done := range []bool{false, true} {
		t.Run(fmt.Sprintf("done=%v", done), func(t *testing.T) {
			at := 1
			for ; resumedWithFault(t, data, half, at, done); at++ {
			}
			if at < 9 {
				t.Errorf("only %d changes were seen; is the wrapper bypassed?", at-1)
			}
		})
	}
}

func resumedWithFault(t *testing.T, data []byte, half, at int, done bool) (hit bool) {
	t.Helper()
	disk := vfs.NewCrashableMem()
	fs := &faultFS{FS: disk, only: func(path string) bool { return path != "blobs" && !strings.Contains(path, dirIndex) }}
	s := openStore(t, StoreConfig{Dir: "blobs", FS: fs, Create: true})
	if err := s.Open("u", small); err != nil {
		t.Fatal(err)
	}
	var durable int64
	fs.arm(at, done, false)
	run := func() error {
		if _, err := s.Write("u", 0, bytes.Clone(data[:half])); err != nil {
			return err
		}
		n, err := s.Sync("u")
		if durable = max(durable, n); err != nil {
			return err
		}
		s = reopen(t, s)
		if _, err = s.Resume("u", small, durable); err != nil {
			return err
		}
		if _, err = s.Write("u", durable, bytes.Clone(data[durable:])); err != nil {
			return err
		}
		n, err = s.Sync("u")
		if durable = max(durable, n); err != nil {
			return err
		}
		_, err = commit(t, s, "u", data, small)
		return err
	}
	err := run() // faults of the index have tests of their own
	hit = fs.hit()
	fs.arm(0, false, false)
	if !hit && err != nil {
		t.Fatalf("no fault, but %v", err)
	}
	after := openStore(t, StoreConfig{Dir: "blobs", FS: disk.CrashClone(vfs.CrashCloneCfg{
		UnsyncedDataPercent: 50, RNG: rand.New(rand.NewPCG(uint64(at), 1)),
	})})
	sums := sumsOf(t, data, small)
	here, hasErr := after.Has(t.Context(), sums.SHA256, sums.CID)
	if hasErr != nil || err == nil && !here {
		t.Errorf("change %d: the file is here: %v, %v", at, here, hasErr)
	}
	if err != nil && s.lookup("u") != nil {
		t.Errorf("change %d: the upload goes on after %v", at, err)
	}
	store(t, s, "again", data, small)                       // adopts a file whose rows were not written
	if n, err := s.Sweep(time.Hour); n != 0 || err != nil { // removes what a failed removal left
		t.Errorf("swept %d, %v", n, err)
	}
	wantClean(t, s)
	return hit
}

// TestCloseTellsWhoResumes that the store is closed and the upload is not gone: he
// asks again.
func TestCloseTellsWhoResumes(t *testing.T) {
	data := content(t, "closing", MinChunkSize)
	for name, ask := range map[string]func(t *testing.T, s *Store) error{
		"resume": func(_ *testing.T, s *Store) error { _, err := s.Resume("u", small, 1000); return err },
		"commit": func(t *testing.T, s *Store) error { _, err := commit(t, s, "u", data, small); return err },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := openStore(t, testConfig(t))
				send(t, s, "u", data, small)
				s = reopen(t, s)
				for range readBacks {
					s.readBacks <- struct{}{}
				}
				answer := make(chan error, 1)
				go func() { answer <- ask(t, s) }()
				synctest.Wait()
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
				wantFault(t, <-answer, fault.Transient, CodeClosed)
			})
		})
	}
}

// TestNoSyncFollowsOneThatFailed: it could succeed, and lie.
func TestNoSyncFollowsOneThatFailed(t *testing.T) {
	s := openStore(t, testConfig(t))
	send(t, s, "u", content(t, "failed", 1000), small)
	u, failed := s.lookup("u"), errors.New("no such disk")
	u.syncing = &syncing{done: make(chan struct{}), err: failed}
	close(u.syncing.done)
	if _, err := s.Sync("u"); !errors.Is(err, failed) {
		t.Errorf("Sync = %v", err)
	}
	if n := s.Durable("u"); n != 0 {
		t.Errorf("%d bytes are durable", n)
	}
	wantClean(t, s)
}

// TestReadingBackEndsWithTheUpload, and with the store, which keeps the file then.
func TestReadingBackEndsWithTheUpload(t *testing.T) {
	for name, end := range map[string]func(s *Store) error{
		"abort": func(s *Store) error { return s.Abort("u") },
		"close": func(s *Store) error { return s.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := openStore(t, testConfig(t))
				data := content(t, "reading", MinChunkSize)
				send(t, s, "u", data, small)
				s = reopen(t, s)
				for range readBacks { // two large ones are being read back
					s.readBacks <- struct{}{}
				}
				start := time.Now()
				_, err := s.Resume("u", small, 1000)
				wantFault(t, err, fault.Transient, CodeResuming)
				if took := time.Since(start); took != resumeAnswer || fault.RetryAfter(err) <= 0 {
					t.Errorf("answered after %v: %v", took, err)
				}
				_, err = s.Write("u", 1000, data[1000:])
				wantFault(t, err, fault.Transient, CodeResuming)
				_, err = commit(t, s, "u", data, small)
				wantFault(t, err, fault.Transient, CodeResuming)
				_, err = s.Resume("u", small, 999)
				wantFault(t, err, fault.Conflict, CodeUploadExists)
				time.Sleep(time.Hour)
				if n, err := s.Sweep(time.Minute); n != 0 || err != nil {
					t.Errorf("swept %d while it was read back, %v", n, err)
				}
				if err := end(s); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				_, err = s.cfg.FS.Stat(s.path(dirTemp, "u"))
				if kept := err == nil; kept != (name == "close") {
					t.Errorf("the file is kept: %v", kept)
				}
				if name == "close" {
					return
				}
				for range readBacks {
					<-s.readBacks
				}
				wantClean(t, s)
			})
		})
	}
}

// TestCommitIsRepeatedAfterACrashInIt: whatever a crash left of a commit, the same
// commit ends with the file, or says that its bytes are lost.
func TestCommitIsRepeatedAfterACrashInIt(t *testing.T) {
	data := content(t, "crash in commit", 2*MinChunkSize)
	for _, synced := range []bool{false, true} {
		at := 1
		for hit := true; hit; at++ {
			disk := vfs.NewCrashableMem()
			fs := &faultFS{FS: disk, only: func(path string) bool { return path != "blobs" && !strings.Contains(path, dirIndex) }}
			s := openStore(t, StoreConfig{Dir: "blobs", FS: fs, Create: true})
			send(t, s, "u", data, small)
			if synced {
				if _, err := s.Sync("u"); err != nil {
					t.Fatal(err)
				}
			}
			fs.arm(at, false, true)
			if _, err := commit(t, s, "u", data, small); err == nil {
				hit = false
			}
			after := disk.CrashClone(vfs.CrashCloneCfg{})
			fs.arm(0, false, false)
			again := openStore(t, StoreConfig{Dir: "blobs", FS: after})
			_, err := commit(t, again, "u", data, small)
			if fault.Is(err, fault.NotFound) && !synced && hit {
				store(t, again, "v", data, small)
			} else if err != nil {
				t.Errorf("synced=%v, change %d: %v", synced, at, err)
			}
			wantClean(t, again)
		}
		if at < 5 { // sync, rename, sync of the directory, and none
			t.Errorf("only %d changes were seen; is the wrapper bypassed?", at-2)
		}
	}
}
