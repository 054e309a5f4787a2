package ledger

import (
	"bytes"
	"cmp"
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/internal/pebblex"
	"github.com/verae/archive/internal/tlogx"
	"github.com/verae/archive/wire"
)

// Defaults of CosigningConfig.
const (
	// DefaultCosignEvery bounds the seals that are acknowledged and that no witness
	// knows of: those of about this time.
	DefaultCosignEvery   = 100 * time.Millisecond
	DefaultCosignTimeout = 2 * time.Second
	// DefaultStartWait is four times the period of hellos.
	DefaultStartWait = 2 * time.Second
)

// cosignAgain is how long a witness that did not cosign is left alone.
const cosignAgain = time.Second

// Witness is an archive that cosigns checkpoints, with its public key.
type Witness struct {
	ID  wire.ArchiveID
	Key ed25519.PublicKey
}

// Witnesses are the archives that can be asked.
type Witnesses interface {
	// Present returns those that can be asked now.
	Present() []Witness
	// Show shows a checkpoint to one of them.
	Show(ctx context.Context, id wire.ArchiveID, r wire.WitnessRequest) (wire.WitnessReply, error)
}

// CosigningConfig says who cosigns a ledger.
type CosigningConfig struct {
	Ledger    *Ledger
	Witnesses Witnesses
	// Path is the file of the newest cosigned checkpoint.
	Path string
	// FS is the file system; nil means the disk.
	FS vfs.FS
	// Every is how often witnesses are asked while the log grows, Timeout how long
	// one may take; 0 means the defaults.
	Every, Timeout time.Duration
	// Enrolled is how many witnesses there should be. If there are any, the ledger
	// seals nothing new from NewCosigning on until all of them have cosigned what
	// it holds, or those who were heard within StartWait (0 means the default) of
	// the begin of Run were asked. That takes at most StartWait and two Timeouts.
	Enrolled  int
	StartWait time.Duration
	// Log receives what an operator must know; nil discards.
	Log *slog.Logger
}

// Cosigning shows the newest checkpoint of a ledger to its witnesses and keeps
// what they sign. A seal does not wait for it. A witness that knows more of this
// log than its store, or something else, ends all sealing: the store was rolled
// back or forked, and every further seal would make it worse.
type Cosigning struct {
	cfg      CosigningConfig
	sizes    map[wire.ArchiveID]int64     // what each witness has seen, as far as known; Run's alone
	shown    []byte                       // the checkpoint that is being cosigned; Run's alone
	lines    map[wire.ArchiveID]string    // its cosignatures so far; Run's alone
	failed   map[wire.ArchiveID]time.Time // when one did not cosign; Run's alone
	started  time.Time                    // begin of the first round; Run's alone
	cosigned atomic.Pointer[[]byte]

	count, size prometheus.Gauge
	failures    prometheus.Counter
}

// NewCosigning returns a cosigning that Run carries out. It is to be called before
// anybody seals: see CosigningConfig.Enrolled.
func NewCosigning(c CosigningConfig) *Cosigning {
	c.Every, c.Timeout = cmp.Or(c.Every, DefaultCosignEvery), cmp.Or(c.Timeout, DefaultCosignTimeout)
	c.StartWait = cmp.Or(c.StartWait, DefaultStartWait)
	if c.Enrolled > 0 {
		c.Ledger.hold()
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Namespace: "verae", Subsystem: "ledger", Name: name, Help: help})
	}
	return &Cosigning{
		cfg: c, sizes: map[wire.ArchiveID]int64{}, lines: map[wire.ArchiveID]string{}, failed: map[wire.ArchiveID]time.Time{},
		count: gauge("cosignatures", "Cosignatures on the newest cosigned checkpoint."),
		size:  gauge("cosigned_leaves", "Leaves under the newest cosigned checkpoint."),
		failures: prometheus.NewCounter(prometheus.CounterOpts{
			Namespace: "verae", Subsystem: "ledger", Name: "cosign_failures_total", Help: "Witnesses that were asked and did not cosign.",
		}),
	}
}

// Metrics returns the collectors of c.
func (c *Cosigning) Metrics() []prometheus.Collector {
	return []prometheus.Collector{c.count, c.size, c.failures}
}

// Cosigned returns the newest checkpoint with the cosignatures there are, a
// signed note, or nil before the first. The caller does not change it.
func (c *Cosigning) Cosigned() []byte {
	if p := c.cosigned.Load(); p != nil {
		return *p
	}
	return nil
}

// Run asks until ctx ends or the ledger is found to have lost something, which
// is no error of Run: the ledger says so to whoever wants to seal.
func (c *Cosigning) Run(ctx context.Context) error {
	tick := time.NewTicker(c.cfg.Every)
	defer tick.Stop()
	for {
		if err := c.round(ctx); err != nil && ctx.Err() == nil {
			if fault.Is(err, fault.Corrupt) {
				c.cfg.Ledger.stop(err)
				return nil
			}
			c.cfg.Log.Warn("the cosigned checkpoint could not be kept", "err", err)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// Settle returns when a witness has cosigned the newest checkpoint, when there is
// none to ask, or when ctx ends. Before a ledger is closed it is called so that
// no seal is left of which nobody else knows. Run must be running.
func (c *Cosigning) Settle(ctx context.Context) {
	for len(c.cfg.Witnesses.Present()) > 0 && !bytes.HasPrefix(c.Cosigned(), c.cfg.Ledger.Latest()) {
		select {
		case <-time.After(c.cfg.Every / 4):
		case <-ctx.Done():
			return
		}
	}
}

// round shows the newest checkpoint to every witness that has not cosigned it.
func (c *Cosigning) round(ctx context.Context) error {
	begun := time.Now()
	if c.started.IsZero() {
		c.started = begun
	}
	if signed := c.cfg.Ledger.Latest(); string(signed) != string(c.shown) {
		c.shown = signed
		clear(c.lines)
	}
	next, err := tlogx.OpenCheckpoint(c.shown, c.cfg.Ledger.key.verifier)
	if err != nil {
		return err
	}
	var (
		wg   sync.WaitGroup
		mu   sync.Mutex // guards errs, and what the goroutines note in c
		errs []error
		news bool
	)
	present := slices.DeleteFunc(c.cfg.Witnesses.Present(), func(w Witness) bool {
		return c.lines[w.ID] != "" || begun.Sub(c.failed[w.ID]) < cosignAgain
	})
	for _, w := range present {
		mu.Lock() // those asked before may have answered
		known := c.sizes[w.ID]
		mu.Unlock()
		wg.Go(func() {
			line, seen, err := c.ask(ctx, w, known, next)
			mu.Lock()
			defer mu.Unlock()
			c.sizes[w.ID] = seen
			switch {
			case err == nil:
				c.lines[w.ID], news = line, true
			case fault.Is(err, fault.Corrupt):
				errs = append(errs, err)
			case ctx.Err() == nil:
				c.failures.Inc()
				c.failed[w.ID] = time.Now()
				c.cfg.Log.Debug("a witness did not cosign", "archive", w.ID, "err", err)
			}
		})
	}
	wg.Wait()
	var unkept error
	if news {
		unkept = c.keep(next)
	}
	if err := errors.Join(errs...); err != nil || ctx.Err() != nil {
		return errors.Join(err, unkept)
	}
	return errors.Join(unkept, c.endProbation(begun))
}

// keep writes the cosigned checkpoint to its file and shows it.
func (c *Cosigning) keep(next tlogx.Checkpoint) error {
	signed := slices.Clone(c.shown)
	ids := make([]wire.ArchiveID, 0, len(c.lines))
	for id := range c.lines {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	for _, id := range ids {
		signed = append(signed, c.lines[id]...)
	}
	if err := pebblex.WriteFile(c.cfg.FS, c.cfg.Path, signed, 0o644); err != nil {
		return fmt.Errorf("ledger: cosigned checkpoint: %w", err)
	}
	c.cosigned.Store(&signed)
	c.count.Set(float64(len(ids)))
	c.size.Set(float64(next.Size))
	return nil
}
