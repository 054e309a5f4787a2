package archive

import (
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/internal/pebblex/faultfs"
	"github.com/verae/archive/wire"
)

const mib = 1 << 20

func wantState(t *testing.T, n *Node, state, reason string) {
	t.Helper()
	hello, ready := n.Hello(), fault.CodeOf(n.Ready())
	if hello.State != state || hello.Reason != reason || ready != reason {
		t.Errorf("it says %s (%s) and its readiness %q, want %s (%s)", hello.State, hello.Reason, ready, state, reason)
	}
}

// Below the reserve nothing new is stored, and all else goes on: queries, and
// acknowledgements of what is there. With room again it goes on by itself.
func TestADiskAtItsReserveTakesNoRecords(t *testing.T) {
	disk := faultfs.New(vfs.NewMem())
	disk.SetFree(500*mib, 1000*mib)
	c := testConfig(disk, "archive-a")
	c.DiskReserve = 100 * mib
	mustInit(t, c)
	n := mustOpen(t, c)
	defer mustClose(t, n)
	first := numbered(0, 0)
	if _, err := n.Put(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	wantState(t, n, wire.StateUp, "")

	disk.SetFree(99*mib, 1000*mib)
	n.disk.Look()
	wantState(t, n, wire.StateReadonly, "DISK_FULL")
	second := numbered(0, 1)
	_, err := n.Put(t.Context(), second)
	if !fault.Is(err, fault.Transient) || fault.CodeOf(err) != "DISK_FULL" || fault.RetryAfter(err) == 0 || !strings.Contains(err.Error(), "99 MiB") {
		t.Errorf("put below the reserve: %v", err)
	}
	if ack, err := n.Put(t.Context(), first); err != nil || !ack.Duplicate || ack.Seq != 1 {
		t.Errorf("what is stored needs no room: %+v, %v", ack, err)
	}
	if got := ask(t, n, alice, first.Record.SHA256); len(got) != 1 {
		t.Errorf("queries go on: %v", got)
	}

	disk.SetFree(500*mib, 1000*mib)
	n.disk.Look()
	wantState(t, n, wire.StateUp, "")
	if ack, err := n.Put(t.Context(), second); err != nil || ack.Seq != 2 {
		t.Errorf("put with room again: %+v, %v", ack, err)
	}
}

// An archive that starts on a disk without any room answers all that was
// acknowledged, changes nothing, and says what it waits for.
func TestAFullDiskServesReads(t *testing.T) {
	mem := vfs.NewCrashableMem()
	c := testConfig(mem, "archive-a")
	mustInit(t, c)
	n := mustOpen(t, c)
	puts := []wire.Put{}
	for i := range 50 {
		puts = append(puts, numbered(0, i))
		if _, err := n.Put(t.Context(), puts[i]); err != nil {
			t.Fatal(err)
		}
	}
	disk := faultfs.New(mem.CrashClone(vfs.CrashCloneCfg{}))
	mustClose(t, n)
	c.FS = disk
	disk.SetFree(1<<10, 1000*mib)
	disk.Fail(faultfs.Where(func(p faultfs.Point) bool {
		return p.Op == faultfs.OpCreate || p.Op == faultfs.OpWrite || p.Op == faultfs.OpPrealloc
	}, faultfs.ErrFull))

	n = mustOpen(t, c)
	wantState(t, n, wire.StateReadonly, "DISK_FULL")
	for _, p := range puts {
		if got := ask(t, n, alice, p.Record.SHA256); len(got) != 1 {
			t.Fatalf("an acknowledged record is answered with %v", got)
		}
	}
	if _, err := n.Put(t.Context(), numbered(0, 100)); fault.CodeOf(err) != "DISK_FULL" || !fault.Is(err, fault.Transient) {
		t.Errorf("put: %v", err)
	}
	if n.Reopen() {
		t.Error("it would be opened again though there is no room")
	}
	disk.Fail(nil)
	disk.SetFree(500*mib, 1000*mib)
	n.disk.Look()
	wantState(t, n, wire.StateReadonly, "DISK_FULL") // until it is opened for writing
	if !n.Reopen() {
		t.Error("there is room, and nobody is told")
	}
	mustClose(t, n)
	n = mustOpen(t, c)
	defer mustClose(t, n)
	if ack, err := n.Put(t.Context(), numbered(0, 100)); err != nil || ack.Seq != 51 {
		t.Errorf("put after the reopening: %+v, %v", ack, err)
	}
}

// Every reason for which an archive takes no records has a text that says what
// to do.
func TestReadinessSaysWhy(t *testing.T) {
	for code, make := range map[string]func(n *Node){
		"DAMAGED":      func(n *Node) { n.health.quarantine("000012.sst: bad block") },
		"STORE_FAILED": func(n *Node) { n.health.fail("input/output error") },
		"DRAINING":     func(n *Node) { n.SetState(wire.StateDraining) },
		"READONLY":     func(n *Node) { n.SetState(wire.StateReadonly) },
		"LATE": func(n *Node) {
			n.health.watch(func() error { return fault.New(fault.Transient, "LATE", "archive: it is late") })
		},
	} {
		c := testConfig(vfs.NewMem(), "archive-a")
		mustInit(t, c)
		n := mustOpen(t, c)
		make(n)
		err := n.Ready()
		if fault.CodeOf(err) != code || n.Hello().Reason != code {
			t.Errorf("%s: readiness %v, hello %q", code, err, n.Hello().Reason)
		}
		if code == "DAMAGED" && !strings.Contains(err.Error(), "archived repair") {
			t.Errorf("it does not say what to do: %v", err)
		}
		_ = n.Close() // that of a failed store says so
	}
}
