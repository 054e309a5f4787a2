package jobs

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/verae/archive/chain"
	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/internal/pebblex"
	"github.com/verae/archive/wire"
)

// backedUp is a world with some submissions, ended and not, and a backup of its
// job store in "backup".
func backedUp(t *testing.T) *world {
	t.Helper()
	w := newWorld(t, 2, func(c *Config) { c.PutWait, c.Fetchers = 10*time.Millisecond, fetchers{"acme"} })
	for n := range 3 {
		if _, err := w.submit(t.Context(), Caller{TenantID: "acme"}, fmt.Sprintf(`{"data":"document %d","publicMetadata":{"n":%d},%s,"ocr":%v}`, n, n, fileField("scan"), n < 2)); err != nil && !fault.Is(err, fault.Transient) {
			t.Fatal(err)
		}
	}
	w.settled()
	w.doneOCR(w.claimOCR()[0].ID)                                                              // one message is published, one waits
	w.archives.all(func(n *node) { n.refusePut = fault.New(fault.Transient, "BUSY", "busy") }) // what comes now stays unfinished
	if _, err := w.submit(t.Context(), Caller{TenantID: "acme"}, `{"data":"late","publicMetadata":{"n":9}}`); err != nil && !fault.Is(err, fault.Transient) {
		t.Fatal(err)
	}
	b, err := pebblex.NewBackup(w.fs, "backup", "aggregator", "x", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if err := w.engine.Backup(t.Context(), b, "jobs"); err != nil {
		t.Fatal(err)
	}
	return w
}

// checkCopy opens a job store, lets change write to it, and checks it.
func checkCopy(t testing.TB, fs vfs.FS, dir string, seals Seals, change func(*pebble.DB)) (CheckReport, []error) {
	t.Helper()
	s, err := OpenStopped(fs, dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	if change != nil {
		change(s.store.db)
		if err := s.store.update(t.Context(), func(tx *tx) error { // so that the change is seen
			tx.set(rowKey(rowMeta, []byte("seen")), frameRow(nil))
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	report, found, err := s.Check(t.Context(), seals)
	if err != nil {
		t.Fatal(err)
	}
	return report, found
}

func TestBackupHoldsWhatWasAccepted(t *testing.T) {
	w := backedUp(t)
	report, found := checkCopy(t, w.fs, "backup/jobs", w.ledger, nil)
	if len(found) > 0 || report.Submissions != 4 || report.Unfinished != 1 || report.Outbox == 0 || report.Events != 3 {
		t.Errorf("%+v, %v", report, found)
	}
}

// A ledger that lacks a seal that a submission was told of is older than the job
// store: it would seal the digest anew.
func TestLedgerOlderThanTheJobStoreIsFound(t *testing.T) {
	w := backedUp(t)
	_, found := checkCopy(t, w.fs, "backup/jobs", noSeals{}, nil)
	if len(found) < 3 || !strings.Contains(found[0].Error(), "older") || !fault.Is(found[0], fault.Corrupt) {
		t.Errorf("%v", found)
	}
}

// Every row of a job store is taken away, and changed: the check finds each that
// something depends on.
func TestCheckFindsEveryDamagedRow(t *testing.T) {
	w := backedUp(t)
	type entry struct{ key, row []byte }
	var all []entry
	s, err := OpenStopped(w.fs, "backup/jobs", nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.store.view(func(r pebble.Reader) error {
		return scan(r, nil, func(key, row []byte) (bool, error) {
			all = append(all, entry{key, row})
			return true, nil
		})
	}); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	// What a store may lose without contradicting itself: the layout is written
	// anew, and the rest can be made again or only saves work.
	mayGo := map[byte]bool{rowMeta: true, rowFingerprint: true, rowIdempotency: true, rowExpiry: true, rowUnannounced: true, rowReservation: true}
	kinds := map[byte]bool{}
	for _, e := range all {
		kinds[e.key[0]] = true
		if !mayGo[e.key[0]] && !aliasOnly(w, e.key) {
			damage(t, w, "removed", e.key, func(db *pebble.DB) error { return db.Delete(e.key, pebble.Sync) })
		}
		if len(e.row) > 0 && e.key[0] != rowMeta {
			bad := bytes.Clone(e.row)
			bad[len(bad)/2] ^= 1
			damage(t, w, "changed", e.key, func(db *pebble.DB) error { return db.Set(e.key, bad, pebble.Sync) })
		}
	}
	damage(t, w, "foreign", []byte("z"), func(db *pebble.DB) error { return db.Set([]byte("z"), nil, pebble.Sync) })
	damage(t, w, "too short", []byte{rowEvent}, func(db *pebble.DB) error { return db.Set([]byte{rowEvent}, nil, pebble.Sync) })
	for _, kind := range []byte{rowMeta, rowReservation, rowJob, rowSubmission, rowByDigest, rowFingerprint, rowOutbox, rowPending, rowEvent, rowExpiry, rowOCRJob, rowOCRWaiting} {
		if !kinds[kind] {
			t.Errorf("no row %q was tried", kind)
		}
	}
}

// aliasOnly reports whether a job id is one that no reservation names.
func aliasOnly(w *world, key []byte) bool {
	if key[0] != rowJob {
		return false
	}
	only := true
	err := w.engine.store.view(func(r pebble.Reader) error {
		return scan(r, []byte{rowReservation}, func(k, row []byte) (bool, error) {
			v, err := decodeRow[reservation](k, row)
			only = only && uuidText(key[1:]) != string(v.JobID)
			return true, err
		})
	})
	return only && err == nil
}

func damage(t *testing.T, w *world, what string, key []byte, change func(*pebble.DB) error) {
	t.Helper()
	dir := "copy"
	if ok, err := vfs.Clone(w.fs, w.fs, "backup/jobs", dir); err != nil || !ok {
		t.Fatal(ok, err)
	}
	_, found := checkCopy(t, w.fs, dir, w.ledger, func(db *pebble.DB) {
		if err := change(db); err != nil {
			t.Fatal(err)
		}
	})
	if len(found) == 0 {
		t.Errorf("%s: row %q %x is not missed", what, key[:1], key[1:])
	}
	if err := w.fs.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
}

func TestBackupOfAClosedEngineIsRefused(t *testing.T) {
	w := newWorld(t, 1, nil)
	if err := w.engine.Close(); err != nil {
		t.Fatal(err)
	}
	b, err := pebblex.NewBackup(w.fs, "backup", "aggregator", "x", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if err := w.engine.Backup(context.Background(), b, "jobs"); err != errClosed {
		t.Errorf("%v", err)
	}
}

// noSeals is a ledger that has sealed nothing.
type noSeals struct{}

func (noSeals) Lookup(context.Context, wire.Digest) (chain.Seal, bool, error) {
	return chain.Seal{}, false, nil
}
