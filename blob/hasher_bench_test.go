package blob

import (
	"crypto/sha256"
	"testing"
)

// BenchmarkHasher compares the one pass for SHA-256, SHA-1 and CID with its
// limit, a bare SHA-256 over the same pieces.
func BenchmarkHasher(b *testing.B) {
	piece := make([]byte, 256<<10)
	b.Run("limit=sha256", func(b *testing.B) {
		b.SetBytes(int64(len(piece)))
		h := sha256.New()
		for b.Loop() {
			h.Write(piece)
		}
	})
	b.Run("hasher", func(b *testing.B) {
		b.SetBytes(int64(len(piece)))
		h := NewHasher(Default)
		for b.Loop() {
			h.Write(piece)
		}
	})
	b.Run("importer", func(b *testing.B) { // what a store does for an upload
		b.SetBytes(int64(len(piece)))
		h := newImporter(Default)
		for b.Loop() {
			h.write(piece)
		}
	})
	b.Run("small-1KiB", func(b *testing.B) {
		b.SetBytes(1 << 10)
		for b.Loop() {
			h := NewHasher(Default)
			h.Write(piece[:1<<10])
			h.Sum()
		}
	})
}
