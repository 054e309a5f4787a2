package archive

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/internal/need"
	"github.com/verae/archive/internal/pebblex/faultfs"
	"github.com/verae/archive/wire"
)

// TestADiskThatStumbles has one operation fail, each in its turn, of a busy
// archive from its opening to its end, and the disk be well again: it is bad or
// full, and did the work or not. The archive goes on, or ends; what it
// acknowledged is there either way, and after a power cut too.
func TestADiskThatStumbles(t *testing.T) {
	stride := 1
	if need.Rounds(0, 1) == 0 {
		stride = 17 // beside the others of the suite; each run takes other points of each disk
	}
	points, lived := 0, 0
	for i, disk := range []struct {
		err  error
		done bool
	}{{faultfs.ErrIO, false}, {faultfs.ErrIO, true}, {faultfs.ErrFull, false}, {faultfs.ErrFull, true}} {
		for at := int64(i); ; at += int64(stride) {
			there, died := stumble(t, at, disk.err, disk.done)
			if !there {
				break
			}
			points++
			if !died {
				lived++
			}
		}
	}
	if lived == 0 || lived == points || points < 20 {
		t.Errorf("of %d stumbles %d were outlived", points, lived)
	}
	t.Logf("%d stumbles, %d of them outlived, 0 acknowledged records lost", points, lived)
}

// stumble reports whether there was such an operation, and whether the process
// died of it.
func stumble(t *testing.T, at int64, err error, done bool) (there, died bool) {
	t.Helper()
	mem := vfs.NewCrashableMem()
	mustInit(t, testConfig(mem, "archive-a"))
	disk, process := faultfs.New(mem), faultfs.NewProcess()
	disk.Fail(process.Kills(faultfs.Nth(at, err, done), 1))
	c := testConfig(disk, "archive-a")
	c.OnFatal, c.MemTableSize, c.markEvery = process.Fatal, 64<<10, 10*time.Millisecond // to the next try of a mark
	var j journal
	died = process.Run(func() {
		n, openErr := Open(c)
		if openErr != nil {
			if !errors.Is(openErr, err) {
				t.Errorf("operation %d: open: %v", at, openErr)
			}
			return
		}
		for i := range 12 {
			put := wire.Put{PutID: wire.NewPutID(), Checkpoint: i%4 == 3, Record: metadata(alice, digest(fmt.Sprint("stumble ", i)), `{"n":1}`)}
			put.Record.Kind, put.Record.Body = "ocr", make([]byte, 6<<10)
			if ack, err := n.Put(t.Context(), put); err == nil {
				j.add(put, ack.Seq)
			}
		}
		if closeErr := n.Close(); closeErr != nil && !errors.Is(closeErr, err) && fault.CodeOf(closeErr) != "STORE_FAILED" {
			t.Errorf("operation %d: close: %v", at, closeErr)
		}
	})
	disk.Fail(nil)
	survived(t, mem.CrashClone(vfs.CrashCloneCfg{}), j.copy())
	return disk.Ops() > at, died
}
