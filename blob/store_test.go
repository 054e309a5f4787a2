package blob

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/internal/pebblex"
)

// small is the profile of most tests: the least that is allowed.
var small = Profile{MinChunkSize, MinLinks}

// testConfig is a new store in memory. A fatal error of its index fails the test.
func testConfig(t testing.TB) StoreConfig {
	return StoreConfig{
		Dir: "blobs", FS: vfs.NewMem(), Create: true,
		OnFatal: func(reason string) { t.Errorf("fatal: %s", reason); panic(reason) },
	}
}

func openStore(t testing.TB, cfg StoreConfig) *Store {
	t.Helper()
	s, err := OpenStore(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func reopen(t testing.TB, s *Store) *Store {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	cfg := s.cfg
	cfg.Create = false
	return openStore(t, cfg)
}

// content returns n bytes that differ from leaf to leaf.
func content(t testing.TB, seed string, n int) []byte {
	t.Helper()
	b, err := io.ReadAll(keystream(t, seed, int64(n)))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func sumsOf(t testing.TB, data []byte, p Profile) Sums {
	t.Helper()
	sums, err := SumReader(bytes.NewReader(data), p)
	if err != nil {
		t.Fatal(err)
	}
	return sums
}

// send opens an upload and writes all of data in fragments of 256 KiB.
func send(t testing.TB, s *Store, id string, data []byte, p Profile) {
	t.Helper()
	if err := s.Open(id, p); err != nil {
		t.Fatal(err)
	}
	for off := 0; off < len(data); {
		n := min(len(data)-off, 256<<10)
		got, err := s.Write(id, int64(off), bytes.Clone(data[off:off+n]))
		if err != nil || got != int64(off+n) {
			t.Fatalf("Write at %d = %d, %v", off, got, err)
		}
		off += n
	}
}

// store uploads and commits data.
func store(t testing.TB, s *Store, id string, data []byte, p Profile) (Sums, bool) {
	t.Helper()
	send(t, s, id, data, p)
	sums := sumsOf(t, data, p)
	dup, err := s.Commit(t.Context(), id, sums.Size, sums.SHA256, sums.CID)
	if err != nil {
		t.Fatal(err)
	}
	return sums, dup
}

// readAll reads a file by Read in pieces of a length, and by a Reader, and
// checks that both give the same.
func readAll(t testing.TB, s *Store, cid string, piece int) ([]byte, error) {
	t.Helper()
	var got []byte
	for {
		b, size, err := s.Read(t.Context(), cid, int64(len(got)), piece)
		if err != nil {
			return nil, err
		}
		got = append(got, b...)
		if int64(len(got)) == size {
			break
		}
		if len(b) != piece {
			t.Fatalf("Read of %d at %d of %d gave %d", piece, len(got), size, len(b))
		}
	}
	r, err := s.NewReader(t.Context(), cid)
	if err != nil {
		return nil, err
	}
	head := make([]byte, min(len(got), 1000)) // leaves part of a leaf for WriteTo
	var rest bytes.Buffer
	_, err = io.ReadFull(r, head)
	if err == nil {
		_, err = r.WriteTo(&rest)
	}
	if err := errors.Join(err, r.Close()); err != nil {
		return nil, err
	}
	if whole := append(head, rest.Bytes()...); !bytes.Equal(whole, got) || r.Size() != int64(len(got)) {
		t.Fatalf("Read gave %d bytes, Reader %d, and they differ", len(got), len(whole))
	}
	return got, nil
}

func wantFault(t testing.TB, err error, kind fault.Kind, code string) {
	t.Helper()
	if !fault.Is(err, kind) || fault.CodeOf(err) != code {
		t.Fatalf("%v: kind %v, code %q; want %v, %q", err, fault.KindOf(err), fault.CodeOf(err), kind, code)
	}
}

func wantClean(t testing.TB, s *Store) {
	t.Helper()
	for f, err := range s.Check(t.Context()) {
		t.Errorf("check: %+v, %v", f, err)
	}
	left, err := s.cfg.FS.List(s.path(dirTemp))
	if err != nil || len(left) != 0 {
		t.Errorf("tmp holds %v, %v", left, err)
	}
}

// TestStoredFileReadsBack stores files of every shape, reads them in pieces that
// cross leaves, and again after a restart.
func TestStoredFileReadsBack(t *testing.T) {
	s := openStore(t, testConfig(t))
	sizes := []int{0, 1, MinChunkSize - 1, MinChunkSize, MinChunkSize + 1, MinLinks * MinChunkSize, MinLinks*MinChunkSize + 1, 300_000}
	if !testing.Short() {
		sizes = append(sizes, MinLinks*MinLinks*MinChunkSize+1) // three levels
	}
	files := map[string][]byte{}
	for i, n := range sizes {
		data := content(t, "file", n)
		sums, dup := store(t, s, string(rune('a'+i)), data, small)
		if dup {
			t.Errorf("%d bytes: a new file is a duplicate", n)
		}
		files[sums.CID] = data
	}
	check := func(s *Store) {
		t.Helper()
		for cid, data := range files {
			for _, piece := range []int{256 << 10, 100_000, MaxRead} {
				if got, err := readAll(t, s, cid, piece); err != nil || !bytes.Equal(got, data) {
					t.Errorf("%d bytes in pieces of %d: %v", len(data), piece, err)
				}
			}
		}
		wantClean(t, s)
	}
	check(s)
	check(reopen(t, s))
}

func TestReadTakesOnlyRangesOfTheFile(t *testing.T) {
	s := openStore(t, testConfig(t))
	data := content(t, "range", 2*MinChunkSize+7)
	sums, _ := store(t, s, "u", data, small)
	for _, tt := range []struct {
		off    int64
		length int
		want   int // -1: refused
	}{
		{0, 0, 0}, {0, 1, 1}, {int64(len(data)), 1, 0}, {int64(len(data)) - 1, 10, 1},
		{MinChunkSize - 1, 2, 2}, {0, MaxRead, len(data)},
		{-1, 1, -1}, {int64(len(data)) + 1, 0, -1}, {0, -1, -1}, {0, MaxRead + 1, -1}, {1 << 62, 1, -1},
	} {
		got, size, err := s.Read(t.Context(), sums.CID, tt.off, tt.length)
		if tt.want < 0 {
			wantFault(t, err, fault.Invalid, CodeBadRange)
			continue
		}
		if err != nil || size != int64(len(data)) || !bytes.Equal(got, data[tt.off:tt.off+int64(tt.want)]) {
			t.Errorf("Read(%d, %d) = %d bytes of %d, %v", tt.off, tt.length, len(got), size, err)
		}
	}
	_, _, err := s.Read(t.Context(), rawCID.String(), 0, 1)
	wantFault(t, err, fault.NotFound, CodeUnknownCID)
	_, _, err = s.Read(t.Context(), "/ipfs/"+sums.CID, 0, 1)
	wantFault(t, err, fault.Invalid, CodeBadCID)
	_, err = s.NewReader(t.Context(), rawCID.String())
	wantFault(t, err, fault.NotFound, CodeUnknownCID)
}

// TestOneDigestUnderTwoCodecs stores a file whose bytes are the root node of
// another file: the digest is the same, the files are not.
func TestOneDigestUnderTwoCodecs(t *testing.T) {
	s := openStore(t, testConfig(t))
	large := content(t, "large", 3*MinChunkSize)
	sums, _ := store(t, s, "large", large, small)
	c, err := ParseCID(sums.CID)
	if err != nil {
		t.Fatal(err)
	}
	root, err := s.nodeBytes(c.Digest)
	if err != nil {
		t.Fatal(err)
	}
	_, _, err = s.Read(t.Context(), CID{c.Digest, true}.String(), 0, 10)
	wantFault(t, err, fault.NotFound, CodeUnknownCID)
	node, dup := store(t, s, "node", root, small)
	if dup || node.CID != (CID{c.Digest, true}).String() {
		t.Fatalf("the node as a file is %s, duplicate %v", node.CID, dup)
	}
	for cid, want := range map[string][]byte{sums.CID: large, node.CID: root} {
		if got, err := readAll(t, s, cid, 1<<20); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: %d bytes, %v; want %d", cid, len(got), err, len(want))
		}
	}
	wantClean(t, s)
}

// TestSecondProfileSharesTheBytes stores one file under two roots.
func TestSecondProfileSharesTheBytes(t *testing.T) {
	s := openStore(t, testConfig(t))
	data := content(t, "twice", 5*MinChunkSize)
	a, _ := store(t, s, "a", data, small)
	b, dup := store(t, s, "b", data, Profile{2 * MinChunkSize, MinLinks})
	if dup || a.CID == b.CID || a.SHA256 != b.SHA256 {
		t.Fatalf("%+v and %+v, duplicate %v", a, b, dup)
	}
	if got := s.Stats(); got.Adopted != 1 || got.Commits != 2 {
		t.Errorf("stats %+v; the second commit should adopt the file", got)
	}
	for _, cid := range []string{a.CID, b.CID} {
		if got, err := readAll(t, s, cid, 1<<20); err != nil || !bytes.Equal(got, data) {
			t.Errorf("%s: %v", cid, err)
		}
	}
	wantClean(t, s)
}

// TestSharedLeafKeepsItsFirstReference: rows are never overwritten, also when
// two files have a leaf in common.
func TestSharedLeafKeepsItsFirstReference(t *testing.T) {
	s := openStore(t, testConfig(t))
	common := content(t, "common", MinChunkSize)
	first, _ := store(t, s, "a", append(bytes.Clone(common), 1), small)
	second, _ := store(t, s, "b", append(bytes.Clone(common), 2), small)
	key := leafKey(sumsOf(t, common, small).SHA256)
	value, ok, err := s.get(key)
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	if l, err := parseLeaf(key, value); err != nil || l.file != first.SHA256 {
		t.Errorf("the leaf is in %x, %v; want the first file %x", l.file, err, first.SHA256)
	}
	for _, cid := range []string{first.CID, second.CID} {
		if _, err := readAll(t, s, cid, 1<<20); err != nil {
			t.Error(err)
		}
	}
	wantClean(t, s)
}

func TestBlocksAreTheWholeTree(t *testing.T) {
	s := openStore(t, testConfig(t))
	for _, data := range [][]byte{
		{}, []byte("one leaf"), content(t, "blocks", MinLinks*MinChunkSize+100), make([]byte, (MinLinks+3)*MinChunkSize),
	} {
		sums, _ := store(t, s, "u", data, small)
		_, _, want := boxoImport(t, data, small)
		got, err := s.Blocks(t.Context(), sums.SHA256, sums.CID)
		if err != nil {
			t.Fatal(err)
		}
		c, err := ParseCID(sums.CID)
		if err != nil || got[0] != c.Digest {
			t.Errorf("the first block is %x, not the root %s", got[0], sums.CID)
		}
		for _, d := range got {
			if _, ok := want[d]; !ok {
				t.Errorf("block %x is not of the file, or is listed twice", d)
			}
			delete(want, d)
		}
		if len(want) != 0 {
			t.Errorf("%d blocks of %d bytes are missing", len(want), len(data))
		}
	}
	_, err := s.Blocks(t.Context(), someDigest, rawCID.String())
	wantFault(t, err, fault.NotFound, CodeUnknownCID)
	sums := sumsOf(t, nil, small)
	_, err = s.Blocks(t.Context(), someDigest, sums.CID) // known root, other file
	wantFault(t, err, fault.NotFound, CodeUnknownCID)
}

func TestStoreIsMadeOnlyOnRequest(t *testing.T) {
	cfg := testConfig(t)
	cfg.Create = false
	if _, err := OpenStore(cfg); !errors.Is(err, pebblex.ErrMissing) {
		t.Fatalf("opening nothing: %v", err)
	}
	cfg.Create = true
	s := openStore(t, cfg)
	sums, _ := store(t, s, "u", []byte("kept"), Default)
	if _, err := OpenStore(cfg); !errors.Is(err, pebblex.ErrExists) {
		t.Fatalf("making a store twice: %v", err)
	}
	s = reopen(t, s)
	if got, err := readAll(t, s, sums.CID, 10); err != nil || string(got) != "kept" {
		t.Fatalf("%q, %v", got, err)
	}
}

// TestMissingPartsAreLoud: a store whose files are gone is not served as a
// healthy empty one.
func TestMissingPartsAreLoud(t *testing.T) {
	s := openStore(t, testConfig(t))
	store(t, s, "u", []byte("kept"), Default)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	cfg := s.cfg
	cfg.Create = false
	if err := cfg.FS.RemoveAll(s.path(dirFiles)); err != nil {
		t.Fatal(err)
	}
	_, err := OpenStore(cfg)
	wantFault(t, err, fault.Corrupt, CodeCorrupt)

	if err := cfg.FS.RemoveAll(s.path(dirIndex)); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenStore(cfg); !errors.Is(err, pebblex.ErrMissing) {
		t.Errorf("no index: %v", err)
	}
	cfg.Create = true
	if _, err := OpenStore(cfg); !errors.Is(err, pebblex.ErrExists) {
		t.Errorf("making a store over the rest of one: %v", err)
	}
}

func TestClosedStoreAnswers(t *testing.T) {
	s := openStore(t, testConfig(t))
	sums, _ := store(t, s, "u", content(t, "x", 3*MinChunkSize), small)
	r, err := s.NewReader(t.Context(), sums.CID)
	if err != nil {
		t.Fatal(err)
	}
	send(t, s, "open", []byte("never committed"), small)
	if err := errors.Join(s.Close(), s.Close()); err != nil {
		t.Fatal(err)
	}
	calls := map[string]func() error{
		"Open":   func() error { return s.Open("v", small) },
		"Write":  func() error { _, err := s.Write("open", 0, nil); return err },
		"Commit": func() error { _, err := s.Commit(t.Context(), "open", 0, sums.SHA256, sums.CID); return err },
		"Abort":  func() error { return s.Abort("open") },
		"Sweep":  func() error { _, err := s.Sweep(0); return err },
		"Read":   func() error { _, _, err := s.Read(t.Context(), sums.CID, 0, 1); return err },
		"Reader": func() error { _, err := r.Read(make([]byte, 1)); return err },
		"New":    func() error { _, err := s.NewReader(t.Context(), sums.CID); return err },
		"Blocks": func() error { _, err := s.Blocks(t.Context(), sums.SHA256, sums.CID); return err },
		"Has":    func() error { _, err := s.Has(t.Context(), sums.SHA256, sums.CID); return err },
		"Check": func() error {
			for _, err := range s.Check(t.Context()) {
				return err
			}
			return nil
		},
	}
	for name, call := range calls {
		if err := call(); !fault.Is(err, fault.Transient) || fault.CodeOf(err) != CodeClosed {
			t.Errorf("%s after Close: %v", name, err)
		}
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	left, err := s.cfg.FS.List(s.path(dirTemp))
	if err != nil || len(left) != 1 || left[0] != "open" { // its sender may come back
		t.Errorf("Close left %v, %v", left, err)
	}
}
