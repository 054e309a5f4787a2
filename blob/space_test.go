package blob

import (
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/internal/pebblex/faultfs"
)

// A store that starts on a disk without any room reads its files, takes none,
// and says when it may be opened again.
func TestAFullDiskServesFiles(t *testing.T) {
	mem := vfs.NewCrashableMem()
	cfg := testConfig(t)
	cfg.FS = mem
	s := openStore(t, cfg)
	sums, _ := store(t, s, "first", []byte("there was room"), small)
	disk := faultfs.New(mem.CrashClone(vfs.CrashCloneCfg{}))
	disk.SetFree(1<<10, 1<<40)
	disk.Fail(faultfs.Where(func(p faultfs.Point) bool { return p.Op == faultfs.OpCreate || p.Op == faultfs.OpWrite }, faultfs.ErrFull))
	cfg.FS, cfg.Create = disk, false
	full, err := OpenStore(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := readAll(t, full, sums.CID, 100); err != nil || string(got) != "there was room" {
		t.Errorf("read %q, %v", got, err)
	}
	wantFault(t, full.Open("second", small), fault.Transient, CodeDiskFull)
	wantFault(t, full.Ready(), fault.Transient, CodeDiskFull)
	if dup, err := full.Commit(t.Context(), "first", sums.Size, sums.SHA256, sums.CID); err != nil || !dup {
		t.Errorf("a commit of what is here: %v, %v", dup, err)
	}
	if full.Reopen() {
		t.Error("there is no room, and it would be opened again")
	}
	disk.Fail(nil)
	disk.SetFree(1<<39, 1<<40)
	full.disk.Look()
	if !full.Reopen() || full.Ready() == nil {
		t.Errorf("with room again: reopen %v, ready %v", full.Reopen(), full.Ready())
	}
	if err := full.Close(); err != nil {
		t.Error(err)
	}
	again := openStore(t, cfg)
	store(t, again, "second", []byte("there is room again"), small)
	wantClean(t, again)
}

// Files of one archive are not taken for those of another.
func TestFilesBelongToOneArchive(t *testing.T) {
	cfg := testConfig(t)
	cfg.Owner = "archive-a"
	s, err := OpenStore(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	cfg.Create = false
	for owner, code := range map[string]string{"archive-a": "", "": "", "archive-b": CodeForeign} {
		cfg.Owner = owner
		s, err := OpenStore(cfg)
		if fault.CodeOf(err) != code || (err != nil) != (code != "") {
			t.Errorf("opened by %q: %v, want %q", owner, err, code)
		}
		if code != "" && !fault.Is(err, fault.Conflict) {
			t.Errorf("opened by %q: kind %s", owner, fault.KindOf(err))
		}
		if err == nil {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		}
	}
	nobodys := testConfig(t)
	if s, err = OpenStore(nobodys); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	nobodys.Create, nobodys.Owner = false, "archive-a"
	_, err = OpenStore(nobodys)
	wantFault(t, err, fault.Conflict, CodeForeign)
}
