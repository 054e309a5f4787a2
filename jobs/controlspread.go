package jobs

import (
	"context"

	"github.com/cockroachdb/pebble/v2"
	"github.com/verae/archive/wire"
)

// deliverControl brings a control record to as many archives as count as stored,
// and to all that answer soon. Then its submission has ended: nothing is sealed,
// and no event tells of it. The archives that still lack it are the healer's.
func (e *Engine) deliverControl(ctx context.Context, s *submission) error {
	if err := e.deliver(ctx, s); err != nil {
		return err
	}
	if err := e.at("control.put"); err != nil {
		return err
	}
	done := s.clone()
	done.Status = wire.StatusCompleted
	if err := e.save(ctx, done); err != nil {
		return err
	}
	*s = *done
	if err := e.at("control.ended"); err != nil {
		return err
	}
	e.publish(s)
	return nil
}

// spreadControls puts the control records that an archive never got, because it
// was enrolled after them, on the work list again. It is called before every
// round of the healer, by the healer alone.
//
// A control record is missed by nobody: it is on the work list until every
// archive that is enrolled when its commit runs has it (see Engine.save), and an
// archive is looked at here after it was enrolled.
func (e *Engine) spreadControls() {
	if !e.steered.Load() {
		return
	}
	for _, id := range e.cfg.Archives.Enrolled() {
		if e.spread[id] {
			continue
		}
		if err := e.spreadTo(e.ctx, id); err != nil {
			if e.ctx.Err() == nil {
				e.cfg.Log.Warn("control records could not be listed for an archive; it is tried again", "archive", id, "err", err)
			}
			signal(e.lacking)
			return
		}
		e.spread[id] = true
	}
}

// spreadTo lists all control records that an archive lacks as work, unless that
// was done before.
func (e *Engine) spreadTo(ctx context.Context, archive wire.ArchiveID) error {
	mark := rowKey(rowSpread, []byte(archive))
	done := false
	err := e.store.view(func(r pebble.Reader) (err error) {
		_, done, err = getRow(r, mark)
		return err
	})
	if err != nil || done {
		return err
	}
	for from := []byte{rowControl}; from != nil; {
		if from, err = e.spreadPage(ctx, archive, from); err != nil {
			return err
		}
		if err := e.at("spread.page"); err != nil {
			return err
		}
	}
	return e.store.update(ctx, func(t *tx) error {
		t.set(mark, nil)
		return nil
	})
}

// spreadPage lists some of them, from a key on, and returns the key of the next;
// nil after the last.
func (e *Engine) spreadPage(ctx context.Context, archive wire.ArchiveID, from []byte) (next []byte, err error) {
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
			if err := t.reopen(key[1:], archive); err != nil {
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
func (t *tx) reopen(id []byte, archive wire.ArchiveID) error {
	s, err := readSubmission(t.batch, id)
	if err != nil || !s.Copied || s.has(archive) {
		return err
	}
	s.Copied = false
	t.set(rowKey(rowPending, id), nil)
	return t.putSubmission(s)
}
