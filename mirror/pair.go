package mirror

import (
	"crypto/sha256"

	"github.com/verae/archive/bloom"
	"github.com/verae/archive/wire"
)

// viewerContext keeps the keys of viewers apart from every other use of the
// fleet's key.
const viewerContext = "verae-viewer/1\n"

// ViewerKey returns the key under which the pairs of one viewer are hashed: the
// first half of SHA-256 over a context, the fleet's key and the viewer's id. Who
// does not know the fleet's key can find no digest whose pair with one viewer
// looks like another one's.
func ViewerKey(secret [16]byte, viewer wire.TenantID) [16]byte {
	var room [len(viewerContext) + len(secret) + wire.MaxTenantID]byte
	text := append(room[:0], viewerContext...)
	text = append(text, secret[:]...)
	text = append(text, viewer...)
	sum := sha256.Sum256(text)
	return [16]byte(sum[:])
}

// Pair returns the hash of (viewer, digest) in a filter of views: that there is,
// under the digest, something which the viewer may see. wire.Public is a viewer
// too, whom everybody may read with.
func Pair(secret [16]byte, viewer wire.TenantID, digest [32]byte) bloom.Hash {
	return bloom.HashKey(ViewerKey(secret, viewer), digest)
}
