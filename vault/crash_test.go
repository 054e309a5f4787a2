package vault

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/verae/archive/wire"
)

// errCrash is what every step after the crash returns.
var errCrash = errors.New("crashed")

// A machine is a disk in memory that forgets what was not synced. It stops at a
// given step, counted over all its directories.
type machine struct {
	fs       *vfs.MemFS
	onCreate func() // runs before a file is created

	mu    sync.Mutex
	left  int // steps until the crash; negative: never
	steps []string
}

func newMachine(left int) *machine {
	m := &machine{fs: vfs.NewCrashableMem(), left: left}
	for _, dir := range []string{"/v", "/v/tenants", "/k"} {
		if err := m.fs.MkdirAll(dir, 0o700); err != nil {
			panic(err)
		}
	}
	for _, dir := range []string{"/", "/v"} {
		if err := syncMem(m.fs, dir); err != nil {
			panic(err)
		}
	}
	return m
}

func syncMem(fs *vfs.MemFS, dir string) error {
	d, err := fs.OpenDir(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// crash returns the machine after a power cut: without what was not synced, or
// with it if lucky.
func (m *machine) crash(lucky bool) *machine {
	cfg := vfs.CrashCloneCfg{RNG: rand.New(rand.NewPCG(1, 2))}
	if lucky {
		cfg.UnsyncedDataPercent = 100
	}
	return &machine{fs: m.fs.CrashClone(cfg), left: -1}
}

func (m *machine) step(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.left == 0 {
		return errCrash
	}
	m.left--
	m.steps = append(m.steps, name)
	return nil
}

func (m *machine) open(create bool) (*Vault, error) {
	return open(places{dir: memDisk{m, "/v"}, tenants: memDisk{m, "/v/tenants"}, kek: memDisk{m, "/k"}, kekName: kekName}, create, nil)
}

// memDisk is one directory of a machine. It refuses what a disk must not do: to
// replace a file.
type memDisk struct {
	m    *machine
	path string
}

func (d memDisk) String() string            { return d.path }
func (d memDisk) at(name string) string     { return d.path + "/" + name }
func (d memDisk) Private(fs.FileMode) error { _, err := d.m.fs.Stat(d.path); return err }

func (d memDisk) Read(name string) ([]byte, error) {
	f, err := d.m.fs.Open(d.at(name))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(f)
}

func (d memDisk) Names() ([]string, error) { return d.m.fs.List(d.path) }

func (d memDisk) absent(name string) error {
	if _, err := d.m.fs.Stat(d.at(name)); err == nil {
		return fmt.Errorf("%s: %w", name, fs.ErrExist)
	}
	return nil
}

func (d memDisk) Create(name string) (file, error) {
	if d.m.onCreate != nil {
		d.m.onCreate()
	}
	if err := errors.Join(d.absent(name), d.m.step("create")); err != nil {
		return nil, err
	}
	f, err := d.m.fs.Create(d.at(name), vfs.WriteCategoryUnspecified)
	return memFile{f, d.m}, err
}

func (d memDisk) Link(old, name string) error {
	if err := d.absent(name); err != nil {
		return err
	}
	if err := d.m.step("link"); err != nil {
		return err
	}
	return d.m.fs.Link(d.at(old), d.at(name))
}

func (d memDisk) Remove(name string) error {
	if !strings.Contains(name, tempMark) {
		return fmt.Errorf("removing %s, which is not temporary", name)
	}
	if err := d.m.step("remove"); err != nil {
		return err
	}
	return d.m.fs.Remove(d.at(name))
}

func (d memDisk) Sync() error {
	if err := d.m.step("sync " + d.path); err != nil {
		return err
	}
	return syncMem(d.m.fs, d.path)
}

type memFile struct {
	vfs.File
	m *machine
}

func (f memFile) Write(b []byte) (int, error) {
	if err := f.m.step("write"); err != nil {
		// Half of it may be there.
		n, _ := f.File.Write(b[:len(b)/2])
		return n, err
	}
	return f.File.Write(b)
}

func (f memFile) Sync() error {
	if err := f.m.step("fsync"); err != nil {
		return err
	}
	return f.File.Sync()
}

// use opens the vault and seals for a tenant.
func use(m *machine, tenant wire.TenantID) (sealed []byte, err error) {
	v, err := m.open(true)
	if err != nil {
		return nil, err
	}
	defer v.Close()
	return v.Seal(context.Background(), Context{TenantID: tenant}, []byte("plain"))
}

// TestCrashBetweenAnyTwoSteps cuts the power after every step from the first
// start to the end of the second use. Whatever was sealed before stays readable,
// and the vault always works again.
func TestCrashBetweenAnyTwoSteps(t *testing.T) {
	whole := newMachine(-1)
	if _, err := use(whole, "acme"); err != nil {
		t.Fatal(err)
	}
	steps := len(whole.steps)
	if steps < 15 {
		t.Fatalf("only %d steps: %q", steps, whole.steps)
	}
	for n := range steps + 1 {
		for _, lucky := range []bool{false, true} {
			m := newMachine(n)
			sealed, err := use(m, "acme")
			if err != nil && !errors.Is(err, errCrash) {
				t.Fatalf("crash at step %d: %v", n, err)
			}
			after := m.crash(lucky)
			v, err := after.open(true)
			if err != nil {
				t.Fatalf("open after a crash at step %d (%q), lucky %v: %v", n, m.steps, lucky, err)
			}
			if sealed != nil {
				if _, err := v.Open(context.Background(), Context{TenantID: "acme"}, sealed); err != nil {
					t.Errorf("crash at step %d, lucky %v: sealed before, lost after: %v", n, lucky, err)
				}
			}
			v.Close()
			again, err := use(after, "acme")
			if err != nil {
				t.Fatalf("use after a crash at step %d, lucky %v: %v", n, lucky, err)
			}
			v, err = after.crash(false).open(false)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := v.Open(context.Background(), Context{TenantID: "acme"}, again); err != nil {
				t.Errorf("second use after a crash at step %d, lucky %v: lost: %v", n, lucky, err)
			}
			names, err := after.fs.List("/v/tenants")
			if err != nil || len(names) != 1 {
				t.Errorf("after a crash at step %d the keys are %q, %v, want one", n, names, err)
			}
		}
	}
}

// TestFailedStepIsNotTheLastWord fails one step, of making the vault or a key,
// and tries again on the same machine without a power cut. Only then the power
// goes: nothing may rest on the step that failed.
func TestFailedStepIsNotTheLastWord(t *testing.T) {
	whole := newMachine(-1)
	if _, err := use(whole, "acme"); err != nil {
		t.Fatal(err)
	}
	for n := range whole.steps {
		m := newMachine(n)
		v, err := m.open(true)
		var first []byte
		if err == nil {
			first, err = v.Seal(t.Context(), Context{TenantID: "acme"}, nil)
		}
		if err != nil && !errors.Is(err, errCrash) {
			t.Fatalf("step %d: %v", n, err)
		}
		m.left = -1
		if v == nil {
			if v, err = m.open(true); err != nil {
				t.Fatalf("open after step %d failed: %v", n, err)
			}
		}
		second, err := v.Seal(t.Context(), Context{TenantID: "acme"}, nil)
		if err != nil {
			t.Fatalf("after step %d failed: %v", n, err)
		}
		v, err = m.crash(false).open(false)
		if err != nil {
			t.Fatalf("after step %d (%q) failed: %v", n, m.steps, err)
		}
		for _, s := range [][]byte{first, second} {
			if s == nil {
				continue
			}
			if _, err := v.Open(t.Context(), Context{TenantID: "acme"}, s); err != nil {
				t.Errorf("after step %d failed: %v", n, err)
			}
		}
	}
}

// TestTwoProcessesMakeOneKey runs two vaults on one disk, as they would without
// the lock: the second makes the tenant's key while the first is about to.
func TestTwoProcessesMakeOneKey(t *testing.T) {
	m := newMachine(-1)
	a, err := m.open(true)
	if err != nil {
		t.Fatal(err)
	}
	b, err := m.open(false)
	if err != nil {
		t.Fatal(err)
	}
	var second [32]byte
	m.onCreate = func() {
		m.onCreate = nil
		if second, err = b.MAC("acme", "p", nil); err != nil {
			t.Error(err)
		}
	}
	first, err := a.MAC("acme", "p", nil)
	if err != nil {
		t.Fatal(err)
	}
	if first != second || second == [32]byte{} {
		t.Error("two keys were made")
	}
	if len(a.keys) != 1 {
		t.Error("the first does not keep the key it found")
	}
}
