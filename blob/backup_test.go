package blob

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/internal/pebblex"
)

// backup copies a store and opens the copy; more looks at it.
func backup(t testing.TB, s *Store, to string, more func(*Store)) error {
	t.Helper()
	b, err := pebblex.NewBackup(s.cfg.FS, to, "archive", "archive-a", time.Now())
	if err != nil {
		return err
	}
	if err := s.Backup(t.Context(), b, "files"); err != nil {
		return err
	}
	_, err = b.Finish(t.Context(), func(dir string) (*pebblex.BackupLog, error) {
		cfg := testConfig(t)
		cfg.FS, cfg.Dir, cfg.Create = s.cfg.FS, s.cfg.FS.PathJoin(dir, "files"), false
		copied, err := OpenStore(cfg)
		if err != nil {
			return nil, err
		}
		for f, err := range copied.Check(t.Context()) {
			if err != nil || f.Damage { // a file that came during the copying lies there without rows
				t.Errorf("check: %+v, %v", f, err)
			}
		}
		more(copied)
		return nil, copied.Close()
	})
	return err
}

// Files are uploaded while a backup is made: every one that was committed before
// is in it, and those under way are not.
func TestBackupHoldsEveryCommittedFile(t *testing.T) {
	cfg := testConfig(t)
	cfg.FS, cfg.Dir = vfs.NewMem(), "files"
	s := openStore(t, cfg)
	var cids []string
	for i := range 12 {
		sums, _ := store(t, s, fmt.Sprintf("018fa2b4-5f03-7cc1-a1b2-%012d", i), content(t, fmt.Sprint("before", i), 1<<20+i), Default)
		cids = append(cids, sums.CID)
	}
	send(t, s, "018fa2b4-5f03-7cc1-a1b2-000000000999", content(t, "under way", 300_000), Default)
	ctx, stop := context.WithCancel(t.Context())
	var load sync.WaitGroup
	load.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			store(t, s, fmt.Sprintf("018fa2b4-5f03-7cc1-a1b2-%012d", 1000+i), content(t, fmt.Sprint("meanwhile", i), 100_000), Default)
		}
	})
	err := backup(t, s, "backup", func(copied *Store) {
		for _, cid := range cids {
			if _, err := readAll(t, copied, cid, 100_000); err != nil {
				t.Errorf("%s: %v", cid, err)
			}
		}
	})
	stop()
	load.Wait()
	if err != nil {
		t.Fatal(err)
	}
}

func TestBackupOfAClosedStoreIsRefused(t *testing.T) {
	s := openStore(t, testConfig(t))
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	err := backup(t, s, t.TempDir(), nil)
	wantFault(t, err, fault.Transient, CodeClosed)
}
