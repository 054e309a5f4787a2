package blob

import (
	"errors"
	"fmt"
	"time"
)

// Abort ends an upload and removes its bytes. An unknown upload is not an error:
// what the sender wants is so already. A commit under way is not undone.
func (s *Store) Abort(id string) error {
	leave, err := s.enter()
	if err != nil {
		return err
	}
	defer leave()
	if u := s.lookup(id); u != nil {
		u.mu.Lock()
		defer u.mu.Unlock()
		s.drop(u)
	}
	return nil
}

// Sweep aborts the uploads of which nothing was heard for longer than idle, and
// returns how many there were. Uploads busy with a write or a commit, or being
// read back, are not idle; one that a restart has left is as old as the store's
// opening. It also removes temporary files whose removal failed before.
func (s *Store) Sweep(idle time.Duration) (int, error) {
	leave, err := s.enter()
	if err != nil {
		return 0, err
	}
	defer leave()
	swept, limit := 0, s.cfg.Now().Add(-idle)
	for _, u := range s.allUploads() {
		if !u.mu.TryLock() {
			continue
		}
		if !u.gone && u.reading == nil && u.last.Before(limit) {
			s.drop(u)
			swept++
		}
		u.mu.Unlock()
	}
	return swept, s.removeLeftovers()
}

func (s *Store) removeLeftovers() error {
	names, err := s.cfg.FS.List(s.path(dirTemp))
	if err != nil {
		return fmt.Errorf("blob: sweep: %w", err)
	}
	s.mu.Lock() // so that no upload begins under a name that is being removed
	defer s.mu.Unlock()
	for _, name := range names {
		if s.uploads[name] == nil {
			err = errors.Join(err, s.removeTemp(name))
		}
	}
	if err != nil {
		return fmt.Errorf("blob: sweep: %w", err)
	}
	return nil
}
