package ledger

import (
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
	"golang.org/x/mod/sumdb/tlog"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/internal/pebblex"
	"github.com/verae/archive/internal/tlogx"
	"github.com/verae/archive/wire"
)

// Defaults of CosigningConfig.
const (
	DefaultCosignEvery   = time.Second
	DefaultCosignTimeout = 2 * time.Second
)

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
	// Log receives what an operator must know; nil discards.
	Log *slog.Logger
}

// Cosigning shows the newest checkpoint of a ledger to its witnesses and keeps
// what they sign. A seal does not wait for it. A witness that knows more of this
// log than its store, or something else, ends all sealing: the store was rolled
// back or forked, and every further seal would make it worse.
type Cosigning struct {
	cfg      CosigningConfig
	sizes    map[wire.ArchiveID]int64  // what each witness has seen, as far as known; Run's alone
	shown    []byte                    // the checkpoint that is being cosigned; Run's alone
	lines    map[wire.ArchiveID]string // its cosignatures so far; Run's alone
	cosigned atomic.Pointer[[]byte]

	count, size prometheus.Gauge
	failures    prometheus.Counter
}

// NewCosigning returns a cosigning that Run carries out.
func NewCosigning(c CosigningConfig) *Cosigning {
	c.Every, c.Timeout = cmp.Or(c.Every, DefaultCosignEvery), cmp.Or(c.Timeout, DefaultCosignTimeout)
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Namespace: "verae", Subsystem: "ledger", Name: name, Help: help})
	}
	return &Cosigning{
		cfg: c, sizes: map[wire.ArchiveID]int64{}, lines: map[wire.ArchiveID]string{},
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

// round shows the newest checkpoint to every witness that has not cosigned it.
func (c *Cosigning) round(ctx context.Context) error {
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
	present := slices.DeleteFunc(c.cfg.Witnesses.Present(), func(w Witness) bool { return c.lines[w.ID] != "" })
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
				c.cfg.Log.Debug("a witness did not cosign", "archive", w.ID, "err", err)
			}
		})
	}
	wg.Wait()
	if news {
		errs = append(errs, c.keep(next))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return c.endProbation()
}

// ask shows next to a witness that is believed to have seen the log at size
// known, and returns its verified cosignature line and what it has seen.
func (c *Cosigning) ask(ctx context.Context, w Witness, known int64, next tlogx.Checkpoint) (line string, seen int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	verifier, err := tlogx.NewCosignatureVerifier(string(w.ID), w.Key)
	if err != nil {
		return "", known, err
	}
	for range 2 { // the first answer may say what size it has seen
		request, err := c.request(ctx, min(known, next.Size), next)
		if err != nil {
			return "", known, err
		}
		reply, err := c.cfg.Witnesses.Show(ctx, w.ID, request)
		if err != nil {
			return "", known, notOurs(err)
		}
		if reply.Cosignature != "" {
			if _, err := tlogx.OpenCosignature(append(slices.Clone(c.shown), reply.Cosignature...), verifier); err != nil {
				return "", known, fault.New(fault.Transient, "BAD_COSIGNATURE", "ledger: the cosignature of %s does not verify: %w", w.ID, err)
			}
			return reply.Cosignature, next.Size, nil
		}
		if known, err = c.compare(w.ID, reply, next); err != nil {
			return "", known, err
		}
	}
	return "", known, fault.New(fault.Transient, "NOT_COSIGNED", "ledger: %s changed its mind about the size it has seen", w.ID)
}

// notOurs takes from a witness's refusal the power to end the sealing: only a
// checkpoint that this ledger has signed can do that.
func notOurs(err error) error {
	if fault.Is(err, fault.Corrupt) {
		return fault.New(fault.Transient, "NOT_COSIGNED", "ledger: %w", errors.New(err.Error()))
	}
	return err
}

func (c *Cosigning) request(ctx context.Context, known int64, next tlogx.Checkpoint) (wire.WitnessRequest, error) {
	hashes, err := c.cfg.Ledger.Consistency(ctx, known, next.Size)
	if err != nil {
		return wire.WitnessRequest{}, err
	}
	r := wire.WitnessRequest{Key: c.cfg.Ledger.VerifierKey(), Old: known, Proof: make([]wire.Digest, len(hashes)), Checkpoint: string(c.shown)}
	for i, h := range hashes {
		r.Proof[i] = wire.Digest(h)
	}
	return r, nil
}

// compare holds what a witness has seen against the store. Its checkpoint counts
// only if this ledger has signed it.
func (c *Cosigning) compare(id wire.ArchiveID, reply wire.WitnessReply, next tlogx.Checkpoint) (seen int64, err error) {
	if reply.Checkpoint == "" && reply.Size == 0 {
		return 0, nil // it has seen nothing
	}
	l := c.cfg.Ledger
	got, err := tlogx.OpenCheckpoint([]byte(reply.Checkpoint), l.key.verifier)
	if err != nil {
		return 0, fault.New(fault.Transient, "NOT_COSIGNED", "ledger: %s shows a checkpoint that this ledger has not signed: %w", id, err)
	}
	if size := l.head.Load().size; got.Size > size {
		return got.Size, fault.New(fault.Corrupt, "LEDGER_ROLLED_BACK", "ledger: the store has %d leaves, but archive %s has seen a checkpoint over %d that was signed; the store was rolled back: restore the newer one, sealing on would fork the log", size, id, got.Size)
	}
	root, err := c.root(got.Size)
	if err != nil {
		return got.Size, err
	}
	if root != got.Root {
		return got.Size, fault.New(fault.Corrupt, "LEDGER_FORKED", "ledger: archive %s has seen a signed checkpoint over %d leaves that the store does not contain: it belongs to another history; restore the right store", id, got.Size)
	}
	if got.Size > next.Size {
		return got.Size, fault.New(fault.Transient, "NOT_COSIGNED", "ledger: %s has seen a newer checkpoint meanwhile", id)
	}
	return got.Size, nil
}

func (c *Cosigning) root(size int64) (tlog.Hash, error) {
	l := c.cfg.Ledger
	if err := l.enter(); err != nil {
		return tlog.Hash{}, err
	}
	defer l.mu.RUnlock()
	root, err := tlog.TreeHash(size, hashReader(l.db))
	if err != nil {
		return root, fault.Wrap(kindOf(err), fmt.Errorf("ledger: root at size %d: %w", size, err))
	}
	return root, nil
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
