package jobs

import (
	"context"
	"errors"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/wire"
)

// An archive that lost records acknowledged some that it does not have, and they
// count as copies all the same. To account for it is to go through all that the
// job store knows the archive to have acknowledged and to ask the archives: what
// it lacks no longer counts as its copy, so that the healer makes another, and
// what nobody has is listed as lost. Until then nobody trusts it.

// A Loss is an archive whose acknowledgements have to be accounted for.
type Loss struct {
	Archive wire.ArchiveID
	ID      string // tells this loss of the archive from its others
	Boot    string // the process that is asked: another one may have another disk
	Gone    bool   // it was retired: it has nothing, and is not asked
}

// Copies is what accounting, and healing without the bytes at hand, need of the
// archives. Its methods may be called from many goroutines; errors carry a fault
// kind.
type Copies interface {
	// Losses returns the losses that somebody can be asked about now.
	Losses() []Loss
	// Has reports which records an archive can read now, in the order of ids; at
	// most wire.MaxSyncIDs. An error says that it can not be asked.
	Has(ctx context.Context, id wire.ArchiveID, ids []wire.RecordID) ([]bool, error)
	// Pull has an archive fetch records, and their files, from others; at most
	// wire.MaxPullIDs. Where the outcome is nil the record rests there.
	Pull(ctx context.Context, to wire.ArchiveID, ids []wire.RecordID, from []wire.ArchiveID) ([]error, error)
	// Accounted says that a loss is accounted for; whole, that the archive has all
	// that it acknowledged. It may be called again.
	Accounted(l Loss, whole bool)
}

// Rhythm and bounds of accounting. It is in no hurry: others are waited for.
const (
	accountEvery = 5 * time.Second       // losses are looked for
	accountPause = 20 * time.Millisecond // between two pages
	accountRetry = time.Minute           // what could not be decided is looked at again, at the latest
)

// account is how far one loss is accounted for: a row of the job store.
type account struct {
	Archive wire.ArchiveID `json:"archive"`
	ID      string         `json:"id"`
	Boot    string         `json:"boot"`
	After   []byte         `json:"after,omitempty"` // key of the last submission looked at in this walk

	Submissions uint64    `json:"submissions"` // looked at in this walk
	Records     uint64    `json:"records"`     // of them acknowledged by the archive
	Absent      uint64    `json:"absent"`      // of these not there, in all walks
	Lost        uint64    `json:"lost"`        // of these nowhere
	Undecided   uint64    `json:"undecided"`   // of this walk: somebody who may have it could not be asked
	StartedAt   wire.Time `json:"startedAt"`
	DoneAt      wire.Time `json:"doneAt,omitzero"`
}

func (a *account) is(l Loss) bool { return a.ID == l.ID && a.Boot == l.Boot }

// accountant accounts for losses until the engine closes.
func (e *Engine) accountant() {
	tick := time.NewTicker(accountEvery)
	defer tick.Stop()
	failed, next := map[wire.ArchiveID]int{}, map[wire.ArchiveID]time.Time{}
	for {
		select {
		case <-tick.C:
		case <-e.ctx.Done():
			return
		}
		for _, l := range e.cfg.Copies.Losses() {
			if e.cfg.Now().Before(next[l.Archive]) {
				continue
			}
			err := e.account(e.ctx, l)
			switch {
			case err == nil:
				delete(failed, l.Archive)
				delete(next, l.Archive)
			case e.ctx.Err() != nil || errors.Is(err, errCrash):
				return
			default:
				failed[l.Archive]++
				next[l.Archive] = e.cfg.Now().Add(min(backoff(failed[l.Archive])+accountEvery, accountRetry))
				e.cfg.Log.Warn("an archive is not accounted for yet; it is tried again", "archive", l.Archive, "err", err)
			}
		}
	}
}

// account accounts for one loss, from where it was left.
func (e *Engine) account(ctx context.Context, l Loss) error {
	a, err := e.accountOf(l.Archive)
	if err != nil {
		return err
	}
	if a == nil || !a.is(l) {
		a = &account{Archive: l.Archive, ID: l.ID, Boot: l.Boot, StartedAt: wire.At(e.cfg.Now())}
	}
	if a.DoneAt == "" && a.After == nil {
		// Work that began before the loss was known may have acknowledgements of the
		// archive that it has not noted yet; what begins now asks it no more, or the
		// process that is asked here.
		if err := e.letEnd(ctx); err != nil {
			return err
		}
	}
	for a.DoneAt == "" {
		next, err := e.accountPage(ctx, l, *a)
		if err != nil {
			return err
		}
		a = &next
		if err := e.at("account.page"); err != nil {
			return err
		}
		if a.After == nil && a.DoneAt == "" {
			return fault.New(fault.Transient, codeNoArchive, "archives: of %d records it can not be told yet where they are", a.Undecided)
		}
		if err := pause(ctx, accountPause); err != nil {
			return err
		}
	}
	e.cfg.Copies.Accounted(l, a.Absent == 0)
	return nil
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// accountOf returns how far an archive is accounted for, or nil.
func (e *Engine) accountOf(id wire.ArchiveID) (a *account, err error) {
	key := rowKey(rowAccount, []byte(id))
	err = e.store.view(func(r pebble.Reader) error {
		row, ok, err := getRow(r, key)
		if err != nil || !ok {
			return err
		}
		v, err := decodeRow[account](key, row)
		a = &v
		return err
	})
	return a, err
}

// accountPage looks at the next submissions of a walk. What it finds and how far
// it came are one commit: a page that is looked at again after a crash is looked
// at as it was.
func (e *Engine) accountPage(ctx context.Context, l Loss, a account) (account, error) {
	keys, list, err := e.submissionsAfter(a.After)
	if err != nil {
		return a, err
	}
	if a.After == nil {
		a.Submissions, a.Records, a.Undecided = 0, 0, 0
	}
	facts, err := e.ask(ctx, l, list)
	if err != nil {
		return a, err
	}
	e.metrics.accounted.Add(float64(len(list)))
	var found tally
	held, free := e.holdAll(list, facts)
	defer free()
	err = e.store.update(ctx, func(t *tx) (err error) {
		if found, err = e.correctAll(t, l, list, facts, held); err != nil {
			return err
		}
		a.Submissions += uint64(len(list))
		a.Records += found.records
		a.Absent += found.absent
		a.Lost += found.lost
		a.Undecided += found.undecided
		if a.After = nil; len(keys) == workPage {
			a.After = keys[workPage-1]
		} else if a.Undecided == 0 {
			a.DoneAt = wire.At(e.cfg.Now())
		}
		row, err := encodeRow(a)
		if err == nil {
			t.set(rowKey(rowAccount, []byte(l.Archive)), row)
		}
		return err
	})
	if err != nil {
		return a, err
	}
	e.metrics.lost.Add(found.listed)
	if found.absent > 0 {
		e.metrics.absent.Add(float64(found.absent))
		signal(e.lacking)
	}
	if a.DoneAt != "" {
		e.cfg.Log.Warn("an archive is accounted for", "archive", l.Archive, "records", a.Records, "absent", a.Absent, "lost", a.Lost)
	}
	return a, nil
}

// submissionsAfter returns some submissions behind a key, nil for the first. One
// that can not be read is reported and passed over. Of one that has not ended the
// store may lack acknowledgements: they are saved when it ends, and until then
// its task knows them.
func (e *Engine) submissionsAfter(after []byte) (keys [][]byte, list []*submission, err error) {
	from := []byte{rowSubmission}
	if after != nil {
		from = append(append(from, after...), 0)
	}
	err = e.store.view(func(r pebble.Reader) error {
		return scanFrom(r, []byte{rowSubmission}, from, func(key, row []byte) (bool, error) {
			keys = append(keys, key[1:])
			s, err := decodeRow[submission](key, row)
			if err != nil {
				e.cfg.Log.Error("a submission can not be read", "row", key, "err", err)
			} else {
				list = append(list, &s)
			}
			return len(keys) < workPage, nil
		})
	})
	for i, s := range list {
		if err == nil && !s.ended() {
			list[i], err = e.current(s.ref())
		}
	}
	return keys, list, err
}
