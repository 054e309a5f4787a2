package jobs

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/verae/archive/chain"
	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/wire"
)

// Bounds of one attempt to reach one archive.
const (
	putTimeout    = 5 * time.Second
	commitTimeout = 60 * time.Second // a large file is synced in this time
	copyTimeout   = 10 * time.Minute
	copyGrace     = 250 * time.Millisecond // further copies are waited for this long once there are enough
	commitGrace   = 2 * time.Second        // the same for files, whose sync takes longer; less than PUT_WAIT_MS
	maxPuts       = 16                     // puts of one submission under way at a time
)

// deliver is step 4 of Accept, from the stored copy alone, so that it may be
// repeated: it commits the uploads, then puts the records. It returns nil when
// the submission is stored, or has failed for good.
func (e *Engine) deliver(ctx context.Context, s *submission) error {
	if !s.UploadsDone {
		if err := e.commitUploads(ctx, s); err != nil || s.ended() {
			return err
		}
		if err := e.at("accept.uploads"); err != nil {
			return err
		}
	}
	err := e.place(ctx, s, e.cfg.PutMinCopies)
	s.Stored = s.copies() >= e.cfg.PutMinCopies
	s.Copied = e.complete(s)
	if s.Stored {
		s.cleared()
		return nil
	}
	return errors.Join(cmpErr(err, shortage(len(e.cfg.Archives.Rank(s.Placement)), e.cfg.PutMinCopies)), e.sealEarly(ctx, s))
}

// target is how many copies a record shall have.
func (e *Engine) target() int {
	return max(e.cfg.PutMinCopies, min(e.cfg.PutCopies, len(e.cfg.Archives.Enrolled())))
}

// want is how many copies the records of s shall have.
func (e *Engine) want(s *submission) int {
	if s.Control != "" {
		return max(e.cfg.PutMinCopies, len(e.cfg.Archives.Enrolled()))
	}
	return e.target()
}

// lacks is how many further copies p, a part of s, shall have. A control record
// shall be on every enrolled archive, and a copy on one that left counts for none.
func (e *Engine) lacks(s *submission, p *part) int {
	if p.Lost != "" {
		return 0
	}
	if s.Control == "" {
		return e.target() - len(p.Acks)
	}
	n := 0
	for _, id := range e.cfg.Archives.Enrolled() {
		if !slices.Contains(p.Acks, id) {
			n++
		}
	}
	return n
}

// complete reports whether every record of s has all its copies.
func (e *Engine) complete(s *submission) bool {
	if s.Control == "" {
		return s.copies() >= e.target()
	}
	return s.copies() >= e.cfg.PutMinCopies && !slices.ContainsFunc(s.Parts, func(p part) bool { return e.lacks(s, &p) > 0 })
}

func shortage(have, need int) error {
	return fault.New(fault.Transient, codeNoArchive, "archives: %d take records now and %d are needed: the records wait", have, need).After(retryAfter)
}

// commitUploads commits every file at the archives that have its bytes, and
// makes durable that this was done: no record is put before. A file that no
// archive knows any more ends the submission.
func (e *Engine) commitUploads(ctx context.Context, s *submission) error {
	for i := range s.Files {
		e.commitUpload(ctx, &s.Files[i], e.cfg.PutMinCopies)
		if len(s.Files[i].Committed) > 0 {
			continue
		}
		if len(s.Files[i].Lost) == len(s.Files[i].Uploaded) || e.uploadsExpired(s, &s.Files[i]) {
			return e.fail(ctx, s, fault.New(fault.Transient, "UPLOAD_LOST",
				"files: the archives lost the bytes of file %d before they were kept: send the request again", i+1))
		}
		return fault.New(fault.Transient, codeNoArchive, "archives: none that has the bytes of file %d can be reached: it waits", i+1)
	}
	s.UploadsDone = true
	return e.save(ctx, s)
}

// uploadsExpired reports whether no archive can still have an open upload of f:
// those that did not say so are away, and for longer than they keep one. An
// archive that takes puts is asked again; it may be about to sync a large file.
func (e *Engine) uploadsExpired(s *submission, f *file) bool {
	since := e.started
	if at, ok := s.AttachedAt.Instant(); ok && at.After(since) {
		since = at
	}
	here := e.cfg.Archives.Rank(s.Placement)
	return e.cfg.Now().Sub(since) > e.cfg.UploadIdle && !slices.ContainsFunc(f.undecided(), func(id wire.ArchiveID) bool {
		return slices.Contains(here, id)
	})
}

// commitUpload asks every archive that may have the bytes of f to keep them, and
// notes in f which did, and which do not know them. Once enough archives did,
// the rest is waited for a moment only.
func (e *Engine) commitUpload(ctx context.Context, f *file, enough int) {
	ctx, stop := context.WithTimeout(ctx, commitTimeout)
	defer stop()
	var mu sync.Mutex // guards f
	var wg sync.WaitGroup
	for _, id := range f.undecided() {
		wg.Go(func() {
			err := e.cfg.Archives.CommitUpload(ctx, id, f.UploadID, f.commit())
			mu.Lock()
			defer mu.Unlock()
			switch fault.KindOf(err) {
			case fault.Invalid, fault.Conflict, fault.NotFound:
				f.Lost = addArchive(f.Lost, id)
			default:
				if err == nil {
					f.Committed = addArchive(f.Committed, id)
				}
			}
			if len(f.Committed) >= enough {
				time.AfterFunc(commitGrace, stop)
			}
		})
	}
	wg.Wait()
}

// outbox returns the stored puts of a submission, by part. A part whose row
// has left the outbox has all its copies.
func (e *Engine) outbox(s *submission) (map[int]wire.Put, error) {
	puts := map[int]wire.Put{}
	id := s.ref().key()
	err := e.store.view(func(r pebble.Reader) error {
		for n := range s.Parts {
			key := rowKey(rowOutbox, id, ordinal(n))
			row, ok, err := getRow(r, key)
			if err != nil || !ok {
				return err
			}
			bytes, err := openRow(key, row)
			if err != nil {
				return err
			}
			if puts[n], err = wire.Decode[wire.Put](bytes); err != nil {
				return fault.New(fault.Corrupt, "OUTBOX", "jobs: outbox row %x: %w", key, err)
			}
		}
		return nil
	})
	return puts, err
}

// delivery is the outcome of one put at one archive.
type delivery struct {
	part int
	id   wire.ArchiveID
	err  error
}

// place puts the records of a submission until each has want copies, from the
// outbox. Where a file is on fewer archives than that, because one lost its
// upload or another was away, it copies the file first.
func (e *Engine) place(ctx context.Context, s *submission, want int) error {
	puts, err := e.outbox(s)
	if err != nil {
		return err
	}
	err = e.putAll(ctx, s, puts, want)
	err = cmpErr(err, e.pullAll(ctx, s, puts))
	if s.copies() >= want {
		return nil
	}
	copied, copyErr := e.copyFiles(ctx, s, want)
	if !copied {
		return cmpErr(err, copyErr)
	}
	return e.putAll(ctx, s, puts, want)
}

// putAll puts every part that lacks copies, to as many archives as it lacks,
// the next in rank taking the place of one that fails. Acknowledgements are
// noted in s. It returns early once every part has enough copies and the rest
// takes its time.
func (e *Engine) putAll(ctx context.Context, s *submission, puts map[int]wire.Put, enough int) error {
	ctx, stop := context.WithCancel(ctx)
	results, free := make(chan delivery), make(chan struct{}, maxPuts)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer stop()
	waiting := make([][]wire.ArchiveID, len(s.Parts)) // archives not tried yet, by part
	out := 0
	send := func(n int) {
		put, ok := puts[n]
		if !ok || len(waiting[n]) == 0 {
			return
		}
		id := waiting[n][0]
		waiting[n] = waiting[n][1:]
		out++
		wg.Go(func() {
			err := e.putOne(ctx, free, id, put)
			select {
			case results <- delivery{n, id, err}:
			case <-ctx.Done():
			}
		})
	}
	for n := range s.Parts {
		waiting[n] = e.candidates(s, &s.Parts[n])
		for range e.lacks(s, &s.Parts[n]) {
			send(n)
		}
	}
	var grace <-chan time.Time
	var failure error
	for out > 0 {
		select {
		case d := <-results:
			out--
			if d.err == nil {
				s.Parts[d.part].Acks = addArchive(s.Parts[d.part].Acks, d.id)
			} else {
				failure = d.err
				send(d.part)
			}
		case <-grace:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
		if grace == nil && s.copies() >= enough {
			grace = time.After(copyGrace)
		}
	}
	return failure
}

// putOne puts one record at one archive and checks the answer. The record and
// its putId are as they were stored, however late; the roster version is that
// of the sender at this moment, for an archive refuses one from before it was
// enrolled.
func (e *Engine) putOne(ctx context.Context, free chan struct{}, id wire.ArchiveID, p wire.Put) error {
	select {
	case free <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-free }()
	ctx, stop := context.WithTimeout(ctx, putTimeout)
	defer stop()
	p.RosterVersion = e.cfg.Archives.Version()
	ack, err := e.cfg.Archives.Put(ctx, id, p)
	if err != nil {
		e.metrics.putFailures.Inc()
		return err
	}
	if ack.RecordID != p.Record.ID() {
		return fault.New(fault.Corrupt, "WRONG_ACK", "jobs: archive %s acknowledged record %s for %s", id, ack.RecordID, p.Record.ID())
	}
	return nil
}

// candidates are the archives that may still take a part, best first. A file's
// record goes only where the file is; the other records of a submission follow
// its files.
func (e *Engine) candidates(s *submission, p *part) []wire.ArchiveID {
	able := e.cfg.Archives.Rank(s.Placement) // an archive that lost records may have the file, and gets no record
	var list []wire.ArchiveID
	if p.File > 0 {
		list = slices.Clone(s.Files[p.File-1].Committed)
	} else {
		for _, f := range s.Files {
			list = append(list, f.Committed...)
		}
		list = append(list, able...)
	}
	seen := map[wire.ArchiveID]bool{}
	return slices.DeleteFunc(list, func(id wire.ArchiveID) bool {
		unfit := seen[id] || slices.Contains(p.Acks, id) || !slices.Contains(able, id)
		seen[id] = true
		return unfit
	})
}

// sealEarly registers the digests of a submission whose metadata has to wait
// for archives: the seal does not wait with it. A submission with files is not
// sealed before its files are safe, for they may still be lost.
func (e *Engine) sealEarly(ctx context.Context, s *submission) error {
	if s.Sealed || len(s.Files) > 0 || s.quiet() {
		return nil
	}
	seals, err := chain.SealOnce(ctx, e.cfg.Ledger, entries(s))
	if err != nil {
		return err
	}
	return e.sealed(ctx, s, seals)
}

// copyFiles brings every file to want archives: those that got its bytes from
// the sender are asked again, then it is copied to the next ones in rank, the
// next taking the place of one that fails. An archive gives a file away only
// once it has its record.
func (e *Engine) copyFiles(ctx context.Context, s *submission, want int) (copied bool, err error) {
	ctx, stop := context.WithTimeout(ctx, copyTimeout)
	defer stop()
	for i := range s.Files {
		f := &s.Files[i]
		before := len(f.Committed)
		if before < want {
			e.commitUpload(ctx, f, want)
		}
		for _, to := range e.cfg.Archives.Rank(s.Placement) {
			if len(f.Committed) >= want {
				break
			}
			if slices.Contains(f.Committed, to) {
				continue
			}
			if failure := e.copyFile(ctx, s, f, to); failure != nil {
				err = failure
			}
		}
		copied = copied || len(f.Committed) > before
	}
	return copied, err
}

func (e *Engine) copyFile(ctx context.Context, s *submission, f *file, to wire.ArchiveID) (err error) {
	for _, from := range f.Committed {
		if err = e.cfg.Archives.Copy(ctx, from, to, s.Tenant, f.commit()); err == nil {
			f.Committed = addArchive(f.Committed, to)
			return nil
		}
	}
	return err
}

// cmpErr returns the first error, or the second if there is none.
func cmpErr(first, second error) error {
	if first != nil {
		return first
	}
	return second
}
