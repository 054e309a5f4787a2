package daemon

import (
	"context"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"slices"

	"github.com/verae/archive/archive"
	"github.com/verae/archive/blob"
	"github.com/verae/archive/internal/fault"
)

// repairFiles makes the index of the files what the files give.
func (r *archiveRepair) repairFiles(ctx context.Context) error {
	got, err := blob.RepairIndex(ctx, r.cfg.fileConfig(r.log, false), r.DryRun)
	files := &r.report.Files
	files.Damages = append(files.Damages, got.Damages...)
	files.Rebuilt = files.Rebuilt || got.Rebuilt
	if got.Evidence != "" {
		files.Evidence = append(files.Evidence, got.Evidence)
	}
	r.missing = got.Missing
	return err
}

// withFiles calls f with the files: in a dry run with a copy of their index, or
// with what their names tell if there is none that opens.
func (r *archiveRepair) withFiles(f func(archive.Files) error) (err error) {
	cfg := r.cfg.fileConfig(r.log, false)
	switch {
	case !r.DryRun:
		r.files, err = blob.OpenStore(cfg)
	case r.report.Files.Rebuilt:
		return f(namedFiles{cfg.Dir})
	default:
		var release func() error
		if r.files, release, err = blob.OpenCopy(cfg); err == nil {
			defer func() { err = errors.Join(err, release()) }()
		}
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.files.Close()) }()
	return f(r.files)
}

// namedFiles are the files of a store whose index is lost. They are there if a
// file has their name; their blocks are not known.
type namedFiles struct{ dir string }

// Blocks is that of archive.Files.
func (n namedFiles) Blocks(_ context.Context, sha256 [32]byte, cid string) ([][32]byte, error) {
	_, err := n.Size(context.Background(), sha256, cid)
	return nil, err
}

// Size is that of archive.Files.
func (n namedFiles) Size(_ context.Context, sha256 [32]byte, _ string) (int64, error) {
	name := hex.EncodeToString(sha256[:])
	info, err := os.Stat(filepath.Join(n.dir, "files", name[:2], name))
	if err != nil {
		return 0, fault.Wrap(fault.NotFound, err)
	}
	return info.Size(), nil
}

// Holds is that of archive.Files.
func (n namedFiles) Holds(ctx context.Context, sha256 [32]byte) (bool, error) {
	_, err := n.Size(ctx, sha256, "")
	return err == nil, nil
}

// refetchAll makes the files whole that the index names and that are not.
func (r *archiveRepair) refetchAll(ctx context.Context) error {
	for _, ref := range r.missing {
		out := fileOutput{SHA256: ref.SHA256, CID: ref.CID, Size: ref.Size}
		var err error
		if r.DryRun {
			err = r.ask(ctx, ref)
		} else {
			err = r.refetch(ctx, ref)
		}
		switch {
		case err == nil:
			r.report.Files.Fetched = append(r.report.Files.Fetched, out)
		case fault.Is(err, fault.NotFound):
			r.report.Files.Lost = append(r.report.Files.Lost, out)
		default:
			return err
		}
	}
	return nil
}

// evidence is where damaged files go that others take the place of.
func (r *archiveRepair) evidence() string {
	return filepath.Join(r.cfg.DataDir, dirFiles, "damaged-"+r.now.UTC().Format("20060102T150405Z"))
}

// refetch makes a file whole, from here or from another archive. Only when all
// that were asked have answered is fault.NotFound the answer.
func (r *archiveRepair) refetch(ctx context.Context, ref blob.FileRef) error {
	var silent error
	if ref.Profile == (blob.Profile{}) {
		ref.Profile = r.profileOf(ctx, ref)
	}
	_, err := r.files.Refetch(ctx, ref, r.evidence(), r.sources(&silent))
	return r.settled(ref, err, silent)
}

// profileOf asks the others in which profile a file has its CID: nothing here says
// so any more. It returns zero, for the usual ones, if none of them knows.
func (r *archiveRepair) profileOf(ctx context.Context, ref blob.FileRef) blob.Profile {
	if r.peers == nil {
		return blob.Profile{}
	}
	for _, peer := range r.peers.Alive() {
		if p, err := r.peers.FileProfile(ctx, peer, ref.SHA256, ref.CID); err == nil && !slices.Contains(blob.Usual(), p) {
			return p
		}
	}
	return blob.Profile{}
}
