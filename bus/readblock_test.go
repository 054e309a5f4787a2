package bus

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/verae/archive/archive"
	"github.com/verae/archive/blob"
	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/wire"
)

// client connects an aggregator's client to the archives of a fleet.
func (f *fleet) client(t testing.TB) (*Archives, []wire.ArchiveID) {
	t.Helper()
	var ids []wire.ArchiveID
	for _, d := range f.depots {
		ids = append(ids, d.id)
	}
	a, err := NewArchives(connect(t, f.server, "reader"), static(ids), patient)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Close() })
	return a, ids
}

// scanned is what depot.scan stores.
func scanned(seed byte, size int) []byte {
	data := make([]byte, size)
	rand.NewChaCha8([32]byte{seed}).Read(data)
	return data
}

func readBlock(t testing.TB, a *Archives, ids []wire.ArchiveID, viewer wire.TenantID, digest wire.Digest) ([]byte, wire.Block, error) {
	t.Helper()
	b, err := a.StatBlock(t.Context(), ids, viewer, digest)
	if err != nil {
		return nil, b, err
	}
	r, err := a.ReadBlock(t.Context(), ids, viewer, digest, 0, b.Size)
	if err != nil {
		return nil, b, err
	}
	defer r.Close()
	data, err := io.ReadAll(r)
	return data, b, err
}

// Every block of a file is had by its digest by who may see the file, from any
// archive that has it; to others it is not there. A damaged copy is passed over,
// and when all are damaged that is what they are.
func TestBlocksOfARealArchive(t *testing.T) {
	f := startFleet(t, "archive-a", "archive-b")
	size := 3<<20 + 5
	rec := f.depots[0].scan(t, 1, size)
	f.depots[1].scan(t, 1, size)
	shared := f.depots[0].scan(t, 2, 5)
	shared.SHA256, shared.ShareWith = digestOf("shared"), []wire.Share{{TenantID: wire.Public, Mode: wire.ModeFiles}}
	f.depots[0].put(t, shared)
	a, ids := f.client(t)

	blocks, err := f.depots[0].files.Blocks(t.Context(), rec.File.SHA256, rec.File.CID)
	if err != nil || len(blocks) != 5 {
		t.Fatalf("%d blocks, %v", len(blocks), err)
	}
	for _, digest := range blocks {
		data, b, err := readBlock(t, a, ids, tenantA, digest)
		if err != nil || sha256.Sum256(data) != digest || b.Public || b.Size != int64(len(data)) {
			t.Errorf("block %x: %d bytes, %+v, %v", digest, len(data), b, err)
		}
		for _, stranger := range []wire.TenantID{tenantB, wire.Public} {
			_, err = a.StatBlock(t.Context(), ids, stranger, digest)
			wantFault(t, err, fault.NotFound, CodeNotFound)
			_, err = a.ReadBlock(t.Context(), ids, stranger, digest, 0, 1)
			wantFault(t, err, fault.NotFound, CodeNotFound)
		}
	}
	_, err = a.StatBlock(t.Context(), ids, tenantA, rec.SHA256) // the subject of the record
	wantFault(t, err, fault.NotFound, CodeNotFound)
	for _, viewer := range []wire.TenantID{tenantA, tenantB, wire.Public} {
		data, b, err := readBlock(t, a, ids, viewer, shared.File.SHA256)
		if err != nil || !bytes.Equal(data, scanned(2, 5)) || !b.Public {
			t.Errorf("%s: a public block: %d bytes, %+v, %v", viewer, len(data), b, err)
		}
		r, err := a.ReadFile(t.Context(), ids, viewer, shared.File.CID, 1, 3)
		if err != nil {
			t.Fatal(viewer, err)
		}
		if got, err := io.ReadAll(r); err != nil || !bytes.Equal(got, scanned(2, 5)[1:4]) {
			t.Errorf("%s: a public file: %x, %v", viewer, got, err)
		}
		r.Close()
	}

	leaf := wire.Digest(sha256.Sum256(scanned(1, size)[1<<20 : 2<<20]))
	for i, d := range f.depots {
		name := hex.EncodeToString(rec.File.SHA256[:])
		flipOnDisk(t, filepath.Join(d.dir, "files", "files", name[:2], name), 1<<20+77)
		d.stop(t)
		f.start(t, d) // nothing verified is in memory
		data, _, err := readBlock(t, a, ids, tenantA, leaf)
		if i == 0 {
			if err != nil || sha256.Sum256(data) != leaf {
				t.Errorf("with one good copy: %d bytes, %v", len(data), err)
			}
			continue
		}
		wantFault(t, err, fault.Corrupt, blob.CodeCorrupt)
		if damages := d.files.Damages(); len(damages) != 1 || damages[0].SHA256 != rec.File.SHA256 {
			t.Errorf("remembered: %+v", damages)
		}
	}
}

// flipOnDisk changes one bit of a file.
func flipOnDisk(t testing.TB, path string, at int64) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b := make([]byte, 1)
	if _, err := f.ReadAt(b, at); err != nil {
		t.Fatal(err)
	}
	b[0] ^= 4
	if _, err := f.WriteAt(b, at); err != nil {
		t.Fatal(err)
	}
}

// Sections are exactly their bytes, at every edge of chunks and fragments.
func TestSectionsOfARealArchive(t *testing.T) {
	f := startFleet(t, "archive-a")
	const chunk, fragment = 1 << 20, wire.FragmentSize
	for i, size := range []int64{0, 1, chunk - 1, chunk, chunk + 1, 2*chunk + 3} {
		rec := f.depots[0].scan(t, byte(10+i), int(size))
		data := scanned(byte(10+i), int(size))
		a, ids := f.client(t)
		for _, off := range []int64{0, 1, fragment, chunk - 1, chunk, chunk + 1, size - 1, size} {
			for _, length := range []int64{0, 1, fragment - 1, fragment + 1, chunk, size} {
				if off < 0 || off+length > size {
					continue
				}
				r, err := a.ReadFile(t.Context(), ids, tenantA, rec.File.CID, off, length)
				if err != nil {
					t.Fatal(err)
				}
				got, err := io.ReadAll(r)
				if err != nil || !bytes.Equal(got, data[off:off+length]) {
					t.Errorf("%d at %d of %d: %d bytes, %v", length, off, size, len(got), err)
				}
				r.Close()
			}
		}
	}
}

// Readers from whom nothing is taken hold a fragment each, and together no more
// than a bounded number beyond that; all go on to the end when they are read.
func TestSlowReadersHoldLittle(t *testing.T) {
	w := startWorld(t, 1, patient, nil)
	data := content(3<<20 + 1)
	file := w.store(t, data, w.sites[0])
	const readers = 50
	var open []*fileReader
	for range readers {
		r, err := w.archives.ReadFile(t.Context(), w.ids, tenantA, file.CID, 0, file.Size)
		if err != nil {
			t.Fatal(err)
		}
		open = append(open, r.(*fileReader))
	}
	ahead := 0
	for _, r := range open {
		ahead += len(r.queue)
		if len(r.rest) > wire.FragmentSize || len(r.queue) > readAhead {
			t.Errorf("a reader holds %d bytes and asked for %d fragments", len(r.rest), len(r.queue))
		}
	}
	if ahead > allReadAhead || len(w.archives.ahead) != ahead {
		t.Errorf("%d fragments are fetched ahead, %d counted; %d may be", ahead, len(w.archives.ahead), allReadAhead)
	}
	for i, r := range open {
		if i%2 == 0 { // the others leave
			if got, err := io.ReadAll(r); err != nil || !bytes.Equal(got, data) {
				t.Errorf("%d bytes, %v", len(got), err)
			}
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}
	if n := len(w.archives.ahead); n != 0 {
		t.Errorf("%d fragments are still counted", n)
	}
}

// A fault of ours while bytes are read ends one answer, not the process.
func TestPanicOfAReadIsAnError(t *testing.T) {
	w := startWorld(t, 1, patient, func(_ int, s *site) {
		s.blobs.onRead = func(int64) error { panic("a fault of ours") }
	})
	file := w.store(t, content(100), w.sites[0])
	for range 2 {
		_, err := w.archives.ReadFile(t.Context(), w.ids, tenantA, file.CID, 0, file.Size)
		if err == nil || fault.KindOf(err) != fault.Internal {
			t.Errorf("%v", err)
		}
	}
	if err := guarded(func() error { return errLostFile }); err != errLostFile {
		t.Errorf("an error became %v", err)
	}
}

var errLostFile = fault.New(fault.Corrupt, archive.CodeFileLost, "lost")
