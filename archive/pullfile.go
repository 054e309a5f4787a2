package archive

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"

	"github.com/verae/archive/blob"
	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/wire"
)

// profiles are those that a file may have been imported in, the likely ones first.
// A record names the CID and not the profile, which matters for a file of several
// blocks: whoever has it tells, and should he be wrong the usual ones are tried.
func (p *Puller) profiles(ctx context.Context, f *wire.File, from []wire.ArchiveID) (list []blob.Profile) {
	if c, err := blob.ParseCID(f.CID); err == nil && !c.Raw {
		for _, id := range from {
			if told, err := p.peers.FileProfile(ctx, id, f.SHA256, f.CID); err == nil && !slices.Contains(list, told) {
				list = append(list, told)
			}
		}
	}
	for _, usual := range blob.Usual() {
		if !slices.Contains(list, usual) {
			list = append(list, usual)
		}
	}
	return list
}

// file brings the bytes of a file here, unless they are.
func (p *Puller) file(ctx context.Context, f *wire.File, from []wire.ArchiveID) error {
	here, err := p.hasFile(ctx, f)
	if err != nil || here {
		return err
	}
	if p.files == nil {
		return fault.New(fault.Transient, "FILE_MISSING", "archive: this archive keeps no files")
	}
	// Several records may name one file, and all its fetches are one upload.
	_, err, _ = p.each.Do(f.SHA256.String()+" "+f.CID, func() (any, error) {
		select {
		case p.bulky <- struct{}{}:
			defer func() { <-p.bulky }()
		case <-ctx.Done():
			return nil, fault.Wrap(fault.Transient, ctx.Err())
		}
		for _, profile := range p.profiles(ctx, f, from) {
			if err = p.fetch(ctx, profile, f, from); fault.CodeOf(err) != blob.CodeCIDMismatch {
				break
			}
		}
		return nil, err
	})
	return err
}

func (p *Puller) hasFile(ctx context.Context, f *wire.File) (bool, error) {
	if err := p.node.enter(); err != nil {
		return false, err
	}
	defer p.node.leave()
	return p.node.hasFile(ctx, f)
}

// A source is an archive that is asked for a file. One that is alone starts
// anew, so that what is wrong with the bytes is surely his.
type source struct {
	id    wire.ArchiveID
	alone bool
}

// fetch gets a file from archive after archive, each going on where the one
// before stopped. Only the commit tells whether the bytes are right. If they are
// not and came from several, each is tried alone.
func (p *Puller) fetch(ctx context.Context, profile blob.Profile, f *wire.File, from []wire.ArchiveID) error {
	queue := make([]source, len(from))
	for i, id := range from {
		queue[i].id = id
	}
	id := uploadOf(f, profile)
	var errs []error
	var gave []wire.ArchiveID // whose bytes the open upload has
	mixed := false            // it has others too, from a fetch before this one
	for first := true; len(queue) > 0; first = false {
		src := queue[0]
		queue = queue[1:]
		if src.alone {
			gave, mixed = nil, false
			if err := p.files.Abort(id); err != nil {
				return err
			}
		}
		had, got, peer, err := p.copyFrom(ctx, id, profile, f, src.id)
		switch {
		case err != nil:
			return err // ours: another archive would not help
		case ctx.Err() != nil:
			return fault.Wrap(fault.Transient, ctx.Err())
		}
		mixed = mixed || first && had > 0
		if got > 0 {
			gave = append(gave, src.id)
		}
		if peer != nil {
			p.report(src.id, f.CID, peer)
			errs = append(errs, peer)
			continue
		}
		switch _, err := p.files.Commit(ctx, id, f.Size, f.SHA256, f.CID); fault.CodeOf(err) {
		case blob.CodeSizeMismatch, blob.CodeDigestMismatch:
			if len(gave) == 1 && !mixed {
				err = wrongAnswer(src.id, "the file it sent is not the one named: %w", err)
				p.report(src.id, f.CID, err)
			} else {
				for _, g := range gave {
					queue = append(queue, source{g, true})
				}
			}
			errs, gave, mixed = append(errs, err), nil, false
		default:
			return err
		}
	}
	return fault.New(fault.Transient, CodeNoFile, "archive: file %s came from none of %v: %w", f.CID, from, errors.Join(errs...))
}

// copyFrom adds to an upload what one archive has of a file beyond what is here.
// It returns how many bytes were there before and how many came, and keeps apart
// what the archive did wrong and what failed here.
func (p *Puller) copyFrom(ctx context.Context, id string, profile blob.Profile, f *wire.File, from wire.ArchiveID) (had, got int64, peer, err error) {
	had, err = p.files.Write(id, 0, nil) // tells how far the upload is
	if fault.CodeOf(err) == blob.CodeUnknownUpload {
		had, err = 0, p.files.Open(id, profile)
	}
	if err != nil {
		return 0, 0, nil, err
	}
	for at := had; at < f.Size; {
		want := int(min(wire.FragmentSize, f.Size-at))
		data, size, peer := p.peers.File(ctx, from, f.SHA256, f.CID, at, want)
		switch {
		case peer != nil:
			return had, at - had, peer, nil
		case size != f.Size || len(data) == 0 || len(data) > want:
			return had, at - had, wrongAnswer(from, "asked for %d bytes at %d of a file of %d, got %d of %d", want, at, f.Size, len(data), size), nil
		}
		n := int64(len(data))
		if at, err = p.files.Write(id, at, data); err != nil {
			return had, at - had, nil, err
		}
		p.metrics.bytes.Add(float64(n))
	}
	return had, f.Size - had, nil, nil
}

// uploadOf is the id of the upload by which a file is fetched: always the same,
// so that a fetch finds what the one before it has left.
func uploadOf(f *wire.File, profile blob.Profile) string {
	sum := sha256.Sum256([]byte(f.SHA256.String() + f.CID))
	id := "pull-" + hex.EncodeToString(sum[:24])
	switch profile {
	case blob.Default:
		return id
	case blob.Legacy:
		return id + "-legacy"
	}
	return fmt.Sprintf("%s-%x", id, profile.ChunkSize*blob.MaxLinks+profile.MaxLinks-1) // at most 8 digits: an id has 64 characters
}
