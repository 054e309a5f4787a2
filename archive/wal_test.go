package archive

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/internal/need"
	"github.com/verae/archive/wire"
)

// TestDB01DamagedWALIsRefusedOrWhole: 200 synced puts, the process is killed, and
// the newest log of the store is flipped, zeroed, cut, emptied or deleted. The
// archive is refused with what to do, or everything acknowledged is there. Where
// the last puts did not ask for a mark and none was written, a loss among them can
// only be seen by whoever remembers their numbers: then those, and no others, are
// missing from the end, and the archive says a number below them.
func TestDB01DamagedWALIsRefusedOrWhole(t *testing.T) {
	for _, current := range []bool{true, false} {
		t.Run(fmt.Sprintf("mark current=%v", current), func(t *testing.T) {
			disk, puts, covered := killed(t, 200, current)
			wal := newestLog(t, disk)
			good := read(t, disk, wal)
			refused, whole, short := 0, 0, 0
			try := func(name string, change func(fs *vfs.MemFS)) {
				t.Helper()
				fs := copyOf(t, disk)
				change(fs)
				switch left := afterDamage(t, name, fs, puts); {
				case left < 0:
					refused++
				case left == len(puts):
					whole++
				default:
					short++
					if left < covered {
						t.Errorf("%s: %d of %d records are there, the mark covers %d", name, left, len(puts), covered)
					}
				}
			}
			try("nothing", func(*vfs.MemFS) {})
			try("deleted", func(fs *vfs.MemFS) { must1(t, fs.Remove(wal)) })
			for percent := 0; percent < 100; percent += need.Rounds(5, 1) { // of what is written
				at := len(bytes.TrimRight(good, "\x00")) * percent / 100
				try(fmt.Sprintf("flipped at %d %%", percent), func(fs *vfs.MemFS) {
					write(t, fs, wal, append(append(bytes.Clone(good[:at]), good[at]^0x10), good[at+1:]...))
				})
				try(fmt.Sprintf("4 KiB of zeros at %d %%", percent), func(fs *vfs.MemFS) {
					data := bytes.Clone(good)
					clear(data[at:min(at+4096, len(data))])
					write(t, fs, wal, data)
				})
				try(fmt.Sprintf("cut at %d %%", percent), func(fs *vfs.MemFS) { write(t, fs, wal, good[:at]) })
			}
			t.Logf("%d refused, %d whole, %d with a shorter end", refused, whole, short)
			if refused == 0 || whole == 0 || current && short > 0 {
				t.Errorf("%d refused, %d whole, %d with a shorter end", refused, whole, short)
			}
		})
	}
}

// killed returns the disk of an archive that was killed after a number of synced
// puts, and how many of them its mark covers.
func killed(t *testing.T, count int, current bool) (disk *vfs.MemFS, puts []wire.Put, covered int) {
	t.Helper()
	mem := vfs.NewCrashableMem()
	c := testConfig(mem, "archive-a")
	mustInit(t, c)
	n := mustOpen(t, c)
	for i := range count {
		put := numbered(0, i)
		put.Checkpoint = i == 0 || current && i == count-1
		if _, err := n.Put(t.Context(), put); err != nil {
			t.Fatal(err)
		}
		puts = append(puts, put)
	}
	crashed := mem.CrashClone(vfs.CrashCloneCfg{})
	covered = int(mustCheckpoint(t, n, string(read(t, crashed, c.markPath()))).Size)
	mustClose(t, n)
	return crashed, puts, covered
}

func newestLog(t *testing.T, fs *vfs.MemFS) string {
	t.Helper()
	dir := testConfig(fs, "archive-a").storeDir()
	names, err := fs.List(dir)
	must1(t, err)
	newest := ""
	for _, name := range names {
		if strings.HasSuffix(name, ".log") {
			newest = max(newest, name)
		}
	}
	return fs.PathJoin(dir, newest)
}

// afterDamage opens an archive and returns how many puts, from the first, are
// answered; -1 says that it was refused. All that are not must be the last, and
// the archive must not count them.
func afterDamage(t *testing.T, name string, fs *vfs.MemFS, puts []wire.Put) int {
	t.Helper()
	n, err := Open(testConfig(fs, "archive-a"))
	if err != nil {
		if !fault.Is(err, fault.Corrupt) && !pebble.IsCorruptionError(err) {
			t.Errorf("%s: refused with %v", name, err)
		}
		if fault.Is(err, fault.Corrupt) && !strings.Contains(err.Error(), "archived repair") {
			t.Errorf("%s: it does not say what to do: %v", name, err)
		}
		return -1
	}
	defer mustClose(t, n)
	<-n.Loaded()
	left := 0
	for i, put := range puts {
		reply, ok, err := n.Answer(t.Context(), query(alice, put.Record.SHA256))
		if err != nil || ok && (i != left || reply.Records[0].ID != put.Record.ID()) {
			t.Errorf("%s: record %d, %d are there before it: %v, %v", name, i, left, ok, err)
		}
		if ok {
			left++
		}
	}
	if h := n.Hello(); h.Seq != uint64(left) || !h.Filter.Ready {
		t.Errorf("%s: %d records are there, it says %+v", name, left, h)
	}
	return left
}
