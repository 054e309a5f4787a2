package jobs

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/verae/archive/internal/fault"
)

// openTasks returns how many submissions the engine keeps in memory.
func (w *world) openTasks() int {
	w.engine.mu.Lock()
	defer w.engine.mu.Unlock()
	return len(w.engine.open)
}

// remembered waits until at most n submissions are kept in memory.
func (w *world) remembered(n int) {
	w.t.Helper()
	deadline := time.Now().Add(time.Minute)
	for w.openTasks() > n {
		if time.Now().After(deadline) {
			w.t.Fatalf("%d submissions are kept in memory, want %d", w.openTasks(), n)
		}
		time.Sleep(time.Millisecond) // polls; nothing is timed by it
	}
}

// shortOf submits n times while one of two archives is down.
func (w *world) shortOf(n int) {
	w.t.Helper()
	w.archives.set("archive-b", func(n *node) { n.up = false })
	var clients sync.WaitGroup
	for c := range 16 {
		clients.Go(func() {
			for i := c; i < n; i += 16 {
				a, err := w.submit(w.t.Context(), Caller{TenantID: alice}, hashBody(digestOf("document"), metadata(fmt.Sprint(i))))
				if err == nil {
					_, err = w.engine.Wait(w.t.Context(), alice, a.SubmissionID)
				}
				if err != nil {
					w.t.Error(err)
				}
			}
		})
	}
	clients.Wait()
}

// However long archives are short, ended submissions that lack copies cost no
// memory, also after a restart; all get them when an archive returns.
func TestLongShortageCostsNoMemory(t *testing.T) {
	many := 10*workPage + 1
	if testing.Short() {
		many = 2*workPage + 1
	}
	for _, restart := range []bool{false, true} {
		t.Run(fmt.Sprintf("restart %v", restart), func(t *testing.T) {
			w := newWorld(t, 2, nil)
			w.shortOf(many)
			if restart {
				if err := w.engine.Close(); err != nil {
					t.Fatal(err)
				}
				w.open(nil)
			}
			w.remembered(0)
			if n, err := w.engine.Pending(); n != many || err != nil {
				t.Fatalf("%d of %d submissions lack copies: %v", n, many, err)
			}
			w.archives.set("archive-b", func(n *node) { n.up = true })
			w.engine.Nudge()
			w.settled()
			w.remembered(0)
			for id := range w.archives.distinct() {
				if n := w.archives.copies(id); n != 2 {
					t.Fatalf("record %s has %d copies", id, n)
				}
			}
		})
	}
}

// What one attempt reached is not done again by the next: the copy of a file is
// kept although its record could not follow.
func TestHealKeepsWhatItReached(t *testing.T) {
	w := newWorld(t, 2, nil)
	w.archives.set("archive-b", func(n *node) { n.up = false })
	a, _ := w.must(alice, hashBody(digestOf("document"), fileField("file")))
	w.remembered(0)
	w.archives.set("archive-b", func(n *node) { n.up, n.refusePut = true, errDown })
	w.engine.Nudge()
	id := ref{alice, a.SubmissionID}
	deadline := time.Now().Add(time.Minute)
	for {
		s, err := w.engine.load(id)
		if err != nil {
			t.Fatal(err)
		}
		if len(s.Files[0].Committed) == 2 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the second archive is not known to have the file: %+v", s.Files[0])
		}
		time.Sleep(time.Millisecond) // polls; nothing is timed by it
	}
	w.archives.set("archive-b", func(n *node) { n.refusePut = nil })
	w.engine.Nudge()
	w.settled()
	if n := w.archives.copies(a.Parts[0].RecordID); n != 2 {
		t.Errorf("%d copies", n)
	}
}

// An attempt that failed is made again without anybody asking for it.
func TestHealIsTriedAgain(t *testing.T) {
	w := newWorld(t, 2, nil)
	w.archives.set("archive-b", func(n *node) { n.refuse = fault.New(fault.Transient, "DISK_FULL", "full") })
	w.must(alice, hashBody(digestOf("document"), metadata("1")))
	w.remembered(0)
	w.archives.set("archive-b", func(n *node) { n.refuse = nil })
	w.settled()
}

// A submission that can not be read keeps no other from its copies.
func TestHealPassesOverADamagedRow(t *testing.T) {
	w := newWorld(t, 2, nil)
	w.archives.set("archive-b", func(n *node) { n.up = false })
	first, _ := w.must(alice, hashBody(digestOf("one"), metadata("1")))
	w.must(alice, hashBody(digestOf("two"), metadata("2")))
	damage := func(t *tx) error {
		t.set(rowKey(rowSubmission, ref{alice, first.SubmissionID}.key()), []byte("damaged"))
		return nil
	}
	if err := w.engine.store.update(t.Context(), damage); err != nil {
		t.Fatal(err)
	}
	w.archives.set("archive-b", func(n *node) { n.up = true })
	w.engine.Nudge()
	w.left(1)
	if err := w.engine.Close(); err != nil {
		t.Fatal(err)
	}
	c := w.config
	c.FS, c.Ledger = w.fs, w.ledger
	if _, err := Open(c); !fault.Is(err, fault.Corrupt) {
		t.Errorf("a store with a damaged submission is opened: %v", err)
	}
}
