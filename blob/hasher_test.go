package blob

import (
	"bytes"
	"crypto/sha1"
	"crypto/sha256"
	"errors"
	"io"
	"math/rand/v2"
	"runtime"
	"testing"
	"testing/iotest"

	"github.com/verae/archive/internal/fault"
)

// TestWritesMayBeCutAnywhere feeds the same file in pieces of all sizes, below
// and above the length from which hashing is parallel.
func TestWritesMayBeCutAnywhere(t *testing.T) {
	data := make([]byte, 3*MinChunkSize+12345)
	rng := rand.New(rand.NewPCG(3, 4))
	for i := range data {
		data[i] = byte(rng.Uint32())
	}
	p := Profile{MinChunkSize, MinLinks}
	want, err := SumReader(bytes.NewReader(data), p)
	if err != nil {
		t.Fatal(err)
	}
	if want.SHA256 != sha256.Sum256(data) || want.SHA1 != sha1.Sum(data) || want.Size != int64(len(data)) {
		t.Fatalf("wrong sums: %+v", want)
	}
	for _, most := range []int{1 << 10, parallelFrom, MinChunkSize, MinChunkSize + 1, 2 * MinChunkSize, len(data)} {
		h := NewHasher(p)
		for rest := data; len(rest) > 0; {
			n := min(1+rng.IntN(most), len(rest))
			if got, err := h.Write(rest[:n]); got != n || err != nil {
				t.Fatalf("Write(%d) = %d, %v", n, got, err)
			}
			rest = rest[n:]
		}
		if got := h.Sum(); got != want {
			t.Errorf("pieces of at most %d: %+v, want %+v", most, got, want)
		}
	}
}

func TestSumEndsTheFile(t *testing.T) {
	h := NewHasher(Default)
	first := h.Sum()
	if n, err := h.Write([]byte("late")); n != 0 || !errors.Is(err, errSummed) {
		t.Errorf("Write after Sum = %d, %v", n, err)
	}
	if again := h.Sum(); again != first {
		t.Errorf("second Sum %+v differs from the first %+v", again, first)
	}
}

// TestCutBodyIsNoFile: boxo's splitter takes io.ErrUnexpectedEOF for the end,
// and servers on top of it answered 200 to half an upload.
func TestCutBodyIsNoFile(t *testing.T) {
	for _, n := range []int64{0, 10, 1 << 20, 3 << 20} {
		for _, cut := range []error{io.ErrUnexpectedEOF, errors.New("connection reset")} {
			r := io.MultiReader(keystream(t, "cut", n), iotest.ErrReader(cut))
			if got, err := SumReader(r, Default); !errors.Is(err, cut) || got != (Sums{}) {
				t.Errorf("%d bytes, then %v: %+v, %v; want the error and no sums", n, cut, got, err)
			}
		}
	}
}

func TestProfileBounds(t *testing.T) {
	tests := []struct {
		p     Profile
		field string // "" if allowed
	}{
		{Default, ""}, {Legacy, ""},
		{Profile{MinChunkSize, MinLinks}, ""}, {Profile{MaxChunkSize, MaxLinks}, ""},
		{Profile{MinChunkSize - 1, MinLinks}, "chunkSize"}, {Profile{MaxChunkSize + 1, MinLinks}, "chunkSize"},
		{Profile{MinChunkSize, MinLinks - 1}, "maxLinks"}, {Profile{MinChunkSize, MaxLinks + 1}, "maxLinks"},
		{Profile{}, "chunkSize"}, {Profile{-1, -1}, "chunkSize"},
	}
	for _, tt := range tests {
		err := tt.p.Check()
		if (err != nil) != (tt.field != "") || fault.FieldOf(err) != tt.field {
			t.Errorf("Check(%+v) = %v, want a fault in %q", tt.p, err, tt.field)
		}
		if err != nil && (!fault.Is(err, fault.Invalid) || fault.CodeOf(err) != CodeBadProfile) {
			t.Errorf("Check(%+v) is %v %s", tt.p, fault.KindOf(err), fault.CodeOf(err))
		}
		if _, err := SumReader(bytes.NewReader(nil), tt.p); (err != nil) != (tt.field != "") {
			t.Errorf("SumReader with %+v: %v", tt.p, err)
		}
	}
	defer func() {
		if recover() == nil {
			t.Error("NewHasher took a bad profile")
		}
	}()
	NewHasher(Profile{})
}

// TestHasherMemoryIsConstant hashes 64 MiB and looks at what is still held.
func TestHasherMemoryIsConstant(t *testing.T) {
	h := NewHasher(Default)
	piece := make([]byte, 256<<10)
	held := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := held()
	for i := range 256 {
		piece[0] = byte(i)
		if _, err := h.Write(piece); err != nil {
			t.Fatal(err)
		}
	}
	if after := held(); after > before+512<<10 {
		t.Errorf("the Hasher holds %d KiB after 64 MiB", (after-before)>>10)
	}
	if got := h.Sum().Size; got != 64<<20 {
		t.Errorf("size %d", got)
	}
}
