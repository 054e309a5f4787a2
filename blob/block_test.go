package blob

import (
	"bytes"
	"crypto/sha256"
	"io"
	"sync"
	"testing"

	"github.com/verae/archive/internal/fault"
)

// blockOf reads a block in pieces, and checks that all say the same size.
func blockOf(t *testing.T, s *Store, cid string, digest [32]byte, piece int) ([]byte, error) {
	t.Helper()
	_, want, err := s.ReadBlock(t.Context(), cid, digest, 0, 0)
	if err != nil {
		return nil, err
	}
	var got []byte
	for int64(len(got)) < want {
		part, size, err := s.ReadBlock(t.Context(), cid, digest, int64(len(got)), piece)
		if err != nil {
			return nil, err
		}
		if size != want || len(part) == 0 {
			t.Fatalf("%d bytes at %d of a block of %d, then %d", len(part), len(got), want, size)
		}
		got = append(got, part...)
	}
	return got, nil
}

// Every block of a file is had by its digest: root, inner nodes and leaves.
func TestEveryBlockIsReadByItsDigest(t *testing.T) {
	s := openStore(t, testConfig(t))
	for _, size := range []int{0, 1, MinChunkSize, MinChunkSize + 1, (MinLinks + 2) * MinChunkSize} {
		data := content(t, "blocks", size)
		sums, _ := store(t, s, "u", data, small)
		blocks, err := s.Blocks(t.Context(), sums.SHA256, sums.CID)
		if err != nil {
			t.Fatal(err)
		}
		leaves := 0
		for _, digest := range blocks {
			block, err := blockOf(t, s, sums.CID, digest, 10_000)
			if err != nil || sha256.Sum256(block) != digest {
				t.Errorf("%d bytes: block %x has %d bytes: %v", size, digest, len(block), err)
			}
			if bytes.Contains(data, block) {
				leaves++
			}
		}
		if want := max(1, (size+MinChunkSize-1)/MinChunkSize); leaves != want {
			t.Errorf("%d bytes: %d leaves, want %d", size, leaves, want)
		}
	}
}

func TestBlockRanges(t *testing.T) {
	s := openStore(t, testConfig(t))
	data := content(t, "ranges", MinChunkSize+5)
	sums, _ := store(t, s, "u", data, small)
	leaf := sha256.Sum256(data[:MinChunkSize])
	for _, tt := range []struct {
		off    int64
		length int
		want   int // bytes; -1: refused
	}{
		{0, 1, 1}, {MinChunkSize - 1, 1, 1}, {MinChunkSize - 1, 9, 1}, {MinChunkSize, 1, 0}, {7, MinChunkSize, MinChunkSize - 7},
		{MinChunkSize + 1, 1, -1}, {-1, 1, -1}, {0, -1, -1},
	} {
		got, size, err := s.ReadBlock(t.Context(), sums.CID, leaf, tt.off, tt.length)
		if tt.want < 0 {
			wantFault(t, err, fault.Invalid, CodeBadRange)
			continue
		}
		if err != nil || size != MinChunkSize || !bytes.Equal(got, data[tt.off:int(tt.off)+tt.want]) {
			t.Errorf("%d at %d: %d bytes of %d, %v", tt.length, tt.off, len(got), size, err)
		}
	}
	_, _, err := s.ReadBlock(t.Context(), rawCID.String(), leaf, 0, 1)
	wantFault(t, err, fault.NotFound, CodeUnknownCID)
	_, _, err = s.ReadBlock(t.Context(), "bafk", leaf, 0, 1)
	wantFault(t, err, fault.Invalid, CodeBadCID)
}

// A block that is lost or changed is damage, never missing and never served. A
// leaf that two files have is had from the other one.
func TestDamagedBlockIsDamage(t *testing.T) {
	s := openStore(t, testConfig(t))
	data := content(t, "shared", 3*MinChunkSize)
	first, _ := store(t, s, "u", data, small)
	second, _ := store(t, s, "v", append(content(t, "other", MinChunkSize), data...), small)
	shared := sha256.Sum256(data[MinChunkSize : 2*MinChunkSize])
	s = reopen(t, s)
	change(t, s.cfg.FS, s.filePath(first.SHA256), flip(MinChunkSize+9))
	_, _, err := s.ReadBlock(t.Context(), first.CID, shared, 0, 1)
	wantFault(t, err, fault.Corrupt, CodeCorrupt)
	if d := s.Damages(); len(d) != 1 || d[0].SHA256 != first.SHA256 {
		t.Errorf("remembered: %+v", d)
	}
	got, err := blockOf(t, s, second.CID, shared, MinChunkSize)
	if err != nil || !bytes.Equal(got, data[MinChunkSize:2*MinChunkSize]) {
		t.Errorf("the other copy of the leaf: %d bytes, %v", len(got), err)
	}
	nowhere := sha256.Sum256([]byte("nowhere"))
	_, _, err = s.ReadBlock(t.Context(), second.CID, nowhere, 0, 0)
	wantFault(t, err, fault.Corrupt, CodeCorrupt)
}

// Parts of one leaf that are asked for at once have it hashed once.
func TestPartsOfALeafHashItOnce(t *testing.T) {
	s := openStore(t, testConfig(t))
	data := content(t, "once", 2*MinChunkSize)
	sums, _ := store(t, s, "u", data, small)
	s = reopen(t, s)
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			off := int64(i * MinChunkSize / 16)
			if got, _, err := s.Read(t.Context(), sums.CID, off, 100); err != nil || !bytes.Equal(got, data[off:off+100]) {
				t.Errorf("%d bytes at %d: %v", len(got), off, err)
			}
		})
	}
	wg.Wait()
	if n := s.Stats().LeavesVerified; n != 1 {
		t.Errorf("the leaf was hashed %d times", n)
	}
}

// edgesOf are the offsets around everything that begins or ends in a file.
func edgesOf(size, chunk int64) []int64 {
	var out []int64
	for _, at := range []int64{0, 1, chunk - 1, chunk, chunk + 1, 2*chunk - 1, 2 * chunk, size - 1, size} {
		if at >= 0 && at <= size {
			out = append(out, at)
		}
	}
	return out
}

// Sections give exactly their bytes, and read the leaves that have some and no
// other: faults 5 and 8 of other servers.
func TestSectionsReadTheirLeavesOnly(t *testing.T) {
	s := openStore(t, testConfig(t))
	const chunk = MinChunkSize
	for _, size := range []int64{0, 1, chunk - 1, chunk, chunk + 1, 2*chunk + 7} {
		data := content(t, "sections", int(size))
		sums, _ := store(t, s, "u", data, small)
		for _, off := range edgesOf(size, chunk) {
			for _, end := range edgesOf(size, chunk) {
				if end < off {
					continue
				}
				before := s.Stats().LeavesVerified
				r, err := s.NewSection(t.Context(), sums.CID, off, end-off)
				if err != nil {
					t.Fatal(err)
				}
				got, err := io.ReadAll(r)
				if err != nil || !bytes.Equal(got, data[off:end]) {
					t.Errorf("%d to %d of %d: %d bytes, %v", off, end, size, len(got), err)
				}
				if err := r.Close(); err != nil {
					t.Error(err)
				}
				leaves := uint64(0)
				if end > off {
					leaves = uint64((end-1)/chunk - off/chunk + 1)
				}
				if n := s.Stats().LeavesVerified - before; n != leaves {
					t.Errorf("%d to %d of %d: %d leaves were read, want %d", off, end, size, n, leaves)
				}
			}
		}
		for _, bad := range [][2]int64{{-1, 1}, {size + 1, 0}, {0, size + 1}, {size, 1}} {
			_, err := s.NewSection(t.Context(), sums.CID, bad[0], bad[1])
			wantFault(t, err, fault.Invalid, CodeBadRange)
		}
	}
}

// A tree that is deeper than any that is made here, or repeats a link to claim more
// than there is, is damage to every reader: fault 11 of other servers.
func TestTreesThatNobodyMadeAreDamage(t *testing.T) {
	s := openStore(t, testConfig(t))
	data := content(t, "deep", 100)
	sums, _ := store(t, s, "u", data, small)
	leaf := block{cid: CID{Digest: sums.SHA256, Raw: true}, fileSize: 100, dagSize: 100}
	set := func(rows ...row) {
		t.Helper()
		for _, r := range rows {
			if err := s.db.Set(r.key, r.value, nil); err != nil {
				t.Fatal(err)
			}
		}
	}
	grow := func(children ...block) block {
		grown := &tree{onNode: func(digest [32]byte, encoded []byte) { set(seal(nodeKey(digest), encoded)) }}
		n := newInner()
		for _, c := range children {
			n.add(c)
		}
		return grown.finish(n)
	}
	deep := leaf
	for range maxDepth + 1 {
		deep = grow(deep)
	}
	wide := leaf
	for range 5 { // 16^5 times 100 bytes out of a few kilobytes
		wide = grow(wide, wide, wide, wide, wide, wide, wide, wide, wide, wide, wide, wide, wide, wide, wide, wide)
	}
	lies := grow(block{cid: leaf.cid, fileSize: 99, dagSize: 100})
	for name, b := range map[string]block{"deep": deep, "wide": wide, "of another size": lies} {
		set(rootInfo{cid: b.cid, file: sums.SHA256, size: b.fileSize, profile: small}.rows()...)
		cid := b.cid.String()
		if name != "wide" { // has right bytes at its begin
			_, _, err := s.Read(t.Context(), cid, 0, 10)
			wantFault(t, err, fault.Corrupt, CodeCorrupt)
		}
		if r, err := s.NewSection(t.Context(), cid, b.fileSize-1, 1); err != nil {
			wantFault(t, err, fault.Corrupt, CodeCorrupt)
		} else {
			_, err = io.ReadAll(r)
			wantFault(t, err, fault.Corrupt, CodeCorrupt)
			r.Close()
		}
		_, _, err := s.ReadBlock(t.Context(), cid, sha256.Sum256([]byte("no block of it")), 0, 0)
		wantFault(t, err, fault.Corrupt, CodeCorrupt)
	}
}

// How large a block is, and that it is there, is told without reading it: fault 15
// of other servers.
func TestSizeOfABlockIsToldWithoutReadingIt(t *testing.T) {
	s := openStore(t, testConfig(t))
	data := content(t, "size", MinChunkSize+3)
	sums, _ := store(t, s, "u", data, small)
	leaf := sha256.Sum256(data[:MinChunkSize])
	s = reopen(t, s)
	before := s.Stats()
	if _, size, err := s.ReadBlock(t.Context(), sums.CID, leaf, 0, 0); err != nil || size != MinChunkSize {
		t.Errorf("%d, %v", size, err)
	}
	if ok, err := s.Has(t.Context(), sums.SHA256, sums.CID); !ok || err != nil {
		t.Errorf("%t, %v", ok, err)
	}
	if after := s.Stats(); after.LeavesVerified != before.LeavesVerified {
		t.Errorf("%d leaves were read", after.LeavesVerified-before.LeavesVerified)
	}
}
