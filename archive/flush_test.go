package archive

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/verae/archive/internal/pebblex/faultfs"
)

// putLarge puts records with bodies of 2.4 MiB together.
func putLarge(t testing.TB, n *Node) (records int) {
	t.Helper()
	for range 12 {
		r := metadata(alice, digest(fmt.Sprint("large ", records)), "")
		r.Kind, r.Body = "ocr", make([]byte, 200<<10)
		rand.NewChaCha8([32]byte{byte(records)}).Read(r.Body) // it never fails, and can not be compressed
		mustPut(t, n, r)
		records++
	}
	return records
}

// An orderly stop brings what is in memory into tables: the next start has nothing
// to bring there.
func TestOrderlyStopWritesTables(t *testing.T) {
	c := testConfig(vfs.NewMem(), "archive-a")
	mustInit(t, c)
	n := mustOpen(t, c)
	records := putLarge(t, n)
	mustClose(t, n)
	n = mustOpen(t, c)
	if at := n.db.Metrics().Levels[0].TableBytesFlushed; n.Seq() != uint64(records) || at > 100<<10 {
		t.Errorf("%d records, want %d; the start brought %d bytes into tables", n.Seq(), records, at)
	}
	mustClose(t, n)
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
