package jobs

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/verae/archive/wire"
)

// With PUT_MIN_COPIES at 2 an archive that lost its upload between the last byte
// and the commit does not hold the submission up: the file is copied to another.
func TestFileIsCopiedWhereTooFewKeptIt(t *testing.T) {
	w := newWorld(t, 3, func(c *Config) { c.PutMinCopies = 2 })
	lossy := w.archives.Rank(digestOf("document"))[0]
	w.archives.set(lossy, func(n *node) { n.forgetful = true })
	a, job := w.must(alice, hashBody(digestOf("document"), metadata("1"), fileField("file"), attached))
	if job.Status != wire.StatusCompleted || len(job.Files) != 1 {
		t.Errorf("the job is %s", encode(t, job))
	}
	for _, p := range a.Parts {
		if n := w.archives.copies(p.RecordID); n != 2 {
			t.Errorf("part %s has %d copies", p.Kind, n)
		}
	}
}

// Healing passes over an archive that takes no files, and says no more why it
// waited once it is done.
func TestHealPassesOverAnArchiveThatFails(t *testing.T) {
	w := newWorld(t, 3, nil)
	rank := w.archives.Rank(digestOf("document"))
	w.archives.set(rank[0], func(n *node) { n.up = false })
	w.archives.set(rank[1], func(n *node) { n.up = false })
	body := hashBody(digestOf("document"), fileField("file"), attached)
	a, _ := w.must(alice, body)
	w.archives.set(rank[0], func(n *node) { n.up, n.refuse = true, errDown })
	w.archives.set(rank[1], func(n *node) { n.up = true })
	w.engine.Nudge()
	w.settled()
	if n := w.archives.copies(a.Parts[0].RecordID); n != 2 {
		t.Errorf("%d copies", n)
	}
	again, err := w.submit(t.Context(), Caller{TenantID: alice}, body)
	if err != nil || again.SubmissionID != a.SubmissionID || again.Reason != "" || again.NextAttemptAt != "" {
		t.Errorf("after healing the answer is %s, %v", encode(t, again), err)
	}
}

// slow is two archives that are up; the later a part, the longer its put takes.
type slow struct{ Archives }

func (slow) Rank([32]byte) []wire.ArchiveID { return []wire.ArchiveID{"a", "b"} }
func (slow) Enrolled() []wire.ArchiveID     { return []wire.ArchiveID{"a", "b"} }
func (slow) Version() uint64                { return 1 }

func (slow) Put(ctx context.Context, _ wire.ArchiveID, p wire.Put) (wire.PutAck, error) {
	select {
	case <-time.After(time.Duration(p.Record.Part) * time.Second):
		return wire.PutAck{RecordID: p.Record.ID()}, nil
	case <-ctx.Done():
		return wire.PutAck{}, ctx.Err()
	}
}

// CommitUpload fails at b as an archive does that is frozen.
func (slow) CommitUpload(ctx context.Context, id wire.ArchiveID, _ string, _ wire.BlobCommit) error {
	if id == "a" {
		return nil
	}
	<-ctx.Done()
	return ctx.Err()
}

// An archive that is frozen with the bytes of a file does not hold up the
// submission, once another has kept them; it is asked for them again when the
// second copy is due.
func TestFrozenArchiveDoesNotHoldUpACommit(t *testing.T) {
	for enough, want := range map[int]time.Duration{1: commitGrace, 2: commitTimeout} {
		synctest.Test(t, func(t *testing.T) {
			e := &Engine{cfg: Config{Archives: slow{}}.withDefaults()}
			f := file{Uploaded: []wire.ArchiveID{"a", "b"}}
			begin := time.Now()
			e.commitUpload(t.Context(), &f, enough)
			if took := time.Since(begin); took != want || len(f.Committed) != 1 || len(f.undecided()) != 1 {
				t.Errorf("enough is %d: waited %s, want %s: %+v", enough, took, want, f)
			}
		})
	}
}

// A file is lost once its archives say so, or are away for longer than they keep
// an upload. One that is there and slow is asked again.
func TestUploadExpiresOnlyWhereItsArchiveIsAway(t *testing.T) {
	c := &clock{now: time.Now()}
	e := &Engine{cfg: Config{Archives: slow{}, Now: c.Now}.withDefaults(), started: c.Now()}
	s := &submission{AttachedAt: wire.At(c.Now())}
	for _, tc := range []struct {
		name    string
		file    file
		after   time.Duration
		expired bool
	}{
		{"away, soon", file{Uploaded: []wire.ArchiveID{"x"}}, 0, false},
		{"away, late", file{Uploaded: []wire.ArchiveID{"x"}}, e.cfg.UploadIdle + time.Second, true},
		{"one is here", file{Uploaded: []wire.ArchiveID{"a", "x"}}, 0, false},
		{"it lost the upload", file{Uploaded: []wire.ArchiveID{"a", "x"}, Lost: []wire.ArchiveID{"a"}}, 0, true},
	} {
		c.add(tc.after)
		if got := e.uploadsExpired(s, &tc.file); got != tc.expired {
			t.Errorf("%s: %v", tc.name, got)
		}
	}
}

// Puts beyond what is enough are waited for a moment only; what is needed is
// waited for.
func TestOnlyFurtherCopiesAreLeftBehind(t *testing.T) {
	for enough, want := range map[int]time.Duration{1: copyGrace, 2: time.Second} {
		synctest.Test(t, func(t *testing.T) {
			e := &Engine{cfg: Config{Archives: slow{}}.withDefaults(), metrics: newMetrics()}
			s := &submission{Parts: []part{{Acks: []wire.ArchiveID{"a"}}, {Acks: []wire.ArchiveID{"a"}}}}
			puts := map[int]wire.Put{0: {}, 1: {Record: wire.PutRecord{Part: 1}}}
			begin := time.Now()
			if err := e.putAll(t.Context(), s, puts, enough); err != nil {
				t.Error(err)
			}
			if took := time.Since(begin); took != want || s.copies() != enough {
				t.Errorf("enough is %d: waited %s for %d copies, want %s", enough, took, s.copies(), want)
			}
		})
	}
}

// However many submissions wait for a second copy that takes its time, new ones
// go on.
func TestHealingHoldsUpNobody(t *testing.T) {
	w := newWorld(t, 2, nil)
	rank := w.archives.Rank(digestOf("document"))
	w.archives.set(rank[1], func(n *node) { n.up = false })
	for i := range maxHeals + maxPasses {
		w.must(alice, hashBody(digestOf("document"), fileField(fmt.Sprint(i))))
	}
	hold := make(chan struct{})
	w.archives.set(rank[1], func(n *node) { n.up, n.hold = true, hold })
	w.engine.Nudge()
	_, job := w.must(alice, hashBody(digestOf("another")))
	if job.Status != wire.StatusCompleted {
		t.Errorf("the job is %s", encode(t, job))
	}
	close(hold)
	w.settled()
	for id := range w.archives.distinct() {
		if n := w.archives.copies(id); n != 2 {
			t.Errorf("%d copies", n)
		}
	}
}

// A file's record goes where the file is, but not to an archive that takes no
// records now: it lost some, or was retired.
func TestRecordOfAFileGoesOnlyWhereRecordsAreTaken(t *testing.T) {
	w := newWorld(t, 3, nil)
	rank := w.archives.Rank(digestOf("document"))
	s := &submission{Placement: digestOf("document"), Files: []file{{Committed: rank[:2]}}}
	for _, p := range []part{{File: 1}, {}} {
		if list := w.engine.candidates(s, &p); list[0] != rank[0] || p.File > 0 && len(list) != 2 {
			t.Errorf("part %+v may go to %v", p, list)
		}
	}
	w.archives.set(rank[0], func(n *node) { n.up = false })
	for _, p := range []part{{File: 1}, {}} {
		if list := w.engine.candidates(s, &p); list[0] != rank[1] || slices.Contains(list, rank[0]) {
			t.Errorf("part %+v may go to %v", p, list)
		}
	}
}
