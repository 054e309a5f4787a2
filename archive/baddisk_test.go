package archive

import (
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/internal/pebblex/faultfs"
	"github.com/verae/archive/wire"
)

// tables returns an archive whose n records are in tables and not in memory, and
// its disk.
func tables(t *testing.T, n int) (*Node, *faultfs.FS, []wire.Put) {
	t.Helper()
	disk := faultfs.New(vfs.NewMem())
	c := testConfig(disk, "archive-a")
	c.CacheSize, c.MemTableSize = 1, 1<<20
	mustInit(t, c)
	node := mustOpen(t, c)
	puts := []wire.Put{}
	for i := range n {
		p := numbered(0, i)
		p.Record.Body = fmt.Appendf(nil, `{"n":%d,"x":%q}`, i, rand.Text()+strings.Repeat(rand.Text(), 800)) // a block of its own
		puts = append(puts, p)
		if _, err := node.Put(t.Context(), puts[i]); err != nil {
			t.Fatal(err)
		}
	}
	if err := node.db.Flush(); err != nil {
		t.Fatal(err)
	}
	mustClose(t, node)
	return mustOpen(t, c), disk, puts
}

// A block that can not be read makes the archive read-only with a reason; the
// process lives, the query gets an error and no silence, and what is whole is
// answered.
func TestABadDiskIsQuarantined(t *testing.T) {
	n, disk, puts := tables(t, 50)
	defer func() { _ = n.Close() }()
	disk.Fail(faultfs.Where(func(p faultfs.Point) bool { return p.Op == faultfs.OpRead && strings.HasSuffix(p.Path, ".sst") }, faultfs.ErrIO))
	_, ok, err := n.Answer(t.Context(), query(alice, puts[25].Record.SHA256))
	if ok || !fault.Is(err, fault.Corrupt) || !errors.Is(err, faultfs.ErrIO) {
		t.Errorf("answer from a bad disk: %v, %v", ok, err)
	}
	wantState(t, n, wire.StateReadonly, "DAMAGED")
	if _, err := n.Put(t.Context(), numbered(1, 0)); fault.CodeOf(err) != "READONLY" || !fault.Is(err, fault.Transient) {
		t.Errorf("put: %v", err)
	}
	disk.Fail(nil) // the rest of the disk is well
	if got := ask(t, n, alice, puts[1].Record.SHA256); len(got) != 1 {
		t.Errorf("what is whole is answered with %v", got)
	}
	wantState(t, n, wire.StateReadonly, "DAMAGED") // for ever: only a new process has read the disk again
}

// A flush that finds no room does no harm to puts that were acknowledged.
func TestAFlushWithoutRoomLosesNothing(t *testing.T) {
	n, disk, puts := tables(t, 10)
	defer mustClose(t, n)
	tries := make(chan struct{}, 1000)
	disk.Fail(func(p faultfs.Point) faultfs.Outcome {
		if p.Op != faultfs.OpCreate || !strings.HasSuffix(p.Path, ".sst") {
			return faultfs.Outcome{}
		}
		tries <- struct{}{}
		return faultfs.Outcome{Err: faultfs.ErrFull}
	})
	flushed := make(chan error)
	if _, err := n.Put(t.Context(), numbered(1, 0)); err != nil {
		t.Fatal(err)
	}
	go func() { flushed <- n.db.Flush() }()
	<-tries
	more := numbered(1, 1)
	if _, err := n.Put(t.Context(), more); err != nil {
		t.Errorf("a put while a flush fails: %v", err)
	}
	disk.Fail(nil)
	if err := <-flushed; err != nil {
		t.Error(err)
	}
	for _, p := range append(puts, more) {
		if got := ask(t, n, alice, p.Record.SHA256); len(got) != 1 {
			t.Errorf("an acknowledged record is answered with %v", got)
		}
	}
	wantState(t, n, wire.StateUp, "")
}
