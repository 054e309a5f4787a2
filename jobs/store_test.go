package jobs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/internal/pebblex"
	"github.com/verae/archive/wire"
)

func memStore(t *testing.T, fs vfs.FS, create bool) *store {
	t.Helper()
	s, err := openStore(pebblex.Options{Dir: "jobs", FS: fs, Create: create})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func closeStore(t *testing.T, s *store) {
	t.Helper()
	if err := s.close(); err != nil {
		t.Error(err)
	}
}

func TestUpdateWithErrorWritesNothing(t *testing.T) {
	s := memStore(t, vfs.NewMem(), true)
	defer closeStore(t, s)
	boom := errors.New("boom")
	err := s.update(t.Context(), func(tx *tx) error {
		tx.set([]byte("a"), []byte("1"))
		return boom
	})
	if !errors.Is(err, boom) {
		t.Fatalf("update says %v", err)
	}
	if err := s.view(func(r pebble.Reader) error {
		_, ok, err := getRow(r, []byte("a"))
		if ok {
			t.Error("the row of a failed update is there")
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
}

func TestUpdateSeesItsOwnWrites(t *testing.T) {
	s := memStore(t, vfs.NewMem(), true)
	defer closeStore(t, s)
	err := s.update(t.Context(), func(tx *tx) error {
		tx.set([]byte("a"), []byte("1"))
		tx.set([]byte("a"), []byte("2"))
		if row, ok, err := tx.get([]byte("a")); err != nil || !ok || string(row) != "2" {
			t.Errorf("after two writes: %q, %v, %v", row, ok, err)
		}
		tx.del([]byte("a"))
		if _, ok, err := tx.get([]byte("a")); ok || err != nil {
			t.Errorf("after a deletion: %v, %v", ok, err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// Many callers that each add one to a counter lose nothing: checks and the
// writes they decide are one step.
func TestUpdatesRunAlone(t *testing.T) {
	s := memStore(t, vfs.NewMem(), true)
	defer closeStore(t, s)
	const n = 500
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			if err := s.update(t.Context(), func(tx *tx) error {
				row, _, err := tx.get([]byte("n"))
				tx.set([]byte("n"), append(bytes.Clone(row), 'x'))
				return err
			}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if err := s.view(func(r pebble.Reader) error {
		row, _, err := getRow(r, []byte("n"))
		if len(row) != n {
			t.Errorf("counted to %d of %d", len(row), n)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
}

// What update returned for is there after a power loss.
func TestAcknowledgedMeansOnDisk(t *testing.T) {
	fs := vfs.NewCrashableMem()
	s := memStore(t, fs, true)
	defer closeStore(t, s)
	for i := range 50 {
		if err := s.update(t.Context(), func(tx *tx) error {
			tx.set(fmt.Append(nil, "k", i), []byte("v"))
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		if i%10 != 0 {
			continue
		}
		after := memStore(t, fs.CrashClone(vfs.CrashCloneCfg{}), false)
		for j := range i + 1 {
			if err := after.view(func(r pebble.Reader) error {
				_, ok, err := getRow(r, fmt.Append(nil, "k", j))
				if !ok {
					t.Errorf("row %d of %d is lost", j, i)
				}
				return err
			}); err != nil {
				t.Fatal(err)
			}
		}
		closeStore(t, after)
	}
}

// What is posted costs no sync: a power loss takes it back, until the next
// update takes it to the disk with its own.
func TestPostIsOnDiskWithTheNextUpdate(t *testing.T) {
	fs := vfs.NewCrashableMem()
	s := memStore(t, fs, true)
	defer closeStore(t, s)
	write := func(key string) func(*tx) error {
		return func(tx *tx) error { tx.set([]byte(key), []byte("v")); return nil }
	}
	has := func(s *store, key string) (ok bool) {
		if err := s.view(func(r pebble.Reader) (err error) {
			_, ok, err = getRow(r, []byte(key))
			return err
		}); err != nil {
			t.Fatal(err)
		}
		return ok
	}
	lost := func() bool {
		after := memStore(t, fs.CrashClone(vfs.CrashCloneCfg{}), false)
		defer closeStore(t, after)
		return !has(after, "posted")
	}
	if err := s.post(t.Context(), write("posted")); err != nil {
		t.Fatal(err)
	}
	for !has(s, "posted") {
		runtime.Gosched()
	}
	if !lost() {
		t.Error("a post was synced")
	}
	if err := s.update(t.Context(), write("updated")); err != nil {
		t.Fatal(err)
	}
	if lost() {
		t.Error("a post is lost after an update that came later")
	}
}

func TestClosedStoreSaysSo(t *testing.T) {
	s := memStore(t, vfs.NewMem(), true)
	closeStore(t, s)
	if err := s.update(context.Background(), func(*tx) error { return nil }); fault.CodeOf(err) != "CLOSING" {
		t.Errorf("update after close: %v", err)
	}
	if err := s.view(func(pebble.Reader) error { return nil }); fault.CodeOf(err) != "STORE_CLOSED" {
		t.Errorf("view after close: %v", err)
	}
}

func TestStoreOfAnotherLayoutIsRefused(t *testing.T) {
	fs := vfs.NewMem()
	s := memStore(t, fs, true)
	if err := s.update(t.Context(), func(tx *tx) error {
		tx.set(rowKey(rowMeta, []byte("layout")), frameRow([]byte("99")))
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	closeStore(t, s)
	if _, err := openStore(pebblex.Options{Dir: "jobs", FS: fs}); err == nil || !strings.Contains(err.Error(), "99") {
		t.Errorf("a store of layout 99 opens: %v", err)
	}
}

func TestMissingStoreIsNotMade(t *testing.T) {
	if _, err := openStore(pebblex.Options{Dir: "jobs", FS: vfs.NewMem()}); !errors.Is(err, pebblex.ErrMissing) {
		t.Errorf("a store that is not there: %v", err)
	}
}

func TestScanStopsAtItsPrefix(t *testing.T) {
	s := memStore(t, vfs.NewMem(), true)
	defer closeStore(t, s)
	keys := []string{"a", "b\x00", "b\xff", "b\xff\xff", "c"}
	if err := s.update(t.Context(), func(tx *tx) error {
		for _, k := range keys {
			tx.set([]byte(k), nil)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if err := s.view(func(r pebble.Reader) error {
		var got []string
		err := scan(r, []byte("b"), func(key, _ []byte) (bool, error) {
			got = append(got, string(key))
			return true, nil
		})
		if !slices.Equal(got, keys[1:4]) {
			t.Errorf("scan of b: %q", got)
		}
		newest, ok, lastErr := last(r, []byte("b"))
		if !ok || string(newest) != "b\xff\xff" {
			t.Errorf("last of b: %q, %v", newest, ok)
		}
		return errors.Join(err, lastErr)
	}); err != nil {
		t.Fatal(err)
	}
	if got := after([]byte{0xff, 0xff}); got != nil {
		t.Errorf("after the greatest prefix: %x", got)
	}
}

// The layout of a row is frozen: programs of all versions read it.
func TestRowLayoutIsFrozen(t *testing.T) {
	s := submission{
		ID: "01890a5d-ac96-774b-bcce-b302099a8057", Tenant: "acme", JobID: "01890a5d-ac96-774b-bcce-b302099a8058",
		Digest: digestOf("document"), HashedFrom: "sha256", Placement: digestOf("document"), AttachedAt: "2026-01-02T03:04:05.000000006Z",
		IncludeAttached: true, Fingerprint: digestOf("content"), Idempotency: digestOf("key"), Status: wire.StatusPending, Stored: true,
		Files: []file{{UploadID: "u", Size: 4, SHA256: digestOf("file"), CID: "bafkreib", JobID: "01890a5d-ac96-774b-bcce-b302099a8059", Uploaded: []wire.ArchiveID{"archive-a"}}},
		Parts: []part{{Kind: wire.KindFile, Name: "f", Size: 4, SHA256: digestOf("file"), RecordID: wire.RecordID(digestOf("record")), File: 1}},
	}
	row, err := encodeRow(&s)
	if err != nil {
		t.Fatal(err)
	}
	golden := filepath.Join("testdata", "submission.row")
	if os.Getenv("UPDATE_GOLDEN") == "true" {
		if err := os.WriteFile(golden, row, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(row, want) {
		t.Errorf("the row of a submission changed:\n%q\n%q", row, want)
	}
	back, err := decodeRow[submission](nil, want)
	if err != nil || back.Parts[0].RecordID != s.Parts[0].RecordID || back.ref() != s.ref() {
		t.Errorf("the frozen row reads %+v, %v", back, err)
	}
}

// Any damage of a row is found.
func TestDamagedRowIsCorrupt(t *testing.T) {
	row, err := encodeRow(reservation{JobID: "01890a5d-ac96-774b-bcce-b302099a8058"})
	if err != nil {
		t.Fatal(err)
	}
	for i := range row {
		for bit := range 8 {
			bad := bytes.Clone(row)
			bad[i] ^= 1 << bit
			if _, err := decodeRow[reservation](nil, bad); !fault.Is(err, fault.Corrupt) {
				t.Fatalf("byte %d, bit %d flipped: %v", i, bit, err)
			}
		}
		if _, err := decodeRow[reservation](nil, row[:i]); !fault.Is(err, fault.Corrupt) {
			t.Fatalf("cut to %d bytes: %v", i, err)
		}
	}
}

func FuzzRow(f *testing.F) {
	row, err := os.ReadFile(filepath.Join("testdata", "submission.row"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(row)
	f.Add([]byte{rowVersion, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, row []byte) {
		payload, err := openRow([]byte("k"), row)
		if err != nil {
			return
		}
		if !bytes.Equal(frameRow(payload), row) {
			t.Errorf("a row that opens does not frame to itself: %x", row)
		}
	})
}

func TestKeysOfIdsAreTheirBytes(t *testing.T) {
	id := "01890a5d-ac96-774b-bcce-b302099a8057"
	if got := uuidText(uuidBytes(id)); got != id {
		t.Errorf("%s came back as %s", id, got)
	}
	if bytes.Equal(uuidBytes("not an id"), uuidBytes("another")) {
		t.Error("two texts that are no ids share a key")
	}
}
