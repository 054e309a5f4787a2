package jobs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"
	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/internal/pebblex"
)

// layoutVersion is the version of the key space. Raise it when a key's meaning
// changes; a store with another version is refused.
const layoutVersion = "1"

// Sizes of the job store's committer.
const (
	storeQueue    = 4096    // updates waiting for the committer; more block their callers
	storeMaxItems = 1024    // updates in one commit
	storeCache    = 8 << 20 // bytes of block cache
)

// store is the job store. Checks and the writes they decide run in update;
// reads through view see only what is on disk, but for what came by post.
type store struct {
	db  *pebble.DB
	com *pebblex.Committer[*update]
	// instead, if a test set it, is called with each batch in place of commit.
	instead atomic.Pointer[func(items []*update)]

	mu   sync.RWMutex     // held for writing only while snap is exchanged
	snap *pebble.Snapshot // the state as of the last durable commit

	broken error // owned by the committer: set when a commit failed; no later one is tried
}

// update is one function to run in the committer, with its outcome.
type update struct {
	fn   func(*tx) error
	lazy bool // may be lost in a crash: asks for no sync
	err  error
	done chan struct{}
}

// openStore opens the job store that o describes.
func openStore(o pebblex.Options) (*store, error) {
	o.CacheSize = storeCache
	db, err := pebblex.Open(o)
	if err != nil {
		return nil, fmt.Errorf("jobs: open store: %w", err)
	}
	s := &store{db: db}
	s.com = pebblex.NewCommitter(pebblex.CommitterConfig[*update]{Queue: storeQueue, MaxItems: storeMaxItems, Commit: s.run})
	s.snap = db.NewSnapshot()
	if err := s.checkLayout(); err != nil {
		if pebble.IsCorruptionError(err) {
			err = fault.Wrap(fault.Corrupt, err)
		}
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

func (s *store) checkLayout() error {
	key := rowKey(rowMeta, []byte("layout"))
	return s.update(context.Background(), func(t *tx) error {
		row, ok, err := t.get(key)
		if err != nil {
			return err
		}
		if !ok {
			t.set(key, frameRow([]byte(layoutVersion)))
			return nil
		}
		got, err := openRow(key, row)
		if err != nil {
			return err
		}
		if string(got) != layoutVersion {
			return fmt.Errorf("jobs: the store has layout %q, this program reads %q: use the program that wrote it", got, layoutVersion)
		}
		return nil
	})
}

// update runs fn in the committer, alone, and returns when what it wrote is on
// disk. When fn returns an error nothing of it is written. ctx bounds only the
// wait for a place in the queue: its error means that fn does not run.
func (s *store) update(ctx context.Context, fn func(*tx) error) error {
	u := &update{fn: fn, done: make(chan struct{})}
	err := s.com.Submit(ctx, u)
	if errors.Is(err, pebblex.ErrClosed) {
		return errClosed
	}
	if err != nil {
		return fmt.Errorf("jobs: store: %w", err)
	}
	<-u.done
	return u.err
}

// post is update without waiting: for what may be lost. It costs no sync of its
// own, and is on disk after the next update that does. Its error says only that
// fn was not taken.
func (s *store) post(ctx context.Context, fn func(*tx) error) error {
	return s.com.Submit(ctx, &update{fn: fn, lazy: true, done: make(chan struct{})})
}

func (s *store) run(items []*update) {
	if f := s.instead.Load(); f != nil {
		(*f)(items)
		return
	}
	s.commit(items)
}

// commit runs a batch of updates and makes them durable together.
func (s *store) commit(items []*update) {
	defer func() {
		for _, u := range items {
			close(u.done)
		}
	}()
	fail := func(err error) {
		for _, u := range items {
			u.err = errors.Join(u.err, err)
		}
	}
	if s.broken != nil {
		fail(s.broken)
		return
	}
	batch := s.db.NewIndexedBatch()
	defer batch.Close()
	sync := pebble.NoSync
	for _, u := range items {
		if !u.lazy {
			sync = pebble.Sync
		}
		t := &tx{batch: batch}
		if u.err = u.fn(t); u.err == nil {
			u.err = t.apply()
		}
	}
	if batch.Empty() {
		return
	}
	if err := s.db.Apply(batch, sync); err != nil {
		// Whether the batch is on disk is unknown until the store is opened
		// again: no answer may be built on it.
		s.broken = fault.New(fault.Internal, "STORE_FAILED", "jobs: the job store failed and must be reopened: %w", err)
		fail(s.broken)
		return
	}
	next := s.db.NewSnapshot()
	s.mu.Lock()
	old := s.snap
	s.snap = next
	s.mu.Unlock()
	if err := old.Close(); err != nil {
		s.broken = fmt.Errorf("jobs: close snapshot: %w", err)
	}
}

// tx is what an update sees and writes: the store, the updates before it in
// the same commit, and its own writes once fn has returned nil.
type tx struct {
	batch *pebble.Batch
	ops   []op
}

type op struct {
	key, value []byte // a nil value deletes
}

// get returns a copy of the row under key. It sees the writes of this update.
func (t *tx) get(key []byte) (row []byte, ok bool, err error) {
	for i := len(t.ops) - 1; i >= 0; i-- {
		if bytes.Equal(t.ops[i].key, key) {
			return t.ops[i].value, t.ops[i].value != nil, nil
		}
	}
	return getRow(t.batch, key)
}

func (t *tx) set(key, row []byte) {
	if row == nil {
		row = []byte{}
	}
	t.ops = append(t.ops, op{key, row})
}

func (t *tx) del(key []byte) { t.ops = append(t.ops, op{key: key}) }

func (t *tx) apply() error {
	for _, o := range t.ops {
		var err error
		if o.value == nil {
			err = t.batch.Delete(o.key, nil)
		} else {
			err = t.batch.Set(o.key, o.value, nil)
		}
		if err != nil {
			return fmt.Errorf("jobs: batch: %w", err)
		}
	}
	return nil
}

// view runs fn on the last durable state. fn must not keep what it is given
// and must not block.
func (s *store) view(fn func(pebble.Reader) error) error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.snap == nil {
		return fault.New(fault.Transient, "STORE_CLOSED", "jobs: the job store is closed")
	}
	return fn(s.snap)
}

// close commits what is queued and closes the store.
func (s *store) close() error {
	s.com.Close()
	s.mu.Lock()
	snap := s.snap
	s.snap = nil
	s.mu.Unlock()
	var err error
	if snap != nil {
		err = snap.Close()
	}
	return errors.Join(err, s.db.Close())
}

// getRow returns a copy of the row under key.
func getRow(r pebble.Reader, key []byte) (row []byte, ok bool, err error) {
	value, closer, err := r.Get(key)
	if errors.Is(err, pebble.ErrNotFound) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, fmt.Errorf("jobs: read %x: %w", key, err)
	}
	row = bytes.Clone(value)
	if row == nil {
		row = []byte{}
	}
	return row, true, closer.Close()
}

// scan calls fn with copies of the keys and rows that start with prefix, in
// key order, until fn returns false.
func scan(r pebble.Reader, prefix []byte, fn func(key, row []byte) (bool, error)) error {
	return scanFrom(r, prefix, prefix, fn)
}

// scanFrom is scan from a key on.
func scanFrom(r pebble.Reader, prefix, from []byte, fn func(key, row []byte) (bool, error)) error {
	it, err := r.NewIter(&pebble.IterOptions{LowerBound: from, UpperBound: after(prefix)})
	if err != nil {
		return fmt.Errorf("jobs: scan %x: %w", prefix, err)
	}
	for it.First(); it.Valid(); it.Next() {
		more, err := fn(bytes.Clone(it.Key()), bytes.Clone(it.Value()))
		if err != nil || !more {
			return errors.Join(err, it.Close())
		}
	}
	return errors.Join(it.Error(), it.Close())
}

// last returns a copy of the greatest key that starts with prefix.
func last(r pebble.Reader, prefix []byte) (key []byte, ok bool, err error) {
	it, err := r.NewIter(&pebble.IterOptions{LowerBound: prefix, UpperBound: after(prefix)})
	if err != nil {
		return nil, false, fmt.Errorf("jobs: scan %x: %w", prefix, err)
	}
	if it.Last() {
		key, ok = bytes.Clone(it.Key()), true
	}
	return key, ok, errors.Join(it.Error(), it.Close())
}

// after returns the first key behind all keys that start with prefix.
func after(prefix []byte) []byte {
	end := bytes.Clone(prefix)
	for i := len(end) - 1; i >= 0; i-- {
		if end[i]++; end[i] != 0 {
			return end[:i+1]
		}
	}
	return nil
}
