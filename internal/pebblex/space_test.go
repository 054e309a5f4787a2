package pebblex

import (
	"bytes"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/internal/pebblex/faultfs"
)

const mib = 1 << 20

// looks counts how often a disk is asked.
type looks struct {
	*faultfs.FS
	n int
}

func (l *looks) GetDiskUsage(path string) (vfs.DiskUsage, error) {
	l.n++
	return l.FS.GetDiskUsage(path)
}

func TestTheReserveIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := &looks{FS: faultfs.New(vfs.NewMem())}
		var out bytes.Buffer
		s := NewSpace(SpaceConfig{Dir: "d", FS: fs, Reserve: 100 * mib, Log: slog.New(slog.NewTextHandler(&out, nil))})
		fs.SetFree(150*mib, 1000*mib)
		for range 50 {
			if err := s.Admit(1000); err != nil {
				t.Fatal(err)
			}
		}
		if fs.n != 1 {
			t.Errorf("%d looks within a second and far from the reserve, want 1", fs.n)
		}
		fs.SetFree(99*mib, 1000*mib)
		if err := s.Admit(mib); err != nil {
			t.Errorf("the look is not a second old and what was admitted fits: %v", err)
		}
		err := s.Admit(60 * mib) // may be over the margin: looks
		if !fault.Is(err, fault.Transient) || fault.CodeOf(err) != CodeDiskFull || fault.RetryAfter(err) == 0 {
			t.Fatalf("below the reserve: %v", err)
		}
		for _, want := range []string{"99 MiB free", "reserve of 100 MiB", "DISK_RESERVE", "another 6 MiB", "can be read"} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("the message lacks %q: %v", want, err)
			}
		}
		n := fs.n
		for range 1000 {
			if s.Full() == nil || s.Admit(10*mib) == nil {
				t.Fatal("it takes more while it is full")
			}
		}
		if fs.n != n {
			t.Errorf("%d looks within a second at a full disk", fs.n-n)
		}
		fs.SetFree(101*mib, 1000*mib)
		time.Sleep(time.Second)
		if s.Full() == nil {
			t.Error("it is at the reserve again and takes puts: it would go up and down with each flush")
		}
		fs.SetFree(106*mib, 1000*mib)
		time.Sleep(time.Second)
		if err := s.Full(); err != nil {
			t.Errorf("there is room again: %v", err)
		}
		if n := strings.Count(out.String(), "\n"); n != 2 {
			t.Errorf("%d lines, want one for each change:\n%s", n, out.String())
		}
	})
}

func TestADiskThatDoesNotTellIsNeverFull(t *testing.T) {
	s := NewSpace(SpaceConfig{Dir: "d", FS: vfs.NewMem(), Reserve: 1 << 60})
	if err := s.Admit(1 << 62); err != nil {
		t.Error(err)
	}
	if u := s.Usage(); u != (Usage{}) {
		t.Errorf("it knows %+v", u)
	}
}

// A directory that is not there yet has the room of the one it will be in, and
// nobody is warned.
func TestADirectoryToBeMadeHasTheRoomAboveIt(t *testing.T) {
	var out bytes.Buffer
	dir := t.TempDir()
	s := NewSpace(SpaceConfig{Dir: filepath.Join(dir, "a", "b"), Log: slog.New(slog.NewTextHandler(&out, nil))})
	if u := s.Usage(); !u.Known || u.Total == 0 {
		t.Errorf("it knows %+v", u)
	}
	if strings.Contains(out.String(), "does not tell") {
		t.Error(out.String())
	}
}

func TestTheReserveThatNobodySet(t *testing.T) {
	const gib = 1 << 30
	for _, c := range []struct{ set, total, want uint64 }{
		{5, 100 * gib, 5},
		{0, 20 * gib, 2 * gib},
		{0, 100 * gib, 5 * gib},
		{0, 10_000 * gib, 8 * gib},
		{0, 5 * gib, gib},
		{0, 50 * mib, 10 * mib},
	} {
		if got := reserveOf(c.set, c.total); got != c.want {
			t.Errorf("of %d bytes with %d set: %d, want %d", c.total, c.set, got, c.want)
		}
	}
}

// What stores still write below the reserve fits into it.
func TestMemtablesFitBelowTheReserve(t *testing.T) {
	for _, reserve := range []uint64{2 << 30, 320 * mib, 100 * mib, 40 * mib} {
		size, ok := MemTableFor(reserve, 2)
		if !ok || size > DefaultMemTableSize || 2*RoomOf(size) > reserve {
			t.Errorf("a reserve of %d: memtables of %d, which need %d twice; ok %v", reserve, size, RoomOf(size), ok)
		}
	}
	if _, ok := MemTableFor(39*mib, 2); ok {
		t.Error("39 MiB are said to be enough for two stores")
	}
	if RoomOf(DefaultMemTableSize) != 160*mib {
		t.Errorf("the documents say 160 MiB, it is %d", RoomOf(DefaultMemTableSize))
	}
}
