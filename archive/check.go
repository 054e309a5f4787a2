package archive

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/verae/archive/blob"
	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/wire"
)

// CheckOptions say how far a check goes.
type CheckOptions struct {
	// Blobs has the bytes of files, which are read and compared too. Nil leaves
	// them out; that records name files that are here is checked all the same.
	Blobs *blob.Store
	// FilesUnknown says that there is nobody to ask for files, as when their store
	// does not open: nothing is said of them then.
	FilesUnknown bool
	// Read is called before so many bytes are read, and may wait. An error ends
	// the check. Nil means as fast as possible, with all processors.
	Read func(ctx context.Context, bytes int) error
}

// Check is CheckWith without the bytes of files.
func (n *Node) Check(ctx context.Context) (CheckReport, error) {
	return n.CheckWith(ctx, CheckOptions{})
}

// CheckWith reads the whole archive as it is now and computes it anew:
//
//   - every block of every table of its Pebble stores, from the files and not
//     from a cache, has its checksum;
//   - every frame has its checksum, its hashes and the one encoding it can have;
//     sequence numbers have no gap that no generation explains, and times rise;
//   - the Merkle trees are those of the log, the root at the mark is the signed
//     one, and the skeleton names every record under the mark;
//   - the index is exactly what the log gives, row by row in both directions, but
//     for what is no longer known of lost records; the filter denies nothing,
//     or is told what it denied;
//   - every file that a record names is here; with o.Blobs, its bytes give its
//     SHA-256, its CID and the rows of its tree, and files and rows that nothing
//     needs are told.
//
// It goes on behind what is wrong. The report lists all findings up to a bound;
// the error is of kind fault.Corrupt if any of them is damage, and another one if
// the check could not go on. Damage puts the archive in quarantine, but that of a
// file's bytes only the file. Puts and queries go on meanwhile; what is stored
// during the check is not looked at.
func (n *Node) CheckWith(ctx context.Context, o CheckOptions) (CheckReport, error) {
	report, err := n.checkAll(ctx, o)
	return report, errors.Join(report.Err(), err)
}

// checkAll is CheckWith; its error says only why the check could not go on.
func (n *Node) checkAll(ctx context.Context, o CheckOptions) (CheckReport, error) {
	p, err := n.newPosition()
	if err != nil {
		return CheckReport{}, err
	}
	c := newChecker(n, o, p)
	c.referred = make(map[wire.Digest]struct{})
	err = c.run(ctx)
	p.Report.end(err)
	return p.Report, err
}

// checker is a check under way.
type checker struct {
	n    *Node
	o    CheckOptions
	pos  *position
	side int // how many goroutines read and look; the others of these fields are not theirs
	rows int // how many rows are looked at together
	// finding guards what found writes to: the report or, while goroutines look side
	// by side, apart.
	finding sync.Mutex
	apart   *unordered
	// scans are those of the index that are still to be run, all of one kind; nil
	// if they are not known.
	scans []*rowScan
	// inside says that the node can not be closed.
	inside bool
	// referred are the SHA-256 of files that records name; nil if nobody wants to
	// know which files no record names.
	referred map[wire.Digest]struct{}
	// tablesOnly leaves out the log and the index: nobody can tell how they should
	// be.
	tablesOnly bool
	// saved is called after each step, when pos can be stored; nil for nothing.
	saved func() error
}

func newChecker(n *Node, o CheckOptions, p *position) *checker {
	c := &checker{n: n, o: o, pos: p, side: 1, rows: checkRows}
	if o.Read == nil {
		c.side = runtime.GOMAXPROCS(0)
		c.o.Read = func(ctx context.Context, _ int) error { return ctx.Err() }
	}
	return c
}

// Phases of a check, in their order.
const (
	phaseTables     = "tables"      // files of the record store
	phaseFileTables = "file-tables" // files of the file store's index
	phaseLog        = "log"
	phaseIndex      = "index"
	phaseFiles      = "files" // bytes of files
	phaseRows       = "rows"  // of the file store's index
	phaseDone       = "done"
)

// run goes on from the position to the end.
func (c *checker) run(ctx context.Context) error {
	for c.pos.Phase != phaseDone {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("archive: check: %w", err)
		}
		if err := c.step(ctx); err != nil {
			return err
		}
		if err := c.save(); err != nil {
			return err
		}
	}
	return nil
}

func (c *checker) save() error {
	if c.saved == nil {
		return nil
	}
	return c.saved()
}

// step does some of the work of the current phase.
func (c *checker) step(ctx context.Context) error {
	switch c.pos.Phase {
	case phaseTables:
		return c.guarded(func() error { return c.tables(ctx) })
	case phaseFileTables:
		return c.fileTables(ctx)
	case phaseLog:
		if c.tablesOnly {
			c.pos.Phase = phaseFiles
			return nil
		}
		return c.guarded(func() error { return c.log(ctx) })
	case phaseIndex:
		return c.guarded(func() error { return c.index(ctx) })
	case phaseFiles:
		return c.files(ctx)
	case phaseRows:
		return c.fileRows(ctx)
	}
	return fault.New(fault.Internal, "CHECK_PHASE", "archive: there is no phase %q in a check", c.pos.Phase)
}

// guarded runs f while the store can not be closed.
func (c *checker) guarded(f func() error) error {
	if err := c.n.enter(); err != nil {
		return err
	}
	c.inside = true
	defer func() {
		if c.inside {
			c.inside = false
			c.n.leave()
		}
	}()
	return f()
}

// sideBySide calls f for all numbers below n, on as many goroutines as the check
// may have, and returns all errors. What is found meanwhile comes into the report
// in the end, in an order that is the same every time.
func (c *checker) sideBySide(n int, f func(i int) error) error {
	c.apart = new(unordered)
	defer func() {
		c.apart.addTo(&c.pos.Report)
		c.apart = nil
	}()
	errs := make([]error, n)
	var next atomic.Int64
	var wg sync.WaitGroup
	for range min(n, c.side) {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				errs[i] = f(i)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// pace waits until so many bytes may be read. Meanwhile the store can be closed,
// so that nothing of it may be held; but not if the check has all processors:
// then others may be reading.
func (c *checker) pace(ctx context.Context, bytes int) error {
	if !c.inside || c.side > 1 {
		return c.o.Read(ctx, bytes)
	}
	c.inside = false
	c.n.leave()
	if err := c.o.Read(ctx, bytes); err != nil {
		return err
	}
	if err := c.n.enter(); err != nil {
		return err
	}
	c.inside = true
	return nil
}

// found notes a finding. Damage to anything but the bytes of a file makes the
// archive read-only. That a lost file is not here is no news.
func (c *checker) found(f Finding) {
	if f.Damage && !f.File.IsZero() && c.n.FileLost(f.File) {
		f.Damage, f.What = false, "known to be lost: "+f.What
	}
	c.finding.Lock()
	defer c.finding.Unlock()
	if c.apart != nil {
		c.apart.add(repairable(f))
	} else {
		c.pos.Report.Add(repairable(f))
	}
	if f.Damage && f.Kind != FindingFile {
		c.n.health.quarantine(f.What)
	}
	if f.Damage {
		c.n.cfg.Log.Error("the check found damage", "kind", f.Kind, "seq", f.Seq, "path", f.Path, "err", f.What)
	}
}
