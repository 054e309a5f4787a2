package archive

import (
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"

	"github.com/cockroachdb/pebble/v2"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/internal/pebblex"
	"github.com/verae/archive/internal/tlogx"
	"github.com/verae/archive/wire"
)

// Bounds of what others claim to have heard: nobody can use up the numbers of an
// archive, or of its generations, by claiming high ones.
const (
	maxClaimedSeq        = 1 << 53
	maxClaimedGeneration = 1 << 20
)

// RestoreConfig says how a copy becomes an archive again.
type RestoreConfig struct {
	Config
	// Remembered is what other archives, and aggregators, have heard this one say
	// of itself. Checkpoints are believed if the archive has signed them; sequence
	// numbers are believed, since a wrong one only leaves numbers out.
	Remembered []wire.Remembered
	// Seq is a sequence number that is known to have been given out; 0 if none is.
	Seq uint64
}

// Restored tells what Restore has made.
type Restored struct {
	Generation int
	Kept       uint64 // last sequence number of the copy
	Remembered uint64 // last sequence number that was ever heard of, as far as is known
	FirstSeq   uint64 // of the new generation
	Records    uint64
}

// Restore makes the copy of an archive in c.Dir an archive that may serve: it
// opens a new generation of the log, with a new key. Only an operator who
// restores a backup may do that, for the archive goes back: what it acknowledged
// after the copy was made it does not have, and must never acknowledge under the
// same numbers.
//
// The first leaf of the generation commits to the newest checkpoint that anybody
// remembers, and to the numbers that may have been given out; the first record
// comes behind them. The store is written anew, so that every key in it is set
// once, and is opened and checked before Restore returns. Whoever calls it gives
// the directory its name only then.
//
// A copy that does not contain a checkpoint which it is long enough for is of
// another history: fault.Corrupt, code LOG_FORKED.
func Restore(ctx context.Context, c RestoreConfig) (out Restored, err error) {
	if c.Config, err = c.Config.withDefaults(); err != nil {
		return Restored{}, err
	}
	g, err := c.rewrite(ctx)
	if err != nil {
		return Restored{}, err
	}
	out = Restored{Generation: g.Generation, Kept: g.PrevSize, Remembered: g.RememberedSeq, FirstSeq: g.FirstSeq}
	if err := pebblex.WriteFile(c.FS, c.gracePath(), []byte(graceText), markPerm); err != nil {
		return Restored{}, fmt.Errorf("archive: restore: %w", err)
	}
	c.Lease = -1 // it is not served yet
	n, err := Open(c.Config)
	if err != nil {
		return Restored{}, err
	}
	defer func() { err = errors.Join(err, n.Close()) }()
	select {
	case <-n.Loaded():
	case <-ctx.Done():
		return Restored{}, ctx.Err()
	}
	report, err := n.Check(ctx)
	out.Records = report.Records - report.Lost
	return out, err
}

// rewrite writes the store anew, with one generation more.
func (c RestoreConfig) rewrite(ctx context.Context) (g generation, err error) {
	old := c.Config
	old.Dir = c.FS.PathJoin(c.Dir, "copied")
	if err := pebblex.Mkdir(c.FS, old.Dir); err != nil {
		return g, err
	}
	for _, move := range [][2]string{{c.storeDir(), old.storeDir()}, {c.markPath(), old.markPath()}} {
		if err := c.FS.Rename(move[0], move[1]); err != nil {
			return g, fmt.Errorf("archive: restore: %w", err)
		}
	}
	from, m, err := openCopy(old)
	if err != nil {
		return g, err
	}
	defer func() { err = errors.Join(err, from.db.Close(), c.FS.RemoveAll(old.Dir)) }()
	if g, err = c.successor(from, m); err != nil {
		return g, err
	}
	key, err := writeKey(c.Config)
	if err != nil {
		return g, err
	}
	g.PublicKey, _ = key.Public().(ed25519.PublicKey)
	db, err := pebblex.Open(c.storeOptions(true, c.OnFatal, nil))
	if err != nil {
		return g, err
	}
	return g, errors.Join(c.continued(ctx, from, db, key, g), db.Close())
}

// continued fills a new store: the rows of the copy, the genesis of the new
// generation, and the identity last.
func (c RestoreConfig) continued(ctx context.Context, from *Node, db *pebble.DB, key ed25519.PrivateKey, g generation) error {
	if err := copyRows(ctx, from, db); err != nil {
		return err
	}
	leaf, err := g.genesis()
	if err != nil {
		return err
	}
	edge, begin := new(tlogx.Edge), commitRow{first: g.base(), last: g.base()}
	edge.Append(tlog.RecordHash(leaf), func(_ int64, h tlog.Hash) { begin.hashes = append(begin.hashes, h) })
	batch := db.NewBatch()
	err = appendAll(db, batch, batch.Set(commitKey(begin.last), begin.encode(), nil))
	if err != nil {
		return err
	}
	id, err := identity{generation: g.Generation, key: key, lineage: append(slices.Clone(from.identity.lineage), g)}.withSigner()
	if err != nil {
		return err
	}
	bones := skeleton{fs: c.FS, path: c.skeletonPath(), lineage: id.lineage, rebuild: true}
	if err := errors.Join(bones.write(nil, from.rebuildSkeleton), bones.close()); err != nil {
		return fmt.Errorf("archive: restore: the skeleton: %w", err)
	}
	if err := writeLineageFile(c.Config, id.lineage); err != nil {
		return err
	}
	if _, err := writeMarkFile(c.Config, id, treeHead{seq: g.base(), size: 1, root: edge.Root()}); err != nil {
		return err
	}
	return writeIdentity(db, c.Config, g)
}

// maxCopyBytes is about the size of a batch that copies rows.
const maxCopyBytes = 4 << 20

// copyRows copies everything but the identity.
func copyRows(ctx context.Context, from *Node, db *pebble.DB) (err error) {
	it, err := from.db.NewIter(nil)
	if err != nil {
		return fmt.Errorf("archive: restore: %w", err)
	}
	defer func() { err = errors.Join(err, it.Close()) }()
	batch := db.NewBatch()
	for valid := it.First(); valid; valid = it.Next() {
		if it.Key()[0] == prefixMeta {
			continue
		}
		err := batch.Set(it.Key(), it.Value(), nil)
		if err == nil && batch.Len() < maxCopyBytes {
			continue
		}
		if err := appendAll(db, batch, errors.Join(err, ctx.Err())); err != nil {
			return err
		}
		batch = db.NewBatch()
	}
	return appendAll(db, batch, from.readError(it.Error()))
}

// appendAll commits a batch that adds keys and does nothing else, unless there
// was an error, and closes it.
func appendAll(db *pebble.DB, batch *pebble.Batch, err error) error {
	if err == nil {
		err = pebblex.AppendOnly(db, batch)
	}
	if err == nil && !batch.Empty() {
		err = db.Apply(batch, pebble.Sync)
	}
	if err := errors.Join(err, batch.Close()); err != nil {
		return fmt.Errorf("archive: restore: %w", err)
	}
	return nil
}

// successor returns the row of the generation that continues a copy, but for
// its key.
func (c RestoreConfig) successor(from *Node, m mark) (generation, error) {
	log, head := from.identity.lineage, from.tail.head()
	g := generation{
		Version: generationVersion, ArchiveID: string(c.ID), Generation: log.current().Generation, CreatedAt: c.Now().UnixNano(),
		PrevSize: head.seq, PrevRoot: head.root[:], Remembered: m.note, RememberedSeq: max(m.seq, c.Seq),
	}
	best := claim{log.current().Generation, m.size}
	for _, r := range c.Remembered {
		if r.ArchiveID != c.ID || r.Generation < firstGeneration || r.Generation > maxClaimedGeneration || r.Seq > maxClaimedSeq {
			c.Log.Warn("what is remembered can not be of this archive", "by", string(r.By), "generation", r.Generation, "seq", r.Seq)
			continue
		}
		g.Generation = max(g.Generation, r.Generation)
		g.RememberedSeq = max(g.RememberedSeq, r.Seq)
		seen, end, err := c.checkpoint(from, r)
		if err != nil {
			return g, err
		}
		g.RememberedSeq = max(g.RememberedSeq, end)
		if seen.after(best) {
			best, g.Remembered = seen, r.Checkpoint
		}
	}
	g.Generation++
	g.FirstSeq = max(g.PrevSize, g.RememberedSeq) + 2
	return g, nil
}

// claim is how far a checkpoint goes.
type claim struct {
	generation int
	size       int64
}

func (a claim) after(b claim) bool {
	return a.generation > b.generation || a.generation == b.generation && a.size > b.size
}

// checkpoint verifies what is remembered and returns how far it goes, and the
// number of its last record if that is known. The zero claim is that of a
// checkpoint that this archive has not signed.
func (c RestoreConfig) checkpoint(from *Node, r wire.Remembered) (seen claim, end uint64, err error) {
	if r.Checkpoint == "" || len(r.Checkpoint) > maxCheckpoint {
		return claim{}, 0, nil
	}
	key, err := base64.StdEncoding.DecodeString(r.Key)
	if err != nil || len(key) != ed25519.PublicKeySize {
		return claim{}, 0, nil
	}
	known, current := generation{}, from.identity.lineage.current()
	for _, g := range from.identity.lineage {
		if g.Generation == r.Generation {
			known, key = g, g.PublicKey
		}
	}
	verifier, err := tlogx.NewVerifier(fmt.Sprintf("%s/g%d", c.ID, r.Generation), key)
	if err != nil {
		return claim{}, 0, fmt.Errorf("archive: restore: %w", err)
	}
	p, err := tlogx.OpenCheckpoint([]byte(r.Checkpoint), verifier)
	if err != nil {
		c.Log.Warn("what is remembered was not signed by this archive", "by", string(r.By), "generation", r.Generation, "err", err)
		return claim{}, 0, nil
	}
	if known.Generation != 0 && p.Size > 0 {
		end = known.base() + uint64(p.Size) - 1
	}
	if known.Generation == current.Generation && p.Size <= from.tail.edge.Size() {
		root, err := tlog.TreeHash(p.Size, from.hashes())
		if err != nil {
			return claim{}, 0, fmt.Errorf("archive: restore: %w", err)
		}
		if root != p.Root {
			return claim{}, 0, fault.New(fault.Corrupt, "LOG_FORKED",
				"archive: restore: the first %d leaves of the copy are not those that this archive has signed, as %s remembers: it is a copy of another history; restore another", p.Size, r.By)
		}
	}
	return claim{r.Generation, p.Size}, end, nil
}
