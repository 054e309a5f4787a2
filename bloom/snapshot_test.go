package bloom

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/verae/archive/internal/fault"
)

// fleet are parameters under the secret that all snapshots of these tests have.
var fleet = Params{Capacity: MinCapacity, Rebuilds: true, Secret: Secret{ID: 5, Key: reference}}

// sample is a set of the first n keys and what a snapshot of it is.
func sample(t testing.TB, p Params, n uint64) (*Set, []byte) {
	t.Helper()
	s := filled(p, n)
	return s, snapshot(t, s, Mark{Identity: [16]byte{1, 2, 3}, Seq: n, Head: [32]byte{9}})
}

func snapshot(t testing.TB, s *Set, at Mark) []byte {
	t.Helper()
	var b bytes.Buffer
	n, err := s.WriteSnapshotTo(&b, at)
	if err != nil || n != int64(b.Len()) {
		t.Fatalf("%d bytes written, %d counted: %v", b.Len(), n, err)
	}
	return b.Bytes()
}

func read(b []byte, p Params) (*Set, Received, error) {
	s, got, err := ReadSnapshot(bytes.NewReader(b), int64(len(b)), p)
	if err == nil {
		s.Complete()
	}
	return s, got, err
}

// TestSnapshotFormatIsFrozen writes the golden file, byte for byte, and reads it.
func TestSnapshotFormatIsFrozen(t *testing.T) {
	s, b := sample(t, fleet, 1500)
	if s.Generations() != 2 {
		t.Fatalf("%d generations: the file would show too little", s.Generations())
	}
	golden(t, "snapshot.v1.blm", b)
	got, info, err := read(b, fleet)
	if err != nil {
		t.Fatal(err)
	}
	denied(t, got, 1500)
	if info.Mark != (Mark{[16]byte{1, 2, 3}, 1500, [32]byte{9}}) || info.CorruptChunks != 0 {
		t.Errorf("read back: %+v", info)
	}
	want, have := s.Stats(), got.Stats()
	if want.Keys != have.Keys || want.Bytes != have.Bytes || want.Fill != have.Fill || want.BaseFill != have.BaseFill || have.Damaged {
		t.Errorf("read back: %+v, was %+v", have, want)
	}
	if w, h := wrong(s, 50_000), wrong(got, 50_000); w != h {
		t.Errorf("%d of 50000 wrong, %d before", h, w)
	}
}

// Every byte of a snapshot flipped, cut, zeroed: no panic, nothing denied, and
// no memory that the file does not account for.
func TestEveryByteOfASnapshotIsChecked(t *testing.T) {
	s, b := sample(t, fleet, 1500)
	h, err := readHeader(func(p []byte, off int64) error { copy(p, b[off:]); return nil }, uint64(len(b)))
	if err != nil {
		t.Fatal(err)
	}
	bits := []byte{0x01, 0x80, 0xff}
	for i := range b {
		for _, x := range bits {
			b[i] ^= x
			got, info, err := read(b, fleet)
			b[i] ^= x
			switch {
			case uint64(i) < h.length():
				if err == nil {
					t.Fatalf("byte %d of the header flipped by %x: accepted", i, x)
				}
			case err != nil || info.CorruptChunks != 1 || !got.Stats().Damaged:
				t.Fatalf("byte %d flipped by %x: %d corrupt chunks, %v", i, x, info.CorruptChunks, err)
			case i%101 == 0:
				denied(t, got, 1500)
			}
			if i%7 != 0 {
				break // all three at some bytes, one at each
			}
		}
	}
	for n := range b {
		if _, _, err := read(b[:n], fleet); fault.CodeOf(err) != "SNAPSHOT_CORRUPT" {
			t.Fatalf("cut to %d bytes: %v", n, err)
		}
		if _, _, err := ReadSnapshot(bytes.NewReader(b[:n]), int64(len(b)), fleet); err == nil {
			t.Fatalf("cut to %d bytes behind its back: accepted", n)
		}
	}
	if _, _, err := read(append(b, 0), fleet); fault.CodeOf(err) != "SNAPSHOT_CORRUPT" {
		t.Errorf("one byte too many: %v", err)
	}
	if s.Ready() {
		denied(t, s, 1500)
	}
}

// remade returns the snapshot with a header that f changed, and right checksums.
func remade(t testing.TB, b []byte, f func(*header)) []byte {
	t.Helper()
	size := uint64(len(b))
	h, err := readHeader(func(p []byte, off int64) error { copy(p, b[off:]); return nil }, size)
	if err != nil {
		t.Fatal(err)
	}
	body := b[h.length():]
	f(&h)
	return append(h.append(nil), body...)
}

// Headers with right checksums that say what must not be believed.
func TestHeadersThatLieAreRefused(t *testing.T) {
	_, b := sample(t, fleet, 1500)
	for name, tc := range map[string]struct {
		change func(*header)
		code   string
	}{
		"positions + 1 and no chunk for it": {func(h *header) { h.gens[0].k++ }, ""}, // every chunk's checksum says no
		"bits + 1":                          {func(h *header) { h.gens[0].m++ }, "SNAPSHOT_CORRUPT"},
		"bits + a line":                     {func(h *header) { h.gens[0].m += lineBits }, "SNAPSHOT_CORRUPT"},
		"no bits":                           {func(h *header) { h.gens[0].m = 0 }, "SNAPSHOT_CORRUPT"},
		"no positions":                      {func(h *header) { h.gens[0].k = 0 }, "SNAPSHOT_CORRUPT"},
		"too many positions":                {func(h *header) { h.gens[0].k = maxK + 1 }, "SNAPSHOT_CORRUPT"},
		"2^62 bits":                         {func(h *header) { h.gens[0].m = 1 << 62 }, "SNAPSHOT_CORRUPT"},
		"2^63 bits, to overflow":            {func(h *header) { h.gens[0].m = 1 << 63; h.gens[1].m = 1 << 63 }, "SNAPSHOT_CORRUPT"},
		"64 generations of 2^42":            {func(h *header) { h.gens = slices.Repeat([]shape{{m: maxBits, k: 1}}, maxGenerations) }, "SNAPSHOT_CORRUPT"},
		"no generation":                     {func(h *header) { h.gens = nil }, "SNAPSHOT_CORRUPT"},
		"too many generations":              {func(h *header) { h.gens = make([]shape, maxGenerations+1) }, "SNAPSHOT_CORRUPT"},
		"more ones than bits":               {func(h *header) { h.gens[0].ones = h.gens[0].m + 1 }, "SNAPSHOT_CORRUPT"},
		"more keys than bits":               {func(h *header) { h.gens[0].keys = h.gens[0].m + 1 }, "SNAPSHOT_CORRUPT"},
		"no secret":                         {func(h *header) { h.secretID = 0 }, "SNAPSHOT_CORRUPT"},
		"another secret":                    {func(h *header) { h.secretID++ }, "SNAPSHOT_SECRET"},
		"another store":                     {func(h *header) { h.mark.Identity[0]++ }, ""}, // the caller compares
		"generations in turns":              {func(h *header) { h.gens[0], h.gens[1] = h.gens[1], h.gens[0] }, ""},
		"beyond the last sequence":          {func(h *header) { h.mark.Seq = 1<<64 - 1 }, ""}, // Load compares
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		got, info, err := read(remade(t, b, tc.change), fleet)
		runtime.ReadMemStats(&after)
		if fault.CodeOf(err) != tc.code || err == nil && info.CorruptChunks == 0 {
			t.Errorf("%s: %d corrupt chunks, %v", name, info.CorruptChunks, err)
		}
		if grown := after.TotalAlloc - before.TotalAlloc; grown > 1<<20 {
			t.Errorf("%s: %d bytes were allocated for a file of %d", name, grown, len(b))
		}
		if err == nil {
			denied(t, got, 1500)
		}
	}
	unknown := slices.Clone(b)
	unknown[28] = 0x80 // a flag
	end := headerBytes + 2*generationBytes
	binary.BigEndian.PutUint32(unknown[end:], crc32.Checksum(unknown[:end], castagnoli))
	if _, _, err := read(unknown, fleet); fault.CodeOf(err) != "SNAPSHOT_CORRUPT" {
		t.Errorf("an unknown flag: %v", err)
	}
	wrongVersion := slices.Clone(b)
	wrongVersion[7]++
	if _, _, err := read(wrongVersion, fleet); fault.CodeOf(err) != "SNAPSHOT_VERSION" {
		t.Errorf("another version: %v", err)
	}
	tight := fleet
	tight.MaxBytes = 1000
	if _, _, err := read(b, tight); fault.CodeOf(err) != "SNAPSHOT_MEMORY" {
		t.Errorf("more than MaxBytes: %v", err)
	}
	// Sixteen times 2^60 bytes are none in 64 bits.
	var wrapped header
	lie := remade(t, b, func(h *header) {
		h.gens = slices.Repeat([]shape{{m: 1 << 63, k: 1}}, 16)
		wrapped = *h
	})
	if length, _, _ := wrapped.size(); length > 1<<60 {
		t.Fatalf("%d bytes: no overflow", length)
	} else if _, _, err := ReadSnapshot(bytes.NewReader(lie), int64(length), fleet); fault.CodeOf(err) != "SNAPSHOT_CORRUPT" {
		t.Errorf("a size that overflows: %v", err)
	}
	if _, _, err := ReadSnapshot(bytes.NewReader(nil), -1, fleet); fault.CodeOf(err) != "SNAPSHOT_CORRUPT" {
		t.Errorf("a negative length: %v", err)
	}
}

// A chunk of another snapshot of the same set, or of another place in this one,
// has a right checksum of its own, and is not taken for this one's.
func TestChunksBelongToTheirPlace(t *testing.T) {
	p := Params{Capacity: 100_000, Secret: fleet.Secret}
	s, early := sample(t, p, 10_000)
	for i := range uint64(10_000) {
		s.Add(key(10_000 + i))
	}
	late := snapshot(t, s, Mark{Seq: 20_000})
	if len(early) != len(late) || len(late) < 3*chunkBytes {
		t.Fatalf("%d and %d bytes", len(early), len(late))
	}
	header := len(late) - int(s.state.Load().bytes()) - sumBytes*int((s.state.Load().bytes()+chunkBytes-1)/chunkBytes)
	chunk := func(b []byte, i int) []byte { return b[header+i*(chunkBytes+sumBytes):][:chunkBytes+sumBytes] }
	stale, moved := slices.Clone(late), slices.Clone(late)
	copy(chunk(stale, 1), chunk(early, 1))
	copy(chunk(moved, 1), chunk(late, 0))
	for name, b := range map[string][]byte{"stale": stale, "moved": moved} {
		got, info, err := read(b, p)
		if err != nil || info.CorruptChunks != 1 {
			t.Fatalf("%s: %d corrupt chunks, %v", name, info.CorruptChunks, err)
		}
		denied(t, got, 20_000)
	}
}

// What nobody knows stays known as such: in the snapshot of a set that was read
// from a damaged one, until a rebuild.
func TestDamageIsRememberedUntilARebuild(t *testing.T) {
	_, b := sample(t, fleet, 1000)
	b[len(b)-100] ^= 1
	s, _, err := read(b, fleet)
	if err != nil {
		t.Fatal(err)
	}
	s, info, err := read(snapshot(t, s, Mark{}), fleet)
	if err != nil || info.CorruptChunks != 0 || !s.Stats().Damaged {
		t.Fatalf("%d corrupt chunks, damaged %v, %v", info.CorruptChunks, s.Stats().Damaged, err)
	}
	rebuildIfNeeded(t, s, 999) // key 0 is left to the sample of nobody
	s, _, err = read(snapshot(t, s, Mark{}), fleet)
	if err != nil || s.Stats().Damaged {
		t.Errorf("after a rebuild: damaged %v, %v", s.Stats().Damaged, err)
	}
}

func TestOnlyACompleteSetHasASnapshot(t *testing.T) {
	refuse := func(s *Set, code string) {
		t.Helper()
		n, err := s.WriteSnapshotTo(io.Discard, Mark{})
		if fault.CodeOf(err) != code || n != 0 {
			t.Errorf("%d bytes, %v; want %s", n, err, code)
		}
	}
	s := New(fleet)
	refuse(s, "FILTER_INCOMPLETE")
	s.Complete()
	s.Add(key(1))
	s.state.Load().gens[0].words = make([]uint64, len(s.state.Load().gens[0].words)) // all of it rots
	if s.Scrub(s.Hash(key(1))) != 1 {
		t.Fatal("a scrub finds nothing")
	}
	refuse(s, "FILTER_DENIES")
	own := New(Params{})
	own.Complete()
	refuse(own, "NO_FLEET_SECRET")
	many := filled(fleet, 1)
	st := *many.state.Load()
	st.gens = slices.Repeat(st.gens, maxGenerations+1)
	many.state.Store(&st)
	refuse(many, "FILTER_GENERATIONS")
}

type failing struct{ left int }

func (w *failing) Write(b []byte) (int, error) {
	if len(b) > w.left {
		return w.left, errors.New("full")
	}
	w.left -= len(b)
	return len(b), nil
}

func TestSnapshotToAWriterThatFails(t *testing.T) {
	s, b := sample(t, fleet, 1500)
	for left := range len(b) {
		if n, err := s.WriteSnapshotTo(&failing{left}, Mark{}); err == nil || n != int64(left) {
			t.Fatalf("%d bytes of room: %d written, %v", left, n, err)
		}
	}
}

// A snapshot that is written while keys are added has every key that was added
// before it was begun. It is worth most under -race.
func TestSnapshotBesideWriters(t *testing.T) {
	n := uint64(40_000)
	if testing.Short() {
		n = 8_000
	}
	var store committing
	s := New(fleet)
	s.Complete()
	var committed atomic.Uint64
	var working sync.WaitGroup
	working.Go(func() {
		for i := range n {
			if i%500 == 0 {
				if capacity, needed := s.NeedsRebuild(); needed {
					r, err := s.StartRebuild(capacity)
					if err != nil {
						t.Error(err)
						return
					}
					keys := hashes(s, store.scan()...)
					working.Go(func() {
						r.AddHash(keys...)
						if err := r.Swap(slices.Values(keys)); err != nil {
							t.Error(err)
						}
					})
				}
			}
			s.Add(key(i))
			store.commit(key(i))
			committed.Store(i + 1)
		}
	})
	for round := 0; committed.Load() < n || round < 3; round++ {
		at := committed.Load() // first
		got, info, err := read(snapshot(t, s, Mark{Seq: at}), fleet)
		if err != nil || info.Mark.Seq != at {
			t.Fatalf("%+v, %v", info, err)
		}
		denied(t, got, at)
	}
	working.Wait()
	if s.Stats().Rebuilds == 0 {
		t.Error("no rebuild: less was tested than should be")
	}
}

// A snapshot that is announced with its size has every key that was there then, and
// exactly that size, although more generations came before it was written.
func TestSnapshotHasTheSizeThatWasAnnounced(t *testing.T) {
	s := filled(fleet, 500)
	size, write, err := s.Snapshot(Mark{Seq: 7})
	if err != nil {
		t.Fatal(err)
	}
	for i := uint64(500); s.Generations() < 3; i++ {
		s.Add(key(i))
	}
	var text bytes.Buffer
	if n, err := write(&text); err != nil || uint64(n) != size || uint64(text.Len()) != size {
		t.Fatalf("%d bytes, %d written, %d announced: %v", text.Len(), n, size, err)
	}
	got, info, err := ReadSnapshot(&text, int64(size), fleet)
	if err != nil || info.Mark.Seq != 7 {
		t.Fatal(info, err)
	}
	got.Complete()
	denied(t, got, 500)
}
