package tlogx_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/transparency-dev/merkle/compact"
	"github.com/transparency-dev/merkle/proof"
	"github.com/transparency-dev/merkle/rfc6962"
	"golang.org/x/mod/sumdb/tlog"
	"pgregory.net/rapid"

	"github.com/verae/archive/internal/tlogx"
)

// sizes is how far the exhaustive tests go: past two full tiles.
const sizes = 600

// memory is a store of hashes that refuses what an append-only store refuses.
type memory struct {
	t      testing.TB
	hashes []tlog.Hash
	reads  int
}

func (m *memory) put(index int64, h tlog.Hash) {
	m.t.Helper()
	if index != int64(len(m.hashes)) {
		m.t.Fatalf("stored hash %d comes after %d hashes", index, len(m.hashes))
	}
	m.hashes = append(m.hashes, h)
}

func (m *memory) reader() tlog.HashReader {
	return tlogx.ReadEach(func(index int64) (tlog.Hash, error) {
		m.reads++
		if index >= int64(len(m.hashes)) {
			return tlog.Hash{}, fmt.Errorf("hash %d was never stored", index)
		}
		return m.hashes[index], nil
	})
}

func leaf(i int64) tlog.Hash { return tlog.RecordHash(fmt.Appendf(nil, "leaf %d", i)) }

// second is the root by another implementation of RFC 6962.
type second struct {
	r *compact.Range
	t testing.TB
}

func newSecond(t testing.TB) *second {
	f := compact.RangeFactory{Hash: rfc6962.DefaultHasher.HashChildren}
	return &second{r: f.NewEmptyRange(0), t: t}
}

func (s *second) append(h tlog.Hash) {
	if err := s.r.Append(h[:], nil); err != nil {
		s.t.Fatal(err)
	}
}

func (s *second) root() []byte {
	root, err := s.r.GetRootHash(nil)
	if err != nil {
		s.t.Fatal(err)
	}
	return root
}

func bytesOf(hashes []tlog.Hash) [][]byte {
	out := make([][]byte, len(hashes))
	for i := range hashes {
		out[i] = hashes[i][:]
	}
	return out
}

// build makes a log of n leaves and returns its store and the root at every size.
func build(t testing.TB, n int64) (*memory, []tlog.Hash) {
	m := &memory{t: t}
	var e tlogx.Edge
	roots := []tlog.Hash{e.Root()}
	for i := range n {
		e.Append(leaf(i), m.put)
		roots = append(roots, e.Root())
	}
	return m, roots
}

func TestRootsAgreeWithSecondImplementation(t *testing.T) {
	_, roots := build(t, sizes)
	other := newSecond(t)
	if got := rfc6962.DefaultHasher.EmptyRoot(); !cmp.Equal(got, roots[0][:]) {
		t.Errorf("empty root %x, want %x", roots[0], got)
	}
	for i := range int64(sizes) {
		other.append(leaf(i))
		if diff := cmp.Diff(other.root(), roots[i+1][:]); diff != "" {
			t.Fatalf("root at size %d (-merkle +tlogx):\n%s", i+1, diff)
		}
	}
}

func TestEveryInclusionProofVerifiesWithSecondImplementation(t *testing.T) {
	m, roots := build(t, sizes)
	for size := int64(1); size <= sizes; size++ {
		for n := range size {
			p, err := tlog.ProveRecord(size, n, m.reader())
			if err != nil {
				t.Fatal(err)
			}
			h := leaf(n)
			err = proof.VerifyInclusion(rfc6962.DefaultHasher, uint64(n), uint64(size), h[:], bytesOf(p), roots[size][:])
			if err != nil {
				t.Fatalf("leaf %d in size %d: %v", n, size, err)
			}
		}
	}
}

func TestEveryConsistencyProofVerifiesWithSecondImplementation(t *testing.T) {
	m, roots := build(t, sizes)
	for to := int64(0); to <= sizes; to++ {
		for from := int64(0); from <= to; from++ {
			p, err := tlogx.Consistency(from, to, m.reader())
			if err != nil {
				t.Fatal(err)
			}
			err = proof.VerifyConsistency(rfc6962.DefaultHasher, uint64(from), uint64(to), bytesOf(p), roots[from][:], roots[to][:])
			if err != nil {
				t.Fatalf("from %d to %d: %v", from, to, err)
			}
		}
	}
	for _, bad := range [][2]int64{{-1, 3}, {4, 3}} {
		if _, err := tlogx.Consistency(bad[0], bad[1], m.reader()); err == nil {
			t.Errorf("a proof from %d to %d was made", bad[0], bad[1])
		}
	}
}

func TestAppendReadsNothing(t *testing.T) {
	m, _ := build(t, sizes)
	if m.reads != 0 {
		t.Errorf("%d reads during %d appends", m.reads, sizes)
	}
}

func TestLoadedEdgeContinuesTheLog(t *testing.T) {
	m, roots := build(t, sizes)
	for size := range int64(sizes) {
		e, err := tlogx.LoadEdge(size, m.reader())
		if err != nil {
			t.Fatal(err)
		}
		if e.Root() != roots[size] || e.Size() != size {
			t.Fatalf("loaded edge of size %d has size %d and another root", size, e.Size())
		}
		again := &memory{t: t, hashes: m.hashes[:tlog.StoredHashCount(size):tlog.StoredHashCount(size)]}
		if n := e.Append(leaf(size), again.put); n != size {
			t.Fatalf("append at size %d gave index %d", size, n)
		}
		if e.Root() != roots[size+1] {
			t.Fatalf("root after size %d and an append differs", size)
		}
		if !slices.Equal(m.hashes[:len(again.hashes)], again.hashes) {
			t.Fatalf("the hashes stored at size %d differ", size)
		}
	}
}

func TestCloneIsIndependent(t *testing.T) {
	var e tlogx.Edge
	m := &memory{t: t}
	for i := range int64(7) {
		e.Append(leaf(i), m.put)
	}
	before := e.Root()
	c := e.Clone()
	c.Append(leaf(7), func(int64, tlog.Hash) {})
	if e.Root() != before || e.Size() != 7 || c.Size() != 8 {
		t.Error("an append to a clone changed the original")
	}
}

// TestProofOfNewLeafReadsNothingOld: with the edge at the start of a block in
// hand, proofs of the block's leaves at the block's end touch only hashes that
// the block itself stored.
func TestProofOfNewLeafReadsNothingOld(t *testing.T) {
	m, roots := build(t, sizes)
	for first := int64(0); first < sizes; first += 7 {
		for _, count := range []int64{1, 2, 3, 7, 64} {
			end := min(first+count, sizes)
			e, err := tlogx.LoadEdge(first, m.reader())
			if err != nil {
				t.Fatal(err)
			}
			oldest := tlog.StoredHashCount(first)
			r := e.Over(tlogx.ReadEach(func(index int64) (tlog.Hash, error) {
				if index < oldest || count == 1 {
					return tlog.Hash{}, fmt.Errorf("read of hash %d, the block starts at %d", index, oldest)
				}
				return m.hashes[index], nil
			}))
			for n := first; n < end; n++ {
				p, err := tlog.ProveRecord(end, n, r)
				if err != nil {
					t.Fatalf("leaf %d of block %d..%d: %v", n, first, end, err)
				}
				if err := tlog.CheckRecord(p, end, roots[end], n, leaf(n)); err != nil {
					t.Fatalf("leaf %d of block %d..%d: %v", n, first, end, err)
				}
			}
		}
	}
}

func TestEdgeRefusesWrongPeaks(t *testing.T) {
	for _, c := range []struct {
		size  int64
		peaks int
	}{{0, 1}, {1, 0}, {3, 1}, {4, 2}, {-1, 0}} {
		if _, err := tlogx.EdgeOf(c.size, make([]tlog.Hash, c.peaks)); err == nil {
			t.Errorf("%d peaks were taken for size %d", c.peaks, c.size)
		}
	}
	if _, err := tlogx.LoadEdge(-1, nil); err == nil {
		t.Error("a negative size was loaded")
	}
	broken := errors.New("disk on fire")
	_, err := tlogx.LoadEdge(3, tlog.HashReaderFunc(func([]int64) ([]tlog.Hash, error) { return nil, broken }))
	if !errors.Is(err, broken) {
		t.Errorf("LoadEdge hid the read error: %v", err)
	}
	e, err := tlogx.EdgeOf(1, make([]tlog.Hash, 1))
	if err != nil {
		t.Fatal(err)
	}
	_, err = e.Over(tlog.HashReaderFunc(func([]int64) ([]tlog.Hash, error) { return nil, nil })).ReadHashes([]int64{5})
	if err == nil {
		t.Error("a reader that returns too few hashes was believed")
	}
}

// TestEdgeAtAnySize checks the arithmetic far beyond what can be built.
func TestEdgeAtAnySize(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.Int64Range(0, 1<<50).Draw(t, "size")
		indexes := tlogx.PeakIndexes(size)
		if len(indexes) != tlogx.PeakCount(size) {
			t.Fatalf("%d indexes, %d peaks", len(indexes), tlogx.PeakCount(size))
		}
		covered, last := int64(0), int64(-1)
		for _, x := range indexes {
			level, n := tlog.SplitStoredHashIndex(x)
			if n<<level != covered || x <= last {
				t.Fatalf("peak %d covers leaves from %d, want from %d", x, n<<level, covered)
			}
			covered, last = covered+1<<level, x
		}
		if covered != size {
			t.Fatalf("peaks cover %d leaves of %d", covered, size)
		}
	})
}

func TestTilesAreTheStoredHashes(t *testing.T) {
	m, roots := build(t, sizes)
	read := func(tiles []tlog.Tile) ([][]byte, error) {
		var out [][]byte
		for _, x := range tiles {
			data, err := tlogx.TileData(sizes, x.L, x.N, x.W, m.reader())
			if err != nil {
				return nil, err
			}
			out = append(out, data)
		}
		return out, nil
	}
	hr := tlog.TileHashReader(tlog.Tree{N: sizes, Hash: roots[sizes]}, tiles{read})
	for n := range int64(sizes) {
		p, err := tlog.ProveRecord(sizes, n, hr)
		if err != nil {
			t.Fatal(err)
		}
		if err := tlog.CheckRecord(p, sizes, roots[sizes], n, leaf(n)); err != nil {
			t.Fatal(err)
		}
	}
}

type tiles struct {
	read func([]tlog.Tile) ([][]byte, error)
}

func (t tiles) Height() int                                { return tlogx.TileHeight }
func (t tiles) ReadTiles(x []tlog.Tile) ([][]byte, error)  { return t.read(x) }
func (t tiles) SaveTiles(tiles []tlog.Tile, data [][]byte) {}

func TestTileBeyondTheLogIsRefused(t *testing.T) {
	m, _ := build(t, sizes)
	for _, c := range []struct {
		name  string
		level int
		n     int64
		width int
		ok    bool
	}{
		{"first full", 0, 0, 256, true},
		{"partial at the end", 0, 2, sizes - 512, true},
		{"one past the end", 0, 2, sizes - 512 + 1, false},
		{"full where partial", 0, 2, 256, false},
		{"level one", 1, 0, 2, true},
		{"level one too wide", 1, 0, 3, false},
		{"level two", 2, 0, 1, false},
		{"absurd level", 8, 0, 1, false},
		{"negative level", -1, 0, 1, false},
		{"negative number", 0, -1, 1, false},
		{"number that overflows", 0, 1 << 62, 1, false},
		{"zero width", 0, 0, 0, false},
		{"too wide", 0, 0, 257, false},
	} {
		data, err := tlogx.TileData(sizes, c.level, c.n, c.width, m.reader())
		if ok := err == nil; ok != c.ok || ok && len(data) != c.width*tlog.HashSize {
			t.Errorf("%s: %d bytes, %v", c.name, len(data), err)
		}
	}
	// What the store holds beyond the size that is asked about is not shown.
	for _, level := range []int{0, 1} {
		if _, err := tlogx.TileData(255, level, 0, 256>>(8*level), m.reader()); err == nil {
			t.Errorf("a tile of level %d of a log of 255 leaves was read from a larger one", level)
		}
	}
}

func BenchmarkAppend(b *testing.B) {
	var e tlogx.Edge
	h := leaf(0)
	b.ReportAllocs()
	for b.Loop() {
		e.Append(h, func(int64, tlog.Hash) {})
	}
}
