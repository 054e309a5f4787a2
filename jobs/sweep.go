package jobs

import (
	"bytes"
	"context"
	"encoding/binary"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/verae/archive/internal/fault"
)

// Rhythm of the engine's housekeeping.
const (
	sweepEvery     = 5 * time.Second // events that could not be announced are tried again
	announceAtOnce = 10_000          // of them in one sweep
	expireEvery    = time.Minute     // rows whose time has passed are removed
	expireAtOnce   = 1000            // of them in one commit
)

func expiryKey(at time.Time, key []byte) []byte {
	return rowKey(rowExpiry, binary.BigEndian.AppendUint64(nil, uint64(at.Unix())), key)
}

// sweep announces what was not announced, and forgets what has expired, until
// the engine closes.
func (e *Engine) sweep() {
	announce, expire := time.NewTicker(sweepEvery), time.NewTicker(expireEvery)
	defer announce.Stop()
	defer expire.Stop()
	for {
		select {
		case <-announce.C:
			e.announceAgain()
		case <-expire.C:
			for more := true; more; {
				var err error
				if more, err = e.expire(e.ctx); err != nil && e.ctx.Err() == nil {
					e.cfg.Log.Warn("expired keys could not be removed", "err", err)
				}
			}
		case <-e.ctx.Done():
			return
		}
	}
}

// announceAgain announces events that are not known to be announced. When the
// bus can not be reached the others would fare no better: they wait for the
// next sweep.
func (e *Engine) announceAgain() {
	keys, err := e.unannounced()
	for _, key := range keys {
		if failure := e.tell(key); failure != nil {
			err = failure
		}
		if fault.Is(err, fault.Transient) {
			break
		}
	}
	if err != nil && e.ctx.Err() == nil {
		e.cfg.Log.Warn("events could not be announced; they are tried again", "of", len(keys), "err", err)
	}
}

// unannounced returns the keys of some events that are not known to be announced.
func (e *Engine) unannounced() (keys [][]byte, err error) {
	err = e.store.view(func(r pebble.Reader) error {
		return scan(r, []byte{rowUnannounced}, func(key, _ []byte) (bool, error) {
			keys = append(keys, key[1:])
			return len(keys) < announceAtOnce, nil
		})
	})
	return keys, err
}

// expire removes some rows whose time has passed, and reports whether there may
// be more.
func (e *Engine) expire(ctx context.Context) (more bool, err error) {
	var due [][]byte
	end := expiryKey(e.cfg.Now(), nil)
	err = e.store.view(func(r pebble.Reader) error {
		return scan(r, []byte{rowExpiry}, func(key, _ []byte) (bool, error) {
			if bytes.Compare(key, end) >= 0 || len(due) == expireAtOnce {
				return false, nil
			}
			due = append(due, key)
			return true, nil
		})
	})
	if err != nil || len(due) == 0 {
		return false, err
	}
	err = e.store.update(ctx, func(t *tx) error {
		for _, x := range due {
			t.del(x)
			if err := e.expireRow(t, x[1+8:]); err != nil {
				return err
			}
		}
		return nil
	})
	return err == nil && len(due) == expireAtOnce, err
}

func (e *Engine) expireRow(t *tx, key []byte) error {
	keep := e.cfg.IdempotencyTTL
	if key[0] == rowFingerprint {
		keep = e.cfg.ResubmitWindow
	}
	row, ok, err := t.get(key)
	if err != nil || !ok {
		return err
	}
	v, err := decodeRow[seen](key, row)
	if err != nil {
		return err
	}
	if v.At <= e.cfg.Now().Add(-keep).Unix() {
		t.del(key)
	} else { // written anew, or kept for longer than was meant then
		t.set(expiryKey(time.Unix(v.At, 0).Add(keep), key), nil)
	}
	return nil
}
