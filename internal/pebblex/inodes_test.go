package pebblex

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/internal/pebblex/faultfs"
)

// A disk that can take no more files is full, whatever room it has.
func TestADiskWithoutInodesIsFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := faultfs.New(vfs.NewMem())
		fs.SetFree(500*mib, 1000*mib)
		if err := fs.MkdirAll("d", 0o700); err != nil {
			t.Fatal(err)
		}
		s := NewSpace(SpaceConfig{Dir: "d", FS: fs, Reserve: 100 * mib})
		var free, total uint64
		s.files = func(vfs.File) (uint64, uint64) { return free, total }
		for _, tc := range []struct {
			free, total uint64
			full        bool
		}{
			{0, 0, false}, // a file system without a bound
			{10_000, 1 << 20, false},
			{9_999, 1 << 20, true},
			{10_400, 1 << 20, true}, // or it would go up and down
			{10_500, 1 << 20, false},
			{19, 1000, true},
			{21, 1000, false},
		} {
			free, total = tc.free, tc.total
			time.Sleep(time.Second)
			err := s.Full()
			if (err != nil) != tc.full {
				t.Fatalf("%d of %d: %v", free, total, err)
			}
			if err != nil && (!fault.Is(err, fault.Transient) || fault.CodeOf(err) != CodeDiskFull || !strings.Contains(err.Error(), "inodes")) {
				t.Errorf("%v", err)
			}
		}
	})
}

func TestTheDiskTellsItsInodes(t *testing.T) {
	u := NewSpace(SpaceConfig{Dir: t.TempDir()}).Usage()
	if u.MostInodes > 0 && u.Inodes == 0 || u.Inodes > u.MostInodes {
		t.Errorf("%+v", u)
	}
}
