package ledger

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/internal/pebblex"
	"github.com/verae/archive/internal/tlogx"
)

// maxGuardFile bounds what is read of a guard file, in bytes.
const maxGuardFile = 4 << 10

// guard writes the newest checkpoint to a file in the background, at once when
// it has been quiet for the time every, else when that time has passed.
type guard struct {
	every time.Duration
	write func(signed []byte) error
	fail  func(error) // told of each failed write; the next one is tried after every

	latest  atomic.Pointer[[]byte] // to be written; nil when the file is up to date
	wake    chan struct{}          // capacity 1: something may be to write
	closing chan struct{}
	done    chan struct{}
}

func newGuard(every time.Duration, write func([]byte) error, fail func(error)) *guard {
	g := &guard{
		every: every, write: write, fail: fail,
		wake: make(chan struct{}, 1), closing: make(chan struct{}), done: make(chan struct{}),
	}
	go g.run()
	return g
}

// offer makes signed the checkpoint to keep. It never blocks. Calls come in the
// order of the log.
func (g *guard) offer(signed []byte) {
	g.latest.Store(&signed)
	select {
	case g.wake <- struct{}{}:
	default:
	}
}

// close writes what is still to be written and ends the goroutine. Call it once.
func (g *guard) close() error {
	close(g.closing)
	<-g.done
	return g.flush()
}

func (g *guard) run() {
	defer close(g.done)
	for {
		select {
		case <-g.wake:
		case <-g.closing:
			return
		}
		if err := g.flush(); err != nil {
			g.fail(err)
		}
		select {
		case <-time.After(g.every):
		case <-g.closing:
			return
		}
	}
}

// flush writes the newest checkpoint if it is not written yet. After a failure
// it is still to be written.
func (g *guard) flush() error {
	signed := g.latest.Swap(nil)
	if signed == nil {
		return nil
	}
	if err := g.write(*signed); err != nil {
		if g.latest.CompareAndSwap(nil, signed) {
			select {
			case g.wake <- struct{}{}:
			default:
			}
		}
		return fmt.Errorf("ledger: fork guard: %w", err)
	}
	return nil
}

// checkGuard refuses a store that is behind the guard or does not contain what
// it remembers. It reports whether the file is to be written.
func checkGuard(cfg Config, key signingKey, size int64, hashes tlog.HashReader) (write bool, err error) {
	seen, found, err := readGuard(cfg, key)
	if err != nil {
		return false, err
	}
	if !found {
		if size == 0 || cfg.AdoptStore {
			return true, nil
		}
		return false, fault.New(fault.Corrupt, "LEDGER_GUARD", "ledger: the fork guard %s is missing, so nobody can tell whether the store, %d leaves, was rolled back; put the file back, or open once with AdoptStore if the store is certainly the newest", cfg.Guard, size)
	}
	return compareGuard(cfg, seen, size, hashes)
}

// readGuard returns the checkpoint that was signed last, if it was kept.
func readGuard(cfg Config, key signingKey) (seen tlogx.Checkpoint, found bool, err error) {
	signed, err := pebblex.ReadFile(cfg.FS, cfg.Guard, maxGuardFile)
	if errors.Is(err, os.ErrNotExist) {
		return seen, false, nil
	}
	if err != nil {
		return seen, false, fmt.Errorf("ledger: %w", err)
	}
	if seen, err = tlogx.OpenCheckpoint(signed, key.verifier); err != nil {
		return seen, false, fault.New(fault.Corrupt, "LEDGER_GUARD", "ledger: the fork guard %s does not verify under %s; put the right file back: %w", cfg.Guard, key.vkey, err)
	}
	return seen, true, nil
}

// compareGuard refuses a log of the given size that does not continue what was
// signed; newer says that it goes beyond it.
func compareGuard(cfg Config, seen tlogx.Checkpoint, size int64, hashes tlog.HashReader) (newer bool, err error) {
	if seen.Size > size {
		return false, fault.New(fault.Corrupt, "LEDGER_ROLLED_BACK", "ledger: the store has %d leaves, but a checkpoint over %d was signed (%s); it was rolled back: restore the newer store, sealing on would fork the log", size, seen.Size, cfg.Guard)
	}
	root, err := tlog.TreeHash(seen.Size, hashes)
	if err != nil {
		return false, fault.Wrap(kindOf(err), fmt.Errorf("ledger: root at size %d: %w", seen.Size, err))
	}
	if root != seen.Root {
		return false, fault.New(fault.Corrupt, "LEDGER_FORKED", "ledger: the store has %d leaves, but not those under the checkpoint over %d that was signed (%s): it belongs to another history; restore the right store", size, seen.Size, cfg.Guard)
	}
	return seen.Size < size, nil
}
