package archive

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/internal/pebblex"
)

// build makes the new directory, opens it and checks it as a whole.
func (r *repairer) build(ctx context.Context) error {
	c := r.Config
	c.Dir = r.swap.New()
	if err := pebblex.Mkdir(c.FS, c.Dir); err != nil {
		return err
	}
	if err := r.copyBeside(c); err != nil {
		return err
	}
	db, err := pebblex.Open(c.storeOptions(true, c.OnFatal, nil))
	if err != nil {
		return err
	}
	head, err := (&builder{repairer: r, db: db, files: r.filesLeft()}).store(ctx)
	if err := errors.Join(err, db.Flush(), db.Close()); err != nil {
		return fmt.Errorf("archive: repair: build %s: %w", c.Dir, err)
	}
	id := r.relic.identity
	bones := skeleton{fs: c.FS, path: c.skeletonPath(), lineage: id.lineage, rebuild: true}
	err = bones.write(nil, func(f func(bone) error) error {
		for _, s := range r.slots {
			if err := f(s.bone); err != nil {
				return err
			}
		}
		return nil
	})
	if err := errors.Join(err, bones.close()); err != nil {
		return err
	}
	if err := writeLineageFile(c, id.lineage); err != nil {
		return err
	}
	if _, err := writeMarkFile(c, id, head); err != nil {
		return err
	}
	if err := r.verify(ctx, c, head); err != nil {
		return err
	}
	// An archive in its time of grace, or that left leases out, is not freed of that
	// by a repair, which has just opened it and closed it in order.
	for from, to := range map[string]string{r.gracePath(): c.gracePath(), r.leasesPath(): c.leasesPath()} {
		if _, err := c.FS.Stat(from); err == nil {
			if err := r.copyTree(from, to); err != nil {
				return err
			}
		}
	}
	return nil
}

// copyBeside copies the key and what other parts keep in the directory. Where a
// scrub was does not hold for a new store, nor do snapshots of a filter: the log is
// the same, but the new index may have keys that the old one had lost.
func (r *repairer) copyBeside(c Config) error {
	made := map[string]bool{"records": true, "highwater": true, "leaves": true, "generations": true, "scrub.json": true, "filters": true}
	names, err := c.FS.List(r.Dir)
	if err != nil {
		return fmt.Errorf("archive: repair: %w", err)
	}
	for _, name := range names {
		if !made[name] && !halfWritten(name) {
			if err := r.copyTree(c.FS.PathJoin(r.Dir, name), c.FS.PathJoin(c.Dir, name)); err != nil {
				return err
			}
		}
	}
	return nil
}

// halfWritten reports whether a name is that of a file whose writing a crash cut
// short: see pebblex.WriteFile. It stays in the evidence.
func halfWritten(name string) bool { return strings.HasSuffix(name, ".tmp") }

// maxBeside bounds a file that is copied, in bytes.
const maxBeside = 64 << 20

// copyTree copies a file or a directory. What can not be read is a damage, and
// stays in the evidence: nothing of it is needed to open an archive but the key,
// which was read before.
func (r *repairer) copyTree(from, to string) error {
	unreadable := func(err error) error { r.relic.damage("%v", err); return nil }
	info, err := r.FS.Stat(from)
	if err != nil {
		return unreadable(err)
	}
	if !info.IsDir() {
		data, err := pebblex.ReadFile(r.FS, from, maxBeside)
		if err != nil {
			return unreadable(err)
		}
		return pebblex.WriteFile(r.FS, to, data, keyPerm)
	}
	names, err := r.FS.List(from)
	if err != nil {
		return unreadable(err)
	}
	if err := pebblex.Mkdir(r.FS, to); err != nil {
		return err
	}
	for _, name := range names {
		if halfWritten(name) {
			continue
		}
		if err := r.copyTree(r.FS.PathJoin(from, name), r.FS.PathJoin(to, name)); err != nil {
			return err
		}
	}
	return nil
}

// verify opens a repaired directory as the archive will, and checks all of it.
func (r *repairer) verify(ctx context.Context, c Config, want treeHead) error {
	n, err := r.openChecked(ctx, c)
	if err != nil {
		return fmt.Errorf("archive: repair: the new directory %s is not whole: %w", c.Dir, err)
	}
	got := n.tail.head()
	if err := n.Close(); err != nil {
		return err
	}
	if got != want {
		return fault.New(fault.Corrupt, "CORRUPT", "archive: repair: the new log ends at seq %d with %d leaves, it should at %d with %d", got.seq, got.size, want.seq, want.size)
	}
	return pebblex.SyncDir(c.FS, c.Dir)
}

// openChecked opens an archive of which nothing may be wrong, but for lost files
// that are known. The caller closes it.
func (r *repairer) openChecked(ctx context.Context, c Config) (*Node, error) {
	c.Files = r.filesLeft()
	n, err := Open(c)
	if err != nil {
		return nil, err
	}
	select {
	case <-n.Loaded():
	case <-ctx.Done():
		return nil, errors.Join(ctx.Err(), n.Close())
	}
	if _, err := n.Check(ctx); err != nil {
		return nil, errors.Join(err, n.Close())
	}
	return n, nil
}

// opens reports whether the archive opens and checks as it is. A copy is opened,
// since opening changes a store.
func (r *repairer) opens(ctx context.Context) (whole bool, err error) {
	c := r.Config
	c.Dir = r.Dir + ".check"
	defer func() { err = errors.Join(err, c.FS.RemoveAll(c.Dir)) }()
	if err := c.FS.RemoveAll(c.Dir); err != nil {
		return false, fmt.Errorf("archive: repair: %w", err)
	}
	if err := pebblex.Mkdir(c.FS, c.Dir); err != nil {
		return false, err
	}
	if err := pebblex.CloneClosed(c.FS, r.storeDir(), c.storeDir()); err != nil {
		r.relic.damage("%v", err)
		return false, ctx.Err()
	}
	for _, path := range []string{r.keyPath(), r.markPath()} {
		if err := r.copyTree(path, c.FS.PathJoin(c.Dir, c.FS.PathBase(path))); err != nil {
			return false, err
		}
	}
	if err := pebblex.CopyFile(c.FS, r.skeletonPath(), c.skeletonPath()); err != nil { // it may be large
		r.relic.damage("%v", err)
		return false, ctx.Err()
	}
	n, err := r.openChecked(ctx, c)
	if err != nil {
		r.relic.damage("%v", err)
		return false, ctx.Err()
	}
	return true, n.Close()
}
