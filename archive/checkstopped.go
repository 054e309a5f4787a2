package archive

import (
	"context"
	"errors"
	"fmt"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/internal/pebblex"
	"github.com/verae/archive/wire"
)

// CheckStopped is [Node.CheckWith] for an archive that no process has open. It
// opens the archive as a start would, which replays the log of its store, and
// closes it again; what it finds counts as a pass of the scrub. If it does not open, that is the first finding, and all is
// checked that can be read without.
//
// Errors: fault.NotFound if there is no archive, fault.Conflict if it is another
// one or in use, and what else keeps it from being opened that is no damage, all
// with nothing checked; else those of CheckWith.
func CheckStopped(ctx context.Context, c Config, o CheckOptions) (report CheckReport, err error) {
	if c, err = c.withDefaults(); err != nil {
		return CheckReport{}, err
	}
	// What opening replaces is looked at before; that may be a store which another
	// process has open, and then the open tells so.
	flaws, _, flawsErr := pebblex.Verify{FS: c.FS, Dir: c.storeDir(), Read: o.Read}.Logs(ctx)
	n, openErr := Open(c)
	switch {
	case openErr == nil:
		defer func() { err = errors.Join(err, n.Close()) }()
		select {
		case <-n.Loaded():
		case <-ctx.Done():
			return CheckReport{}, fmt.Errorf("archive: check: %w", ctx.Err())
		}
		report, err = n.checkAll(ctx, o)
		if o.Blobs != nil && err == nil {
			n.rememberCheck(&report)
		}
	case fault.Is(openErr, fault.Corrupt):
		report, err = checkRefused(ctx, c, o, openErr)
	default:
		return CheckReport{}, openErr
	}
	if flawsErr == nil {
		for _, f := range flaws {
			report.Add(repairable(storeFile(f.Path, f.What, f.Damage)))
		}
	}
	return report, errors.Join(report.Err(), err)
}

// checkRefused checks what can be read of an archive that does not open. Its error
// says only why the check could not go on.
func checkRefused(ctx context.Context, c Config, o CheckOptions, refusal error) (report CheckReport, err error) {
	refused := Finding{Kind: FindingOpen, What: refusal.Error(), Damage: true}
	if fault.CodeOf(refusal) == CodeKeyLost {
		refused.Repair = repairKey
	}
	h := newHealth(c.Log)
	db, err := pebblex.Open(c.storeOptions(false, c.OnFatal, nil))
	if err != nil {
		report.begin()
		report.Add(repairable(refused))
		err = checkFilesOfStore(ctx, c, o, &report)
		report.end(err)
		return report, err
	}
	n := &Node{cfg: c, db: db, health: h}
	defer func() { err = errors.Join(err, db.Close()) }()
	p := n.refusedPosition()
	p.Report.begin()
	k := newChecker(n, o, p)
	k.referred = make(map[wire.Digest]struct{})
	k.found(refused)
	if n.identity.lineage == nil {
		k.tablesOnly = true // without it nothing of the log can be told
		k.referred = nil
	}
	err = k.run(ctx)
	p.Report.end(err)
	return p.Report, err
}

// refusedPosition is newPosition for an archive that did not open, as far as
// that can be told: its log should reach to the mark.
func (n *Node) refusedPosition() *position {
	p := &position{Version: positionVersion, Phase: phaseTables, Generation: -1}
	if id, err := readIdentity(n.db, n.cfg); err == nil {
		n.identity = id
		n.tail.seq = n.lastReadable()
		if m, err := readMark(n.cfg, id); err == nil {
			p.Mark = positionMark{}.of(m.treeHead)
		}
		if err := n.readLosses(); err != nil {
			n.lost.ids = map[uint64]wire.RecordID{}
		}
	}
	n.durable.Store(n.tail.seq)
	p.End = max(n.tail.seq, p.Mark.Seq)
	p.begin()
	return p
}

// lastReadable returns the number where the log, or its tree, ends.
func (n *Node) lastReadable() (last uint64) {
	for _, prefix := range []byte{prefixLog, prefixCommit} {
		it, err := n.iterate(prefixBounds(prefix))
		if err != nil {
			continue // the check meets it again
		}
		if it.Last() {
			if seq, ok := keySeq(prefix, it.Key()); ok {
				last = max(last, seq)
			}
		}
		n.closeQuietly(it)
	}
	return last
}

// checkFilesOfStore reads the table files of a store that does not open, and the
// file store. A table that is not whole need not have been part of the store.
func checkFilesOfStore(ctx context.Context, c Config, o CheckOptions, report *CheckReport) error {
	v := pebblex.Verify{FS: c.FS, Dir: c.storeDir(), Read: o.Read}
	names, err := v.Tables()
	if err != nil {
		report.Add(repairable(storeFile(c.storeDir(), err.Error(), true)))
	}
	for _, name := range names {
		flaw, size, err := v.Table(ctx, name)
		if err != nil {
			return err
		}
		report.Tables++
		report.Bytes += size
		if flaw != nil {
			report.Add(repairable(storeFile(flaw.Path, flaw.What, flaw.Damage)))
		}
	}
	if o.Blobs == nil {
		return nil
	}
	n := &Node{cfg: c, health: newHealth(c.Log)}
	k := newChecker(n, o, &position{Phase: phaseFileTables, Report: *report})
	k.tablesOnly = true
	err = k.run(ctx)
	*report = k.pos.Report
	return err
}

// repairable names the command that repairs a damage.
func repairable(f Finding) Finding {
	if f.Damage && f.Repair == "" {
		f.Repair = repairStore
	}
	return f
}
