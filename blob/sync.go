package blob

import (
	"fmt"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/internal/pebblex"
)

// syncing is one sync of the file of an upload, beside the writes to it.
type syncing struct {
	done chan struct{}
	err  error // once done; nothing that is in the file can be relied on then
}

// Durable returns how many bytes of an upload survive a power cut; 0 if it is
// not open. It never waits.
func (s *Store) Durable(id string) int64 {
	if u := s.lookup(id); u != nil {
		return u.durable.Load()
	}
	return 0
}

// Sync makes durable what was received of an upload when it was called, and
// returns how many bytes are. Writes go on meanwhile. An upload that is not open
// is NotFound, code UNKNOWN_UPLOAD; any other error ends it: after a sync that
// failed nobody knows what is on the disk.
func (s *Store) Sync(id string) (durable int64, err error) {
	leave, err := s.enter()
	if err != nil {
		return 0, err
	}
	defer leave()
	u := s.lookup(id)
	if u == nil {
		return 0, unknownUpload(id)
	}
	for {
		run, before, err := s.startSync(u)
		switch {
		case fault.Is(err, fault.NotFound):
			return 0, err
		case before != nil: // covers less than was received since
			<-before.done
			continue
		case run != nil:
			err = run()
		}
		if err != nil {
			u.mu.Lock()
			defer u.mu.Unlock()
			s.drop(u)
			return 0, err
		}
		return u.durable.Load(), nil
	}
}

// startSync returns the sync that is due, for the caller to run, or the one that
// is under way and has to be waited for, or neither.
func (s *Store) startSync(u *upload) (run func() error, before *syncing, err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.gone || u.file == nil {
		return nil, nil, unknownUpload(u.id)
	}
	size, first := u.dag.size, u.syncing == nil
	if !first && size <= u.durable.Load() {
		return nil, nil, nil
	}
	if !first {
		select {
		case <-u.syncing.done:
			if u.syncing.err != nil { // another one may succeed, and the bytes be lost
				return nil, nil, u.syncing.err
			}
		default:
			return nil, u.syncing, nil
		}
	}
	file, now := u.file, &syncing{done: make(chan struct{})}
	u.syncing = now
	return func() error {
		defer close(now.done)
		err := file.Sync()
		if err == nil && first { // the name of the file
			err = pebblex.SyncDir(s.cfg.FS, s.path(dirTemp))
		}
		if err != nil {
			now.err = fmt.Errorf("blob: sync upload %s: %w", u.id, diskError(err))
			return now.err
		}
		u.durable.Store(max(size, u.durable.Load()))
		return nil
	}, nil, nil
}

// synced waits for a sync under way and returns the error of the last one. The
// caller holds u.mu.
func (u *upload) synced() error {
	if u.syncing == nil {
		return nil
	}
	<-u.syncing.done
	return u.syncing.err
}

func stillReading(id string) error {
	return fault.New(fault.Transient, CodeResuming, "blob: what is here of upload %s is being read back; try again soon", id).After(retrySoon)
}
