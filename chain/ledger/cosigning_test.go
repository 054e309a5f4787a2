package ledger

import (
	"context"
	"crypto/ed25519"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/verae/archive/chain"
	"github.com/verae/archive/chain/chaintest"
	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/internal/pebblex"
	"github.com/verae/archive/internal/tlogx"
	"github.com/verae/archive/wire"
)

// testWitnesses are witnesses that keep the rules of c2sp.org/tlog-witness.
type testWitnesses struct {
	t    *testing.T
	mu   sync.Mutex
	all  map[wire.ArchiveID]*testWitness
	away []wire.ArchiveID
}

type testWitness struct {
	cosigner *tlogx.Cosigner
	key      ed25519.PublicKey
	seen     tlogx.Checkpoint
	signed   string
	asked    int
	lie      func(wire.WitnessReply) (wire.WitnessReply, error)
}

func newWitnesses(t *testing.T, ids ...wire.ArchiveID) *testWitnesses {
	w := &testWitnesses{t: t, all: map[wire.ArchiveID]*testWitness{}}
	for _, id := range ids {
		key := ed25519.NewKeyFromSeed([]byte(strings.Repeat(string(id[len(id)-1]), ed25519.SeedSize)))
		cosigner, err := tlogx.NewCosigner(string(id), key)
		if err != nil {
			t.Fatal(err)
		}
		w.all[id] = &testWitness{cosigner: cosigner, key: key.Public().(ed25519.PublicKey)}
	}
	return w
}

func (w *testWitnesses) Present() (list []Witness) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for id, one := range w.all {
		if !slices.Contains(w.away, id) {
			list = append(list, Witness{id, one.key})
		}
	}
	return list
}

func (w *testWitnesses) Show(_ context.Context, id wire.ArchiveID, r wire.WitnessRequest) (wire.WitnessReply, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	one := w.all[id]
	one.asked++
	reply, err := one.add(id, r)
	if err != nil {
		w.t.Errorf("%s was shown what no witness takes: %v", id, err)
	}
	if one.lie != nil {
		return one.lie(reply)
	}
	return reply, err
}

func (one *testWitness) add(id wire.ArchiveID, r wire.WitnessRequest) (wire.WitnessReply, error) {
	v, err := note.NewVerifier(r.Key)
	if err != nil {
		return wire.WitnessReply{}, err
	}
	next, err := tlogx.OpenCheckpoint([]byte(r.Checkpoint), v)
	if err != nil {
		return wire.WitnessReply{}, err
	}
	if r.Old != one.seen.Size || next.Size < one.seen.Size {
		return wire.WitnessReply{ArchiveID: id, Size: one.seen.Size, Checkpoint: one.signed}, nil
	}
	if one.seen.Size > 0 && next.Size > one.seen.Size {
		proof := make(tlog.TreeProof, len(r.Proof))
		for i, h := range r.Proof {
			proof[i] = tlog.Hash(h)
		}
		if err := tlog.CheckTree(proof, next.Size, next.Root, one.seen.Size, one.seen.Root); err != nil {
			return wire.WitnessReply{}, err
		}
	}
	one.seen, one.signed = next, r.Checkpoint
	return wire.WitnessReply{ArchiveID: id, Size: next.Size, Cosignature: one.cosigner.Cosign(next.Text(), time.Unix(1767323045, 0))}, nil
}

func newCosigning(l *Ledger, w Witnesses, fs vfs.FS) *Cosigning {
	return NewCosigning(CosigningConfig{Ledger: l, Witnesses: w, Path: "cosigned", FS: fs})
}

// cosignedBy fails the test unless the cosigned checkpoint is of the newest
// state, has exactly these cosignatures, and is on disk.
func cosignedBy(t *testing.T, c *Cosigning, w *testWitnesses, fs vfs.FS, ids ...wire.ArchiveID) {
	t.Helper()
	signed := c.Cosigned()
	got, err := tlogx.OpenCheckpoint(signed, c.cfg.Ledger.key.verifier)
	if err != nil || got.Size != c.cfg.Ledger.head.Load().size {
		t.Fatalf("cosigned: %+v, %v", got, err)
	}
	for id, one := range w.all {
		_, err := tlogx.OpenCosignature(signed, one.cosigner.Verifier())
		if (err == nil) != slices.Contains(ids, id) {
			t.Errorf("%s: %v", id, err)
		}
	}
	disk, err := pebblex.ReadFile(fs, "cosigned", 1<<16)
	if err != nil || string(disk) != string(signed) {
		t.Errorf("the file: %q, %v", disk, err)
	}
}

func TestWitnessesCosignEveryState(t *testing.T) {
	l, _ := newLedger(t)
	fs := vfs.NewMem()
	w := newWitnesses(t, "archive-a", "archive-b", "archive-c")
	c := newCosigning(l, w, fs)
	seal := held{}
	for n := range 20 {
		w.away = nil
		present := []wire.ArchiveID{"archive-a", "archive-b", "archive-c"}
		if n%3 == 1 {
			w.away, present = []wire.ArchiveID{"archive-b"}, []wire.ArchiveID{"archive-a", "archive-c"}
		}
		if err := c.round(t.Context()); err != nil {
			t.Fatal(err)
		}
		cosignedBy(t, c, w, fs, present...)
		seal.register(t, l, n)
	}
	// Another process begins without knowing what the witnesses have seen.
	w.away = nil
	c = newCosigning(l, w, fs)
	if err := c.round(t.Context()); err != nil {
		t.Fatal(err)
	}
	cosignedBy(t, c, w, fs, "archive-a", "archive-b", "archive-c")
	asked := w.all["archive-a"].asked
	if err := c.round(t.Context()); err != nil || w.all["archive-a"].asked != asked {
		t.Errorf("a log at rest was shown again: %v", err)
	}
}

// The witnesses have seen more than an older copy of the store has: it seals no
// more, at once.
func TestLedgerThatWitnessesKnowMoreOfSealsNoMore(t *testing.T) {
	disk := vfs.NewCrashableMem()
	cfg := testConfig(disk)
	initLedger(t, cfg)
	l := openLedger(t, cfg)
	seal := held{}
	seal.register(t, l, 1, 2, 3)
	older := disk.CrashClone(vfs.CrashCloneCfg{})
	seal.register(t, l, 4)
	w := newWitnesses(t, "archive-a")
	if err := newCosigning(l, w, vfs.NewMem()).round(t.Context()); err != nil {
		t.Fatal(err)
	}

	cfg.FS, cfg.AdoptStore = older, true
	rolled := openLedger(t, cfg)
	for _, more := range []int{0, 2} { // shorter than what was seen, and grown past it
		if more > 0 {
			seal = held{}
			seal.register(t, rolled, 11, 12)
		}
		c := newCosigning(rolled, w, vfs.NewMem())
		err := c.round(t.Context())
		if !fault.Is(err, fault.Corrupt) || len(c.Cosigned()) > 0 {
			t.Fatalf("%d leaves more: %v", more, err)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		if err := newCosigning(rolled, w, vfs.NewMem()).Run(t.Context()); err != nil {
			t.Error(err)
		}
	})
	if _, err := rolled.Register(t.Context(), []chain.Entry{chaintest.Entry(5)}); fault.CodeOf(err) != "LEDGER_STOPPED" {
		t.Errorf("sealing after that: %v", err)
	}
}

// What a witness says is believed only as far as this ledger has signed it.
func TestLyingWitnessStopsNothing(t *testing.T) {
	l, _ := newLedger(t)
	stranger, _ := newLedger(t)
	seal := held{}
	seal.register(t, l, 1, 2)
	seal.register(t, stranger, 1, 2, 3, 4)
	for name, lie := range map[string]func(wire.WitnessReply) (wire.WitnessReply, error){
		"no signature": func(r wire.WitnessReply) (wire.WitnessReply, error) {
			r.Cosignature = "— archive-a AAAA\n"
			return r, nil
		},
		"a cosignature of another": func(r wire.WitnessReply) (wire.WitnessReply, error) {
			other := newWitnesses(t, "archive-b").all["archive-b"]
			r.Cosignature = other.cosigner.Cosign("x\n0\n\n", time.Now())
			return r, nil
		},
		"a larger size without a checkpoint": func(wire.WitnessReply) (wire.WitnessReply, error) {
			return wire.WitnessReply{Size: 99}, nil
		},
		"the checkpoint of another log": func(wire.WitnessReply) (wire.WitnessReply, error) {
			return wire.WitnessReply{Size: 4, Checkpoint: string(stranger.Latest())}, nil
		},
		"an error that says the ledger has forked": func(wire.WitnessReply) (wire.WitnessReply, error) {
			return wire.WitnessReply{}, fault.New(fault.Corrupt, "LEDGER_FORKED", "it has")
		},
		"it has seen nothing, again and again": func(wire.WitnessReply) (wire.WitnessReply, error) { return wire.WitnessReply{}, nil },
		"no answer": func(wire.WitnessReply) (wire.WitnessReply, error) {
			return wire.WitnessReply{}, errors.New("no answer")
		},
	} {
		w := newWitnesses(t, "archive-a")
		w.all["archive-a"].lie = lie
		c := newCosigning(l, w, vfs.NewMem())
		if err := c.round(t.Context()); err != nil || c.Cosigned() != nil {
			t.Errorf("%s: %v, %q", name, err, c.Cosigned())
		}
	}
	seal.register(t, l, 3)
}

// A witness that does not answer holds up neither the others nor the next round.
func TestSilentWitnessIsNotWaitedForLong(t *testing.T) {
	l, _ := newLedger(t)
	synctest.Test(t, func(t *testing.T) {
		w := newWitnesses(t, "archive-a", "archive-b")
		c := newCosigning(l, silent{w, "archive-a"}, vfs.NewMem())
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- c.Run(ctx) }()
		time.Sleep(DefaultCosignTimeout + time.Millisecond)
		synctest.Wait()
		if _, err := tlogx.OpenCosignature(c.Cosigned(), w.all["archive-b"].cosigner.Verifier()); err != nil {
			t.Error(err)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

type silent struct {
	*testWitnesses
	id wire.ArchiveID
}

func (s silent) Show(ctx context.Context, id wire.ArchiveID, r wire.WitnessRequest) (wire.WitnessReply, error) {
	if id == s.id {
		<-ctx.Done()
		return wire.WitnessReply{}, ctx.Err()
	}
	return s.testWitnesses.Show(ctx, id, r)
}
