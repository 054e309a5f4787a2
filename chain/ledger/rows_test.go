package ledger

import (
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/mod/sumdb/tlog"
	"pgregory.net/rapid"

	"github.com/verae/archive/chain"
	"github.com/verae/archive/internal/tlogx"
	"github.com/verae/archive/wire"
)

// The samples of the frozen layout. Each has a golden file in testdata; a new
// layout adds files and changes none.
var (
	sampleTime = time.Date(2026, 1, 2, 3, 4, 5, 678901234, time.UTC)
	sampleSeal = chain.Seal{
		Digest:       wire.Digest{0x01, 0x02, 31: 0xff},
		LeafIndex:    41,
		BlockIndex:   7,
		TreeSize:     44,
		Time:         sampleTime,
		JobID:        "0190a6c0-3b1e-7c55-8a4f-0123456789ab",
		SubmissionID: "0190a6c0-3b1e-7c55-8a4f-cdef01234567",
		FileID:       wire.RecordID{0xaa, 31: 0xbb},
		Origin:       "verae.local/ledger",
	}
	sampleMeta = meta{created: sampleTime, vkey: "verae.local/ledger+1a2b3c4d+AQIDBAUGBwg="}
)

func bareSeal() chain.Seal {
	s := sampleSeal
	s.SubmissionID, s.FileID = "", wire.RecordID{}
	return s
}

func sampleBlock(t testing.TB) *blockRow {
	edge, err := tlogx.EdgeOf(5, []tlog.Hash{{1}, {2}})
	if err != nil {
		t.Fatal(err)
	}
	return &blockRow{index: 2, first: 5, count: 3, time: sampleTime, root: tlog.Hash{9, 31: 9}, before: edge, checkpoint: []byte("origin\n8\nroot\n\n— origin sig\n")}
}

// golden compares data with a file of hex lines.
func golden(t *testing.T, name string, data []byte) {
	t.Helper()
	want, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), hexLines(data)); diff != "" {
		t.Errorf("%s is frozen (-want +got):\n%s", name, diff)
	}
}

func hexLines(data []byte) string {
	var b strings.Builder
	for line := range slices.Chunk(data, 32) {
		b.WriteString(hex.EncodeToString(line))
		b.WriteByte('\n')
	}
	return b.String()
}

func TestRowLayoutsAreFrozen(t *testing.T) {
	golden(t, "seal.v1.hex", encodeSeal(sampleSeal))
	golden(t, "seal-bare.v1.hex", encodeSeal(bareSeal()))
	golden(t, "block.v1.hex", sampleBlock(t).encode())
	golden(t, "meta.v1.hex", sampleMeta.encode())
	keys := [][]byte{metaKey(), numberKey(prefixLeaf, 1), numberKey(prefixHash, 1<<40), sealKey(sampleSeal.Digest), numberKey(prefixBlock, 258)}
	golden(t, "keys.v1.hex", slices.Concat(keys...))
}

func TestRowsAreReadAsWritten(t *testing.T) {
	for _, want := range []chain.Seal{sampleSeal, bareSeal()} {
		got, err := decodeSeal(want.Digest, want.Origin, encodeSeal(want))
		if err != nil || got != want {
			t.Errorf("seal: %+v, %v", got, err)
		}
	}
	want := sampleBlock(t)
	got, err := decodeBlock(want.index, want.encode())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(blockRow{}, tlogx.Edge{})); diff != "" {
		t.Error(diff)
	}
	m, err := decodeMeta(sampleMeta.encode())
	if err != nil || m != sampleMeta {
		t.Errorf("meta: %+v, %v", m, err)
	}
}

func TestAnySealRowIsReadAsWritten(t *testing.T) {
	uuid := rapid.Custom(func(t *rapid.T) string {
		return unpackUUID([16]byte(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "uuid")))
	})
	rapid.Check(t, func(t *rapid.T) {
		leaf := rapid.Int64Range(0, 1<<60).Draw(t, "leaf")
		want := chain.Seal{
			Digest:     wire.Digest(rapid.SliceOfN(rapid.Byte(), 32, 32).Draw(t, "digest")),
			LeafIndex:  leaf,
			BlockIndex: rapid.Int64Range(0, leaf).Draw(t, "block"),
			TreeSize:   leaf + rapid.Int64Range(1, 4096).Draw(t, "beyond"),
			Time:       time.Unix(0, rapid.Int64Min(0).Draw(t, "time")).UTC(),
			JobID:      wire.JobID(uuid.Draw(t, "job")),
			FileID:     wire.RecordID(rapid.SliceOfN(rapid.Byte(), 32, 32).Draw(t, "file")),
			Origin:     "example.com/x",
		}
		if id := uuid.Draw(t, "submission"); id != unpackUUID([16]byte{}) {
			want.SubmissionID = wire.SubmissionID(id)
		}
		got, err := decodeSeal(want.Digest, want.Origin, encodeSeal(want))
		if err != nil || got != want {
			t.Fatalf("%+v became %+v, %v", want, got, err)
		}
	})
}

// TestDamagedRowsAreRefused flips every bit, cuts at every length, appends, and
// reads every row under another key.
func TestDamagedRowsAreRefused(t *testing.T) {
	other := sampleSeal.Digest
	other[5] ^= 1
	for name, c := range map[string]struct {
		row       []byte
		read      func([]byte) error
		elsewhere func([]byte) error
	}{
		"seal": {
			encodeSeal(sampleSeal),
			func(b []byte) error { _, err := decodeSeal(sampleSeal.Digest, "o", b); return err },
			func(b []byte) error { _, err := decodeSeal(other, "o", b); return err },
		},
		"block": {
			sampleBlock(t).encode(),
			func(b []byte) error { _, err := decodeBlock(2, b); return err },
			func(b []byte) error { _, err := decodeBlock(3, b); return err },
		},
		"meta": {
			sampleMeta.encode(),
			func(b []byte) error { _, err := decodeMeta(b); return err },
			func([]byte) error { return errRow },
		},
	} {
		if err := c.read(c.row); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if err := c.elsewhere(c.row); !errors.Is(err, errRow) {
			t.Errorf("%s under another key: %v", name, err)
		}
		for bit := range len(c.row) * 8 {
			bad := slices.Clone(c.row)
			bad[bit/8] ^= 1 << (bit % 8)
			if err := c.read(bad); !errors.Is(err, errRow) {
				t.Errorf("%s with bit %d flipped: %v", name, bit, err)
			}
		}
		for n := range c.row {
			if err := c.read(c.row[:n]); !errors.Is(err, errRow) {
				t.Errorf("%s cut to %d bytes: %v", name, n, err)
			}
		}
		if err := c.read(append(slices.Clone(c.row), 0)); !errors.Is(err, errRow) {
			t.Errorf("%s with a byte more: %v", name, err)
		}
	}
}

// resealed gives a row of the fuzzer a right crc, so that the fields behind it
// are reached.
func resealed(row, key []byte) []byte {
	if len(row) < crcSize {
		return row
	}
	return appendCRC(slices.Clone(row[:len(row)-crcSize]), key)
}

func FuzzDecodeSeal(f *testing.F) {
	f.Add(encodeSeal(sampleSeal))
	f.Add(encodeSeal(bareSeal()))
	f.Add([]byte{rowVersion})
	f.Fuzz(func(t *testing.T, row []byte) {
		row = resealed(row, sealKey(sampleSeal.Digest))
		s, err := decodeSeal(sampleSeal.Digest, "o", row)
		if err == nil && !slices.Equal(encodeSeal(s), row) {
			t.Errorf("two rows of one seal: %x and %x", row, encodeSeal(s))
		}
	})
}

func FuzzDecodeBlock(f *testing.F) {
	f.Add(sampleBlock(f).encode())
	first := sampleBlock(f)
	first.first, first.before = 0, &tlogx.Edge{}
	f.Add(first.encode())
	f.Add(make([]byte, 80))
	f.Fuzz(func(t *testing.T, row []byte) {
		row = resealed(row, numberKey(prefixBlock, 2))
		b, err := decodeBlock(2, row)
		if err == nil && !slices.Equal(b.encode(), row) {
			t.Errorf("two rows of one block: %x and %x", row, b.encode())
		}
	})
}

func FuzzDecodeMeta(f *testing.F) {
	f.Add(sampleMeta.encode())
	f.Add(make([]byte, 20))
	f.Fuzz(func(t *testing.T, row []byte) {
		row = resealed(row, metaKey())
		m, err := decodeMeta(row)
		if err == nil && !slices.Equal(m.encode(), row) {
			t.Errorf("two meta rows: %x and %x", row, m.encode())
		}
	})
}

func TestKeysAreReadAsWritten(t *testing.T) {
	for _, n := range []int64{0, 1, 255, 1 << 40, 1<<63 - 1} {
		if got, err := numberOf(numberKey(prefixLeaf, n)); err != nil || got != n {
			t.Errorf("%d became %d, %v", n, got, err)
		}
	}
	for _, bad := range [][]byte{nil, {prefixLeaf}, make([]byte, 10), {prefixLeaf, 0x80, 0, 0, 0, 0, 0, 0, 0}} {
		if n, err := numberOf(bad); err == nil {
			t.Errorf("key %x is number %d", bad, n)
		}
	}
	if d, ok := digestOf(sealKey(sampleSeal.Digest)); !ok || d != sampleSeal.Digest {
		t.Error("the digest of a seal key is lost")
	}
	for _, bad := range [][]byte{nil, numberKey(prefixSeal, 1), append([]byte{prefixLeaf}, make([]byte, 32)...)} {
		if _, ok := digestOf(bad); ok {
			t.Errorf("key %x has a digest", bad)
		}
	}
}
