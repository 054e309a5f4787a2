package blob

import (
	"context"

	"github.com/verae/archive/internal/fault"
)

// Bounds of a [Profile]. A chunk above 1 MiB would make blocks that common
// clients refuse; a small chunk or a narrow node costs an index row and a
// filter key for little, and makes trees deeper than maxDepth.
const (
	MinChunkSize = 64 << 10
	MaxChunkSize = 1 << 20
	MinLinks     = 16
	MaxLinks     = 1024
)

// maxDepth bounds the number of link levels above the leaves. The narrowest
// tree of the smallest chunks reaches it at 256 TiB.
const maxDepth = 8

// Profile says how a file is cut into blocks. Two profiles give the same file
// two CIDs, so the profile is stored beside each root. ChunkSize is in bytes.
type Profile struct {
	ChunkSize int // bytes in every leaf but the last
	MaxLinks  int // links in a full inner node
}

// Default is the profile unixfs-v1-2025 of IPIP-499.
var Default = Profile{ChunkSize: 1 << 20, MaxLinks: 1024}

// Legacy is the pair of older importers (Kubo's add with CIDv1 and raw leaves,
// and the JavaScript importer's defaults).
var Legacy = Profile{ChunkSize: 256 << 10, MaxLinks: 174}

// Usual are the profiles that are tried on a file whose own is not known any more:
// the two above, and what Kubo makes of chunks of 1 MiB.
func Usual() []Profile {
	return []Profile{Default, Legacy, {ChunkSize: Default.ChunkSize, MaxLinks: Legacy.MaxLinks}}
}

// Profile returns the profile in which a committed file has a root. The errors are
// those of Blocks.
func (s *Store) Profile(ctx context.Context, sha256 [32]byte, cid string) (Profile, error) {
	leave, err := s.enter()
	if err != nil {
		return Profile{}, err
	}
	defer leave()
	r, err := s.rootOf(ctx, sha256, cid)
	return r.profile, err
}

// Check reports, as a fault of kind Invalid with code BAD_PROFILE, whether p is
// outside the bounds.
func (p Profile) Check() error {
	switch {
	case p.ChunkSize < MinChunkSize || p.ChunkSize > MaxChunkSize:
		return fault.New(fault.Invalid, CodeBadProfile, "blob: chunkSize %d is outside %d to %d bytes; use %d unless the CID must equal that of an older importer",
			p.ChunkSize, MinChunkSize, MaxChunkSize, Default.ChunkSize).InField("chunkSize")
	case p.MaxLinks < MinLinks || p.MaxLinks > MaxLinks:
		return fault.New(fault.Invalid, CodeBadProfile, "blob: maxLinks %d is outside %d to %d; use %d unless the CID must equal that of an older importer",
			p.MaxLinks, MinLinks, MaxLinks, Default.MaxLinks).InField("maxLinks")
	}
	return nil
}
