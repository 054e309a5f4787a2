package archive

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/verae/archive/internal/pebblex/faultfs"
)

// putLarge puts records with bodies of some MiB together.
func putLarge(t testing.TB, n *Node) (records int) {
	t.Helper()
	for range 12 {
		r := metadata(alice, digest(fmt.Sprint("large ", records)), `{"x":"`+strings.Repeat("x", 200<<10)+`"}`)
		mustPut(t, n, r)
		records++
	}
	return records
}

// tablesIn returns the names of the tables that the store in fs has.
func tablesIn(t testing.TB, fs vfs.FS) (all string) {
	t.Helper()
	names, err := fs.List("data/records")
	must1(t, err)
	for _, name := range names {
		if strings.HasSuffix(name, ".sst") {
			all += name + " "
		}
	}
	return all
}

// An orderly stop brings what is in memory into tables, unless it is little: the
// next start need not.
func TestOrderlyStopWritesTables(t *testing.T) {
	fs := vfs.NewMem()
	c := testConfig(fs, "archive-a")
	mustInit(t, c)
	n := mustOpen(t, c)
	records, before := putLarge(t, n), tablesIn(t, fs)
	mustClose(t, n)
	flushed := tablesIn(t, fs)
	if flushed == before {
		t.Errorf("the stop wrote no table: %s", flushed)
	}
	n = mustOpen(t, c)
	if n.Seq() != uint64(records) || tablesIn(t, fs) != flushed {
		t.Errorf("%d records, want %d; the start made tables %sof %s", n.Seq(), records, tablesIn(t, fs), flushed)
	}
	mustPut(t, n, metadata(alice, digest("small"), `{}`))
	mustClose(t, n)
	if got := tablesIn(t, fs); got != flushed {
		t.Errorf("a small record made tables %sof %s", got, flushed)
	}
}

// A disk that takes no table holds up a stop for a time only, and nothing is lost.
func TestStopWithoutAFlush(t *testing.T) {
	mem := vfs.NewMem()
	disk := newFaultFS(mem, -1, false)
	c := testConfig(disk, "archive-a")
	c.flushWait = time.Millisecond
	mustInit(t, c)
	n := mustOpen(t, c)
	records := putLarge(t, n)
	disk.Fail(faultfs.Where(func(p faultfs.Point) bool { return p.Op == faultfs.OpCreate && strings.HasSuffix(p.Path, ".sst") }, faultfs.ErrFull))
	mustClose(t, n)
	disk.Fail(nil)
	n = mustOpen(t, c)
	defer mustClose(t, n)
	if n.Seq() != uint64(records) {
		t.Errorf("%d records, want %d", n.Seq(), records)
	}
}
