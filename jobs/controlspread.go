package jobs

import (
	"context"

	"github.com/cockroachdb/pebble/v2"
)

// rosterSeen is the version of the roster for which every control record was
// either on all enrolled archives or on the work list.
type rosterSeen struct {
	Version uint64 `json:"version"`
}

// spreadControls puts the control records that an archive never got, because it
// was enrolled after them, on the work list again. It is called before every
// round of the healer, by the healer alone, and looks again whenever the roster
// has changed.
//
// A control record is missed by nobody: it is on the work list until every
// archive that is enrolled when its commit runs has it (see Engine.save), and an
// archive that is enrolled after that commit changes the roster.
func (e *Engine) spreadControls() {
	if !e.steered.Load() {
		return
	}
	now := rosterSeen{e.cfg.Archives.Version()} // first: who is enrolled meanwhile changes it
	if e.spread == now && now.Version != 0 {
		return
	}
	if err := e.spreadFor(e.ctx, now); err != nil {
		if e.ctx.Err() == nil {
			e.cfg.Log.Warn("control records could not be listed for new archives; it is tried again", "err", err)
		}
		signal(e.lacking)
		return
	}
	e.spread = now
}

// spreadFor lists all control records as work that some archive lacks, unless
// that was done for this version of the roster.
func (e *Engine) spreadFor(ctx context.Context, now rosterSeen) error {
	key := rowKey(rowSpread)
	var before rosterSeen
	err := e.store.view(func(r pebble.Reader) error {
		row, ok, err := getRow(r, key)
		if err == nil && ok {
			before, err = decodeRow[rosterSeen](key, row)
		}
		return err
	})
	if err != nil || before == now && now.Version != 0 {
		return err
	}
	for from := []byte{rowControl}; from != nil; {
		if from, err = e.spreadPage(ctx, from); err != nil {
			return err
		}
		if err := e.at("spread.page"); err != nil {
			return err
		}
	}
	return e.store.update(ctx, func(t *tx) error {
		row, err := encodeRow(now)
		if err == nil {
			t.set(key, row)
		}
		return err
	})
}

// spreadPage lists some of them, from a key on, and returns the key of the next;
// nil after the last.
func (e *Engine) spreadPage(ctx context.Context, from []byte) (next []byte, err error) {
	var page [][]byte
	err = e.store.view(func(r pebble.Reader) error {
		return scanFrom(r, []byte{rowControl}, from, func(key, _ []byte) (bool, error) {
			page = append(page, key)
			return len(page) < workPage, nil
		})
	})
	if err != nil || len(page) == 0 {
		return nil, err
	}
	err = e.store.update(ctx, func(t *tx) error {
		for _, key := range page {
			if err := e.reopen(t, key[1:]); err != nil {
				return err
			}
		}
		return nil
	})
	if len(page) == workPage {
		next = append(page[workPage-1], 0)
	}
	return next, err
}

// reopen puts a submission on the work list if an archive lacks its record. One
// that is not Copied is there already.
func (e *Engine) reopen(t *tx, id []byte) error {
	s, err := readSubmission(t.batch, id)
	if err != nil || !s.Copied || e.complete(s) {
		return err
	}
	s.Copied = false
	t.set(rowKey(rowPending, id), nil)
	return t.putSubmission(s)
}
