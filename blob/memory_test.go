package blob

import (
	"io"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// heapInUse returns the bytes of live objects.
func heapInUse() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// TestUploadMemoryIsBounded uploads 32 MiB to a disk (2 GiB with -huge) and looks
// at what the store holds while the upload is open and while it is read.
func TestUploadMemoryIsBounded(t *testing.T) {
	size, limit := int64(32<<20), int64(4<<20)
	if *huge {
		size = 2 << 30
	}
	s := openStore(t, StoreConfig{Dir: filepath.Join(t.TempDir(), "blobs"), FS: vfs.Default, Create: true, DiskReserve: 1, CacheBytes: 2 << 20})
	before := heapInUse()
	if err := s.Open("u", Default); err != nil {
		t.Fatal(err)
	}
	r, h, piece := keystream(t, "memory", size), NewHasher(Default), make([]byte, 256<<10)
	for off := int64(0); off < size; off += int64(len(piece)) {
		if _, err := io.ReadFull(r, piece); err != nil {
			t.Fatal(err)
		}
		if _, err := h.Write(piece); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Write("u", off, piece); err != nil {
			t.Fatal(err)
		}
	}
	if held := heapInUse() - before; held > limit {
		t.Errorf("an open upload of %d MiB holds %d KiB", size>>20, held>>10)
	}
	sums := h.Sum()
	if _, err := s.Commit(t.Context(), "u", sums.Size, sums.SHA256, sums.CID); err != nil {
		t.Fatal(err)
	}
	for off := int64(0); off < size; off += int64(len(piece)) {
		if _, _, err := s.Read(t.Context(), sums.CID, off, len(piece)); err != nil {
			t.Fatal(err)
		}
	}
	if held := heapInUse() - before; held > limit {
		t.Errorf("a store of %d MiB holds %d KiB after reading it", size>>20, held>>10)
	}
}
