package blob

import (
	"bytes"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write new golden files; never for rows that are stored anywhere")

func goldenRows() []struct {
	name string
	row  row
} {
	file := [32]byte(bytes.Repeat([]byte{0xaa}, 32))
	digest := [32]byte(bytes.Repeat([]byte{0x11}, 32))
	raw := rootInfo{cid: CID{file, true}, file: file, size: 5, profile: Default}
	large := rootInfo{cid: CID{digest, false}, file: file, size: 1<<40 + 1, profile: Legacy}
	return []struct {
		name string
		row  row
	}{
		{"meta", seal(layoutKey, []byte{0, 0, 0, layoutVersion})},
		{"owner", seal(ownerKey, []byte("archive-a"))},
		{"node", seal(nodeKey(digest), []byte("the bytes of a node"))},
		{"leaf", leafRef{file: file, offset: 3 << 20, length: 1 << 20}.row(digest)},
		{"root-raw", raw.rows()[0]},
		{"file-raw", raw.rows()[1]},
		{"root-dagpb", large.rows()[0]},
		{"file-dagpb", large.rows()[1]},
	}
}

// TestRowsAreFrozen: what is on disks is read for ever.
func TestRowsAreFrozen(t *testing.T) {
	var got strings.Builder
	for _, r := range goldenRows() {
		fmt.Fprintf(&got, "%s %x %x\n", r.name, r.row.key, r.row.value)
	}
	path := filepath.Join("testdata", "rows.v1.golden")
	if *update {
		if err := os.WriteFile(path, []byte(got.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got.String() != string(want) {
		t.Errorf("rows are\n%s\nwant\n%s", got.String(), want)
	}
	for line := range strings.Lines(string(want)) {
		f := strings.Fields(line)
		key, err1 := hex.DecodeString(f[1])
		value, err2 := hex.DecodeString(f[2])
		if err := errors.Join(err1, err2, parseRow(key, value)); err != nil {
			t.Errorf("%s: %v", f[0], err)
		}
	}
}

// parseRow decodes a row of any kind.
func parseRow(key, value []byte) error {
	if len(key) == 0 {
		return errRow
	}
	var err error
	switch key[0] {
	case rowLeaf:
		_, err = parseLeaf(key, value)
	case rowRoot:
		_, err = parseRoot(key, value)
	case rowFile:
		_, _, _, err = parseFile(key, value)
	default:
		_, err = unseal(key, value)
	}
	return err
}

// TestEveryBitOfARowCounts flips each bit of key and value.
func TestEveryBitOfARowCounts(t *testing.T) {
	for _, r := range goldenRows() {
		for bit := range (len(r.row.key) + len(r.row.value)) * 8 {
			key, value := bytes.Clone(r.row.key), bytes.Clone(r.row.value)
			if i := bit / 8; i < len(key) {
				key[i] ^= 1 << (bit % 8)
			} else {
				value[i-len(key)] ^= 1 << (bit % 8)
			}
			if err := parseRow(key, value); !errors.Is(err, errRow) {
				t.Fatalf("%s with bit %d flipped: %v", r.name, bit, err)
			}
		}
		for n := range r.row.value {
			if err := parseRow(r.row.key, r.row.value[:n]); !errors.Is(err, errRow) {
				t.Fatalf("%s cut to %d bytes: %v", r.name, n, err)
			}
		}
	}
}

// TestRowsWithAGoodChecksumAreStillChecked: a checksum says that a row is what
// was written, not that it makes sense.
func TestRowsWithAGoodChecksumAreStillChecked(t *testing.T) {
	d := [32]byte{1}
	future := seal(nodeKey(d), nil)
	future.value[0] = rowVersion + 1
	future = row{key: future.key, value: append(future.value[:1:1], sum32(future.key, future.value[:1])...)}
	bad := map[string]row{
		"version of the future": future,
		"short leaf":            seal(leafKey(d), make([]byte, 43)),
		"leaf too long":         leafRef{file: d, length: MaxChunkSize + 1}.row(d),
		"leaf before the file":  leafRef{file: d, offset: -1, length: 1}.row(d),
		"short root":            seal(rootKey(CID{Digest: d}), make([]byte, 47)),
		"root of no profile":    rootInfo{cid: CID{Digest: d}}.rows()[0],
		"root of negative size": rootInfo{cid: CID{Digest: d}, size: -1, profile: Default}.rows()[0],
		"root under a long key": seal(append(rootKey(CID{Digest: d}), 0), make([]byte, 48)),
		"short file":            seal(fileKey(d, CID{Digest: d}), make([]byte, 7)),
		"file under a long key": seal(append(fileKey(d, CID{Digest: d}), 0), make([]byte, 8)),
	}
	for name, r := range bad {
		if err := parseRow(r.key, r.value); !errors.Is(err, errRow) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func sum32(key, framed []byte) []byte {
	n := rowSum(key, framed)
	return []byte{byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)}
}

func FuzzRows(f *testing.F) {
	for _, r := range goldenRows() {
		f.Add(r.row.key, r.row.value)
		f.Add(r.row.key, r.row.value[1:len(r.row.value)-4]) // payload alone, to be sealed below
	}
	f.Fuzz(func(t *testing.T, key, value []byte) {
		sealed := seal(key, value)
		for _, v := range [][]byte{value, sealed.value} {
			if err := parseRow(key, v); err != nil && !errors.Is(err, errRow) {
				t.Errorf("%x %x: %v", key, v, err)
			}
		}
		if got, err := unseal(key, sealed.value); err != nil || !bytes.Equal(got, value) {
			t.Errorf("a sealed row does not open: %x, %v", got, err)
		}
	})
}

// FuzzNode: whatever decodes as an inner node has consistent sizes.
func FuzzNode(f *testing.F) {
	data := make([]byte, 3*MinChunkSize)
	_, blocks := importAll(data, small)
	for _, b := range blocks {
		if len(b) < MinChunkSize {
			f.Add(b)
		}
	}
	f.Add([]byte{})
	f.Add([]byte{0x0a, 0x02, 0x08, 0x01})
	f.Fuzz(func(t *testing.T, b []byte) {
		v, err := parseNode(b)
		if err != nil {
			return
		}
		if len(v.children) == 0 || len(v.children) != len(v.ends) || len(v.children) > MaxLinks {
			t.Fatalf("%d children, %d ends", len(v.children), len(v.ends))
		}
		for i, off := range v.ends {
			c, begin, n := v.child(off - 1)
			if c != v.children[i] || begin+n != off || n <= 0 {
				t.Fatalf("byte %d is in %v from %d, %d bytes", off-1, c, begin, n)
			}
		}
	})
}
