package blob

import (
	"context"

	"github.com/verae/archive/internal/pebblex"
)

// IndexTables returns the names of the table files of the index, sorted.
func (s *Store) IndexTables() ([]string, error) {
	leave, err := s.enter()
	if err != nil {
		return nil, err
	}
	defer leave()
	return s.verify(nil).Tables()
}

func (s *Store) verify(read func(context.Context, int) error) pebblex.Verify {
	return pebblex.Verify{FS: s.cfg.FS, Dir: s.path(dirIndex), Read: read}.Of(s.db)
}

// CheckIndexTable reads a table file of the index from the disk and returns what
// is wrong with it, or nil, and its size. read is called before so many bytes
// are read, and may wait; nil means that there is no hurry to keep. Damage is
// remembered as if a reader had met it.
func (s *Store) CheckIndexTable(ctx context.Context, name string, read func(context.Context, int) error) (*Finding, int64, error) {
	if read == nil {
		read = unhurried
	}
	g := gate{store: s, read: read}
	if err := g.enter(); err != nil {
		return nil, 0, err
	}
	defer g.leave()
	flaw, size, err := s.verify(g.wait).Table(ctx, name)
	if flaw == nil || err != nil {
		return nil, size, err
	}
	s.noteIndexDamage(flaw.Path + ": " + flaw.What)
	return &Finding{Kind: FindingIndex, Path: flaw.Path, What: flaw.What, Damage: flaw.Damage}, size, nil
}

// CheckIndexLogs does so for the manifest and the options of the index.
func (s *Store) CheckIndexLogs(ctx context.Context, read func(context.Context, int) error) (findings []Finding, err error) {
	if read == nil {
		read = unhurried
	}
	g := gate{store: s, read: read}
	if err := g.enter(); err != nil {
		return nil, err
	}
	defer g.leave()
	flaws, _, err := s.verify(g.wait).Logs(ctx)
	for _, f := range flaws {
		if f.Damage {
			s.noteIndexDamage(f.Path + ": " + f.What)
		}
		findings = append(findings, Finding{Kind: FindingIndex, Path: f.Path, What: f.What, Damage: f.Damage})
	}
	return findings, err
}
