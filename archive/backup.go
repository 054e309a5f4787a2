package archive

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"os"
	"path"
	"strconv"
	"strings"

	"github.com/cockroachdb/pebble/v2"

	"github.com/verae/archive/blob"
	"github.com/verae/archive/bloom"
	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/internal/pebblex"
)

// Backup adds a copy of the archive's records to a backup, under rel, with every
// record that was acknowledged before the call. Puts and queries go on. Files are
// to be copied later, not before: every file that a record names must be there.
//
// The key is not in it. What is restored has a new one, so that whoever has a
// backup can sign nothing in the name of the archive.
func (n *Node) Backup(ctx context.Context, b *pebblex.Backup, rel string) error {
	if err := n.enter(); err != nil {
		return err
	}
	defer n.leave()
	if why := n.health.damage(); why != "" {
		return fault.New(fault.Corrupt, "DAMAGED", "archive: a damaged archive is not copied: %s; run archived repair, then make a backup", why)
	}
	note, err := n.coveringNote(ctx)
	if err != nil {
		return err
	}
	return n.copyTo(ctx, b, rel, note)
}

// BackupWithoutKey is [Node.Backup] of an archive that no process has open, and
// that does not open because its key file is lost (code [CodeKeyLost]). It needs
// none: nothing is signed, and the copy has the mark that is there. What else Open
// would refuse is refused.
func BackupWithoutKey(ctx context.Context, c Config, b *pebblex.Backup, rel string) (err error) {
	n, m, err := openCopy(c)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, n.db.Close()) }()
	if _, err := n.checkSkeleton(m); err != nil {
		return err
	}
	return n.copyTo(ctx, b, rel, m.note)
}

// copyTo copies what a backup has, with a note for its mark.
func (n *Node) copyTo(ctx context.Context, b *pebblex.Backup, rel, note string) error {
	if err := b.AddStore(ctx, path.Join(rel, "records"), n.db, n.cfg.storeDir()); err != nil {
		return err
	}
	if err := b.AddBytes(path.Join(rel, "highwater"), []byte(note)); err != nil {
		return err
	}
	if _, err := n.cfg.FS.Stat(n.cfg.lostFilesPath()); err == nil { // no repair runs beside it
		if err := b.AddFile(ctx, path.Join(rel, "lost-files"), n.cfg.lostFilesPath()); err != nil {
			return err
		}
	}
	return n.backupWitness(ctx, b, path.Join(rel, witnessDir))
}

// coveringNote returns a checkpoint that covers all that is durable now: what is
// copied later has all of it, or is found out.
func (n *Node) coveringNote(ctx context.Context) (string, error) {
	if n.health.readOnly() != nil {
		return n.Checkpoint(), nil // nobody writes another
	}
	return n.keeper.await(ctx, n.durable.Load())
}

// witnessDir is what a witness beside the records remembers of ledgers.
const witnessDir = "witness"

func (n *Node) backupWitness(ctx context.Context, b *pebblex.Backup, rel string) error {
	dir := n.cfg.FS.PathJoin(n.cfg.Dir, witnessDir)
	names, err := n.cfg.FS.List(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("archive: backup: %w", err)
	}
	for _, name := range names {
		if strings.HasSuffix(name, ".seen") || strings.HasSuffix(name, ".fork") {
			if err := b.AddFile(ctx, path.Join(rel, name), n.cfg.FS.PathJoin(dir, name)); err != nil {
				return err
			}
		}
	}
	return nil
}

// CheckCopy opens the copy of an archive in c.Dir, which has no key, checks all
// of it, and returns the end of its log. Nobody else may have it open. Nil blobs
// leaves out the bytes of files.
func CheckCopy(ctx context.Context, c Config, blobs *blob.Store) (end *pebblex.BackupLog, err error) {
	n, m, err := openCopy(c)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, n.db.Close()) }()
	if err := n.loadCopy(ctx); err != nil {
		return nil, err
	}
	if _, err := n.CheckWith(ctx, CheckOptions{Blobs: blobs}); err != nil {
		return nil, err
	}
	head, g := n.tail.head(), n.identity.lineage.current()
	return &pebblex.BackupLog{
		Origin: g.origin(), Generation: g.Generation, Seq: head.seq, Size: head.size, Root: head.root.String(), Checkpoint: m.note,
	}, nil
}

// openCopy opens a store without its key, for reading. What it returns has no
// committer and no keeper; the caller closes its store. It refuses what Open
// would refuse.
func openCopy(c Config) (n *Node, m mark, err error) {
	if c, err = c.withDefaults(); err != nil {
		return nil, mark{}, err
	}
	h := newHealth(c.Log)
	db, err := pebblex.Open(c.storeOptions(false, c.OnFatal, h.quarantine))
	if err != nil {
		return nil, mark{}, openError(err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, db.Close())
		}
	}()
	n = &Node{cfg: c, db: db, boot: newBoot(), health: h, loaded: make(chan struct{})}
	if n.identity.lineage, err = copiedLineage(db, c); err != nil {
		return nil, mark{}, err
	}
	n.identity.generation = n.identity.lineage.current().Generation
	if n.tail, err = n.recoverTail(); err != nil {
		return nil, mark{}, err
	}
	n.durable.Store(n.tail.seq)
	n.storedAt.Store(n.tail.storedAt)
	if m, err = readMark(c, n.identity); err != nil {
		return nil, mark{}, err
	}
	if err := n.compareMark(m); err != nil {
		return nil, mark{}, err
	}
	return n, m, n.readLosses()
}

// copiedLineage reads the generations of a store whose key is not here.
func copiedLineage(db *pebble.DB, c Config) (lineage, error) {
	values := map[string][]byte{}
	for _, name := range []string{metaLayout, metaArchive, metaGeneration, metaPublicKey} {
		v, closer, err := db.Get(metaKey(name))
		if errors.Is(err, pebble.ErrNotFound) {
			return nil, fault.New(fault.Corrupt, "NO_IDENTITY", "archive: the copy in %s has no %s", c.Dir, name)
		}
		if err != nil {
			return nil, fmt.Errorf("archive: open %s: %w", c.Dir, err)
		}
		values[name] = bytes.Clone(v)
		if err := closer.Close(); err != nil {
			return nil, fmt.Errorf("archive: open %s: %w", c.Dir, err)
		}
	}
	if got := string(values[metaLayout]); got != strconv.Itoa(layoutVersion) {
		return nil, fault.New(fault.Conflict, "LAYOUT", "archive: the copy in %s has layout %q, this program reads %d; use the version that wrote it", c.Dir, got, layoutVersion)
	}
	if got := string(values[metaArchive]); got != string(c.ID) {
		return nil, fault.New(fault.Conflict, "ARCHIVE_ID", "archive: the copy in %s is of the archive %q, not %q", c.Dir, got, c.ID)
	}
	number, err := strconv.Atoi(string(values[metaGeneration]))
	if err != nil {
		return nil, fault.New(fault.Corrupt, "NO_IDENTITY", "archive: the copy in %s: generation: %w", c.Dir, err)
	}
	return readLineage(db, c, number, ed25519.PublicKey(values[metaPublicKey]))
}

// loadCopy builds the filters of a copy, so that Check tries them.
func (n *Node) loadCopy(ctx context.Context) error {
	n.makeFilters(n.cfg.Bloom.Secret)
	for _, f := range n.filters() {
		f.set = bloom.New(f.params())
	}
	n.metrics = newMetrics(n)
	rows, err := n.iterate(prefixBounds(prefixIndex))
	if err != nil {
		return err
	}
	intakes := n.intakes()
	if err := errors.Join(n.loadRows(ctx, rows, n.tail.seq, intakes), rows.Close()); err != nil {
		return err
	}
	for _, in := range intakes {
		if in.err != nil {
			return in.err
		}
		in.f.set.Complete()
	}
	return nil
}
