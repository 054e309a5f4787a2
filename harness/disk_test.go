package main

import (
	"crypto/rand"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/verae/archive/client"
	"github.com/verae/archive/harness/world"
	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/internal/need"
	"github.com/verae/archive/internal/serve"
	"github.com/verae/archive/wire"
)

// A real disk fills up below a real archive. At the reserve puts are refused by
// name and all that was acknowledged is answered; with room again puts go on. An
// archive that is killed and starts on a disk with no room at all answers too,
// says what it waits for, and opens for writing by itself when there is room.
func TestAFullDisk(t *testing.T) {
	long(t)
	const size, reserve = 96, 40 // MiB
	disk := need.SmallDisk(t, size)
	a := newLone(t, filepath.Join(disk.Dir, "data"), "DISK_RESERVE=41943040")
	a.start()

	var stored []wire.Digest
	refused := func() error {
		for {
			subject, err := a.put(200 << 10)
			if err != nil {
				return err
			}
			if stored = append(stored, subject); len(stored) > 2*size*5 {
				t.Fatalf("%d records of 200 KiB are on a disk of %d MiB", len(stored), size)
			}
		}
	}
	answered := func(when string) {
		t.Helper()
		for i := 0; i < len(stored); i += 17 {
			if !a.holds(stored[i]) {
				t.Errorf("%s: acknowledged record %d of %d is not answered", when, i, len(stored))
			}
		}
	}
	full := func(when string, err error) {
		t.Helper()
		if !fault.Is(err, fault.Transient) || fault.CodeOf(err) != "DISK_FULL" || !strings.Contains(err.Error(), "free and") {
			t.Errorf("%s: a put is refused with %s: %v", when, fault.CodeOf(err), err)
		}
		a.until(when+": it says that it is full, with all it acknowledged", func() bool {
			hello := a.hello()
			return hello.State == wire.StateReadonly && hello.Reason == "DISK_FULL" && hello.Seq == uint64(len(stored))
		})
		a.until(when+": readiness says why", func() bool {
			status, checks := a.readiness()
			files := when == "at the reserve" || strings.HasPrefix(checks["files"], "DISK_FULL ") // a flush may have given room again that records do not take
			return status == 503 && files && strings.HasPrefix(checks["records"], "DISK_FULL ") && strings.Contains(checks["records"], "enlarge")
		})
		answered(when)
	}
	up := func(when string) {
		t.Helper()
		a.until(when+": it is up", func() bool { return a.hello().State == wire.StateUp })
		subject, err := a.put(100)
		if err != nil {
			t.Fatalf("%s: %v", when, err)
		}
		stored = append(stored, subject)
		answered(when)
		a.until(when+": it is ready", func() bool { status, _ := a.readiness(); return status == 200 })
	}

	full("at the reserve", refused())
	t.Logf("%d records of 200 KiB on %d MiB with a reserve of %d", len(stored), size, reserve)
	disk.Resize(2 * size)
	up("on a larger disk")

	occupied := disk.Occupy(0)
	a.until("it sees the full disk", func() bool { return a.hello().State == wire.StateReadonly })
	_, err := a.put(100)
	full("with nothing free", err)

	a.kill()
	a.start()
	_, err = a.put(100)
	full("started with nothing free", err)
	if code := a.stop(); code != serve.ExitOK {
		t.Errorf("stopped with nothing free: exit code %d", code)
	}
	a.start()
	_, err = a.put(100)
	full("started again with nothing free", err)
	if err := os.Remove(occupied); err != nil {
		t.Fatal(err)
	}
	up("with room again")
	if code := a.stop(); code != serve.ExitOK {
		t.Errorf("stopped with exit code %d", code)
	}
}

// One directory is open in one process at a time; the second says so and leaves
// the first alone.
func TestTwoProcessesOnOneDirectory(t *testing.T) {
	long(t)
	dir := filepath.Join(t.TempDir(), "data")
	a := newLone(t, dir)
	a.start()
	subject, err := a.put(100)
	if err != nil {
		t.Fatal(err)
	}
	if code, text := a.run("serve"); code != serve.ExitMisplaced || !strings.Contains(text, "in use") || !strings.Contains(text, dir) {
		t.Errorf("the second process: exit code %d, want %d: %s", code, serve.ExitMisplaced, text)
	}
	if code, text := a.run("init"); code != serve.ExitMisplaced {
		t.Errorf("init beside it: exit code %d: %s", code, text)
	}
	if _, err := a.put(100); err != nil || !a.holds(subject) {
		t.Errorf("the first process suffered: %v", err)
	}
	if code := a.stop(); code != serve.ExitOK {
		t.Errorf("exit code %d", code)
	}
	// The same of an aggregator, whose addresses differ.
	w := startWorld(t, world.Config{Archives: []wire.ArchiveID{"archive-a"}})
	second := exec.Command(os.Args[0], "world-program", "aggregator", "serve")
	second.Env = append(os.Environ(), "DATA_DIR="+filepath.Join(w.Ready().Dir, "aggregator"), "HTTP_ADDR=127.0.0.1:0", "NATS_LISTEN=127.0.0.1:0", "API_KEYS_FILE="+filepath.Join(w.Ready().Dir, "keys.json"))
	if out, err := second.CombinedOutput(); err == nil || second.ProcessState.ExitCode() != serve.ExitMisplaced || !strings.Contains(string(out), "in use") {
		t.Errorf("a second aggregator: %v: %s", err, out)
	}
	if code, text := a.run("serve", "ARCHIVE_ID=archive-b"); code != serve.ExitMisplaced || !strings.Contains(text, loneID) {
		t.Errorf("with another id: exit code %d: %s", code, text)
	}
}

// The aggregator's disk fills up: new submissions are refused with a time to come
// back, what was accepted is looked up, and with room again submissions go on. It
// is never restarted.
func TestAFullDiskOfTheAggregator(t *testing.T) {
	long(t)
	const size, reserve = 192, 48 // MiB
	disk := need.SmallDisk(t, size)
	w := startWorld(t, world.Config{Dir: filepath.Join(disk.Dir, "world"), Archives: []wire.ArchiveID{"archive-a"}, Env: []string{"DISK_RESERVE=50331648", "PUT_COPIES=1"}})
	c := w.Client("acme")
	before, err := c.Stamp(t.Context(), client.Submission{Data: []byte("before")})
	if err != nil || before.Job == nil {
		t.Fatalf("%+v, %v", before, err)
	}
	occupied := disk.Occupy(reserve / 2 << 20)
	var problem error
	eventually(t, "submissions are refused", func() bool {
		_, problem = c.Submit(t.Context(), client.Submission{Data: []byte(rand.Text())})
		return problem != nil
	})
	if !fault.Is(problem, fault.Transient) || fault.CodeOf(problem) != "DISK_FULL" || fault.RetryAfter(problem) == 0 || strings.Contains(problem.Error(), disk.Dir) {
		t.Errorf("refused with %s: %v", fault.CodeOf(problem), problem)
	}
	awaitJob(t, c, before.Job.SHA256, func(job *wire.Job) bool { return len(job.Receipts) > 0 })
	if err := os.Remove(occupied); err != nil {
		t.Fatal(err)
	}
	eventually(t, "submissions go on", func() bool {
		_, err := c.Submit(t.Context(), client.Submission{Data: []byte(rand.Text())})
		return err == nil
	})
}

// eventually polls for what processes will have done; nothing is timed by it.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !is(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within a minute: %s", what)
		}
	}
}
