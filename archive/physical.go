package archive

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/verae/archive/blob"
	"github.com/verae/archive/internal/pebblex"
	"github.com/verae/archive/wire"
)

// tables reads the next table files of the record store.
func (c *checker) tables(ctx context.Context) error {
	v := pebblex.Verify{FS: c.n.cfg.FS, Dir: c.n.cfg.storeDir(), Read: c.pace}.Of(c.n.db)
	if c.pos.Table == "" && c.pos.Until == "" {
		flaws, sum, err := v.Logs(ctx)
		if err != nil {
			return err
		}
		c.pos.Report.Bytes += sum.Bytes
		for _, f := range flaws {
			c.found(storeFile(f.Path, f.What, f.Damage))
		}
	}
	names, err := v.Tables()
	if err != nil {
		return err
	}
	return c.nextTable(names, phaseFileTables, func(name string) (*Finding, int64, error) {
		flaw, size, err := v.Table(ctx, name)
		if flaw == nil {
			return nil, size, err
		}
		f := storeFile(flaw.Path, flaw.What, flaw.Damage)
		return &f, size, err
	})
}

func storeFile(path, what string, damage bool) Finding {
	return Finding{Kind: FindingStoreFile, What: path + ": " + what, Damage: damage, Path: path}
}

// nextTable checks the first tables that are behind the position, side by side if
// the check has all processors, or begins the next phase when there are none.
// Tables that came since the phase began are left to the next check: there may be
// no end of them.
func (c *checker) nextTable(names []string, next string, check func(name string) (*Finding, int64, error)) error {
	p := c.pos
	if p.Until == "" && len(names) > 0 {
		p.Until = names[len(names)-1]
	}
	names = slices.DeleteFunc(names, func(name string) bool {
		return compareTables(name, p.Table) <= 0 || compareTables(name, p.Until) > 0
	})
	if len(names) == 0 {
		p.Phase, p.Table, p.Until = next, "", ""
		return nil
	}
	names = names[:min(len(names), c.perStep())]
	sizes := make([]int64, len(names))
	err := c.sideBySide(len(names), func(i int) (err error) {
		f, size, err := check(names[i])
		if f != nil && err == nil {
			c.found(*f)
		}
		sizes[i] = size
		return err
	})
	if err != nil {
		return err
	}
	p.Table = names[len(names)-1]
	p.Report.Tables += uint64(len(names))
	for _, size := range sizes {
		p.Report.Bytes += size
	}
	return nil
}

// compareTables orders names of table files by their numbers.
func compareTables(a, b string) int {
	return cmp.Or(cmp.Compare(len(a), len(b)), strings.Compare(a, b))
}

// fileTables reads the next table files of the index of the file store.
func (c *checker) fileTables(ctx context.Context) error {
	if c.o.Blobs == nil {
		c.pos.Phase = phaseLog
		return nil
	}
	if c.pos.Table == "" && c.pos.Until == "" {
		findings, err := c.o.Blobs.CheckIndexLogs(ctx, c.o.Read)
		if err != nil {
			return err
		}
		for _, f := range findings {
			c.found(fromBlob(f))
		}
	}
	names, err := c.o.Blobs.IndexTables()
	if err != nil {
		return err
	}
	return c.nextTable(names, phaseLog, func(name string) (*Finding, int64, error) {
		found, size, err := c.o.Blobs.CheckIndexTable(ctx, name, c.o.Read)
		if found == nil {
			return nil, size, err
		}
		f := fromBlob(*found)
		return &f, size, err
	})
}

// fromBlob is a finding of the file store. Whatever is wrong there makes files
// unreadable, and no record.
func fromBlob(b blob.Finding) Finding {
	f := Finding{Kind: FindingFile, What: b.What, Damage: b.Damage, File: wire.Digest(b.SHA256), Path: b.Path}
	switch b.Kind {
	case blob.FindingStray:
		f.Kind = FindingStray
	case blob.FindingUnreferenced:
		f.Kind = FindingUnreferenced
	}
	return f
}

// files reads the bytes of the files.
func (c *checker) files(ctx context.Context) error {
	if c.o.Blobs == nil {
		c.pos.Phase = phaseDone
		return nil
	}
	var saveErr error
	o := blob.CheckOptions{After: c.pos.File, Done: func(sha256 [32]byte, size int64) {
		p := c.pos
		p.File = sha256
		p.Report.Files++
		p.Report.FileBytes += size
		p.Report.Bytes += size
		if _, named := c.referred[sha256]; c.referred != nil && !named {
			c.found(Finding{Kind: FindingUnreferenced, What: "no record names this file: an upload whose record was never put, or is of a later time", File: sha256})
		}
		if saveErr == nil {
			saveErr = c.save()
		}
	}}
	if c.side == 1 {
		o.Read = c.o.Read
	}
	for f, err := range c.o.Blobs.CheckFiles(ctx, o) {
		if err != nil {
			return err
		}
		c.found(fromBlob(f))
		if saveErr != nil {
			return saveErr
		}
	}
	c.pos.Phase, c.pos.File = phaseRows, wire.Digest{}
	return saveErr
}

// fileRows looks for rows that no file needs. It takes memory for all of them,
// and no loss shows there: a scrub leaves it to a check.
func (c *checker) fileRows(ctx context.Context) error {
	if c.referred != nil {
		for f, err := range c.o.Blobs.CheckRows(ctx) {
			if err != nil {
				return err
			}
			c.found(fromBlob(f))
		}
	}
	c.pos.Phase = phaseDone
	return nil
}
