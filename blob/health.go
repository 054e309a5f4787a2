package blob

import (
	"encoding/hex"
	"errors"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/verae/archive/internal/fault"
)

// Damage is a stored file that turned out not to be what was written. It stays
// known until the same bytes are uploaded again or the store is opened anew.
type Damage struct {
	SHA256 [32]byte  // of the file as it was stored
	What   string    // what was found first
	At     time.Time // when
}

// health remembers damaged files.
type health struct {
	mu      sync.Mutex // guards damages
	damages map[[32]byte]Damage
}

// Damages returns the files found damaged so far, oldest first. A store with
// any is not healthy, although all other files are served.
func (s *Store) Damages() []Damage {
	s.health.mu.Lock()
	defer s.health.mu.Unlock()
	return slices.SortedFunc(maps.Values(s.health.damages), func(a, b Damage) int { return a.At.Compare(b.At) })
}

// damaged remembers that a file is damaged and returns the fault that says so.
// It is logged once for each file, since every read of it will fail.
func (s *Store) damaged(sha256 [32]byte, cause error) error {
	s.health.mu.Lock()
	_, known := s.health.damages[sha256]
	if !known {
		if s.health.damages == nil {
			s.health.damages = make(map[[32]byte]Damage)
		}
		s.health.damages[sha256] = Damage{SHA256: sha256, What: cause.Error(), At: s.cfg.Now()}
	}
	s.health.mu.Unlock()
	if !known {
		s.cfg.Log.Error("stored file is damaged", "sha256", hex.EncodeToString(sha256[:]), "err", cause)
	}
	return fault.New(fault.Corrupt, CodeCorrupt, "blob: stored file %x is damaged: %w", sha256, cause)
}

func (s *Store) isDamaged(sha256 [32]byte) bool {
	s.health.mu.Lock()
	defer s.health.mu.Unlock()
	_, known := s.health.damages[sha256]
	return known
}

// healed forgets a damage, after good bytes took the place of the bad ones.
func (s *Store) healed(sha256 [32]byte) {
	s.health.mu.Lock()
	defer s.health.mu.Unlock()
	delete(s.health.damages, sha256)
}

// readError classifies a failed read of the file sha256: bytes that are gone are
// a damage, never a missing file; what else failed is our own fault.
func (s *Store) readError(sha256 [32]byte, err error) error {
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, errLost) || errors.Is(err, errRow) {
		return s.damaged(sha256, err)
	}
	return err
}

// errLost tells of stored bytes that are not there or not the right ones.
var errLost = errors.New("blob: stored bytes are lost or changed")

// noteIndexDamage remembers a damaged block of the index, under no SHA-256.
func (s *Store) noteIndexDamage(what string) { _ = s.damaged([32]byte{}, errors.New("index: "+what)) }
