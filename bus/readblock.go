package bus

import (
	"context"
	"io"
	"strconv"

	"github.com/verae/archive/blob"
	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/wire"
)

// maxBlock is the largest block there can be, in bytes. A leaf is smaller; an
// inner node of the most links has some 60 KiB.
const maxBlock = blob.MaxChunkSize

// block names a block to archives.
func block(viewer wire.TenantID, digest wire.Digest) wanted {
	return wanted{wire.OpBlock, viewer, blob.CID{Digest: digest, Raw: true}.String()}
}

// StatBlock asks the archives, one after the other, for the size of a block, and
// whether everybody may read it. What is not there, or not for this viewer, is
// NotFound. The viewer is a tenant, or wire.Public.
func (a *Archives) StatBlock(ctx context.Context, ids []wire.ArchiveID, viewer wire.TenantID, digest wire.Digest) (wire.Block, error) {
	what := block(viewer, digest)
	var errs []error
	for _, id := range ids {
		_, header, err := a.readRange(ctx, id, what, 0, 0)
		if err == nil {
			size, sizeErr := strconv.ParseInt(header.Get(wire.HeaderSize), 10, 64)
			if sizeErr == nil && size >= 0 && size <= maxBlock {
				return wire.Block{Size: size, Public: header.Get(wire.HeaderPublic) == "true"}, nil
			}
			err = fault.New(fault.Corrupt, CodeCorrupt, "archive %s: a block of %q bytes", id, header.Get(wire.HeaderSize))
		}
		errs = append(errs, err)
		if ctx.Err() != nil {
			break
		}
	}
	return wire.Block{}, readFault(what.cid, errs)
}

// ReadBlock is ReadFile of a section of a block.
func (a *Archives) ReadBlock(ctx context.Context, ids []wire.ArchiveID, viewer wire.TenantID, digest wire.Digest, off, length int64) (io.ReadCloser, error) {
	return a.readSection(ctx, ids, block(viewer, digest), off, length)
}
