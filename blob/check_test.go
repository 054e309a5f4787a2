package blob

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/verae/archive/internal/fault"
)

// TestCheckWhileInUse: commits under way are not taken for strays, and whoever
// reads the findings may use the store.
func TestCheckWhileInUse(t *testing.T) {
	s := openStore(t, testConfig(t))
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
					store(t, s, fmt.Sprintf("w%d", w), content(t, fmt.Sprint(w, i), 10), small)
				}
			}
		})
	}
	for range 3 {
		for f, err := range s.Check(t.Context()) {
			t.Errorf("%+v, %v", f, err)
		}
	}
	close(stop)
	wg.Wait()
	wantClean(t, s)
}

// TestCheckWaitsForCommits stops a commit between its file and its rows.
func TestCheckWaitsForCommits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openStore(t, testConfig(t))
		data := []byte("on its way")
		sums := sumsOf(t, data, small)
		send(t, s, "u", data, small)
		unlock, err := s.commits.lock(t.Context(), sums.SHA256)
		if err != nil {
			t.Fatal(err)
		}
		u := s.lookup("u")
		u.dag.finish()
		r := rootInfo{cid: u.dag.root.cid, file: sums.SHA256, size: sums.Size, profile: small}
		if err := s.place(u, r); err != nil {
			t.Fatal(err)
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			for f, err := range s.Check(t.Context()) {
				t.Errorf("%+v, %v", f, err)
			}
		}()
		synctest.Wait()
		if err := s.addRows(u, r); err != nil {
			t.Fatal(err)
		}
		unlock()
		<-done
		if err := s.Abort("u"); err != nil {
			t.Error(err)
		}
		wantClean(t, s)
	})
}

func TestCheckNamesStrangers(t *testing.T) {
	s := openStore(t, testConfig(t))
	sums, _ := store(t, s, "u", []byte("a file"), small)
	stranger := s.path(dirFiles, "00", "notes.txt")
	f, err := s.cfg.FS.Create(stranger, vfs.WriteCategoryUnspecified)
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
	n := 0
	for f, err := range s.Check(t.Context()) {
		if err != nil || f.Path != stranger || f.Damage {
			t.Errorf("%+v, %v", f, err)
		}
		n++
		if err := s.Close(); err != nil { // the loop body holds nothing
			t.Error(err)
		}
		break
	}
	if n != 1 {
		t.Errorf("%d findings", n)
	}
	s = reopen(t, s)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for f, err := range s.Check(ctx) {
		if !errors.Is(err, context.Canceled) || !fault.Is(err, fault.Transient) {
			t.Errorf("%+v, %v", f, err)
		}
	}
	if _, err := readAll(t, s, sums.CID, 10); err != nil {
		t.Error(err)
	}
}
