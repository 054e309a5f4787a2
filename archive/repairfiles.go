package archive

import (
	"context"
	"slices"
	"strings"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/wire"
)

// mendedFile is a file that was not whole.
type mendedFile struct {
	report int // index in the report's Files
	lost   bool
	size   int64         // as its record says
	record wire.RecordID // the first that names it
}

// fileKey names a file of a record.
func fileKey(sha256 [32]byte, cid string) string { return wire.Digest(sha256).String() + " " + cid }

// file makes sure of the file of a record: it is whole, or fetched, or known to
// be lost.
func (r *repairer) file(ctx context.Context, seq uint64, id wire.RecordID, f *wire.File) (whole bool, err error) {
	key := fileKey(f.SHA256, f.CID)
	if m := r.mended[key]; m != nil {
		if m.lost {
			r.broken[seq] = key
		}
		return !m.lost, nil
	}
	if whole, err := r.hasFile(ctx, f); whole || err != nil {
		return whole, err
	}
	m := &mendedFile{report: len(r.report.Files), lost: true, size: f.Size, record: id}
	r.mended[key] = m
	r.report.Files = append(r.report.Files, RepairFile{Seq: seq, SHA256: f.SHA256, CID: f.CID, Lost: true, Known: r.gone[f.SHA256] != lostFile{}})
	if r.Refetch != nil && !r.DryRun {
		err := r.Refetch(ctx, *f)
		if err == nil {
			var has bool
			if has, err = r.hasFile(ctx, f); has {
				m.lost, r.report.Files[m.report].Lost, r.report.Files[m.report].Known = false, false, false
				return true, nil
			}
		}
		if err != nil && !fault.Is(err, fault.NotFound) {
			return false, err
		}
	}
	r.broken[seq] = key
	return false, nil
}

// knownLost reads which files were found to be lost before.
func (r *repairer) knownLost() {
	list, err := readLostFiles(r.Config)
	if err != nil {
		r.report.Damages = append(r.report.Damages, err.Error())
	}
	r.gone = map[wire.Digest]lostFile{}
	for _, f := range list {
		r.gone[f.sha256] = f
	}
}

// listLost writes down which files are lost, so that the archive can go on
// without them. Until then they are damage, and the repair can be run again.
func (r *repairer) listLost() error {
	var lost []lostFile
	for _, m := range r.mended {
		if !m.lost {
			continue
		}
		f := lostFile{r.report.Files[m.report].SHA256, m.record, wire.At(r.Now())}
		if known := r.gone[f.sha256]; known != (lostFile{}) {
			f = known
		}
		lost = append(lost, f)
	}
	slices.SortFunc(lost, func(a, b lostFile) int { return slices.Compare(a.sha256[:], b.sha256[:]) })
	return addLostFiles(r.Config, lost)
}

// hasFile reports whether the bytes of a file are here, as far as its store can
// tell without reading them all.
func (r *repairer) hasFile(ctx context.Context, f *wire.File) (bool, error) {
	if r.Files == nil {
		return false, nil
	}
	_, err := r.Files.Blocks(ctx, f.SHA256, f.CID)
	if err == nil {
		var size int64
		if size, err = r.Files.Size(ctx, f.SHA256, f.CID); err == nil && size != f.Size {
			return false, nil
		}
	}
	if err == nil {
		if s, ok := r.Files.(interface {
			Has(ctx context.Context, sha256 [32]byte, cid string) (bool, error)
		}); ok {
			return s.Has(ctx, f.SHA256, f.CID)
		}
	}
	if fault.Is(err, fault.NotFound) || fault.Is(err, fault.Corrupt) {
		return false, nil
	}
	return err == nil, err
}

// repairedFiles are the files of a repaired archive: of those that are lost it
// knows what is left of the index.
type repairedFiles struct {
	Files
	r *repairer
}

// filesLeft returns the files as the repaired archive sees them.
func (r *repairer) filesLeft() repairedFiles { return repairedFiles{r.Files, r} }

func (l repairedFiles) lost(sha256 [32]byte, cid string) *mendedFile {
	if m := l.r.mended[fileKey(sha256, cid)]; m != nil && m.lost {
		return m
	}
	return nil
}

// Blocks is Files.Blocks.
func (l repairedFiles) Blocks(ctx context.Context, sha256 [32]byte, cid string) (blocks [][32]byte, err error) {
	if l.lost(sha256, cid) == nil {
		return l.Files.Blocks(ctx, sha256, cid)
	}
	for seq, key := range l.r.broken {
		if key != fileKey(sha256, cid) {
			continue
		}
		for _, s := range l.r.spared[seq] {
			if digest, _, ok := indexKeyParts(s.key); ok && s.row.roles&roleBlock != 0 {
				blocks = append(blocks, digest)
			}
		}
	}
	return blocks, nil
}

// Size is Files.Size.
func (l repairedFiles) Size(ctx context.Context, sha256 [32]byte, cid string) (int64, error) {
	if m := l.lost(sha256, cid); m != nil {
		return m.size, nil
	}
	return l.Files.Size(ctx, sha256, cid)
}

// Holds is Files.Holds. Of a file that is lost the report tells.
func (l repairedFiles) Holds(ctx context.Context, sha256 [32]byte) (bool, error) {
	for key, m := range l.r.mended {
		if m.lost && strings.HasPrefix(key, fileKey(sha256, "")) {
			return true, nil
		}
	}
	if l.Files == nil {
		return false, nil
	}
	return l.Files.Holds(ctx, sha256)
}
