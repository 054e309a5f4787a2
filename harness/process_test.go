package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/verae/archive/client"
	"github.com/verae/archive/harness/world"
	"github.com/verae/archive/internal/need"
	"github.com/verae/archive/wire"
)

// greetingEnd ends what the harness prints once it serves.
const greetingEnd = "Ctrl-C stops everything."

// startHarness runs this test binary as the harness and waits until it is
// ready.
func startHarness(t *testing.T, out *syncedBuffer, args ...string) (*exec.Cmd, world.Ready) {
	t.Helper()
	dir := t.TempDir()
	ready := filepath.Join(dir, "ready.json")
	cmd := exec.Command(os.Args[0], append([]string{harnessCommand, "--dir", filepath.Join(dir, "data"), "--ready", ready}, args...)...)
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if cmd.ProcessState == nil {
			_ = cmd.Process.Kill() // the test failed before it ended the harness
			_ = cmd.Wait()
		}
	})
	deadline := time.Now().Add(time.Minute)
	for {
		data, err := os.ReadFile(ready)
		if err == nil && strings.Contains(out.String(), greetingEnd) { // the file may be there before the pipe is read
			var r world.Ready
			if err := json.Unmarshal(data, &r); err != nil {
				t.Fatal(err)
			}
			return cmd, r
		}
		if time.Now().After(deadline) {
			t.Fatalf("the harness is not ready: %s", out.String())
		}
		time.Sleep(10 * time.Millisecond) // polls; nothing is timed by it
	}
}

// gone waits until no process of the list runs. A zombie that nobody reaps is
// gone too.
func gone(t *testing.T, pids []int) {
	t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for _, pid := range pids {
		for running(pid) {
			if time.Now().After(deadline) {
				t.Fatalf("process %d is left behind", pid)
			}
			time.Sleep(10 * time.Millisecond) // polls; nothing is timed by it
		}
	}
}

func running(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	return !strings.HasPrefix(rest, "Z")
}

func pids(r world.Ready) (list []int) {
	for _, a := range r.Archives {
		list = append(list, a.PID)
	}
	return list
}

func TestHarnessStopsOnInterrupt(t *testing.T) {
	var out syncedBuffer
	cmd, r := startHarness(t, &out)
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("Ctrl-C ends it with %v: %s", err, out.String())
	}
	gone(t, pids(r))
}

func TestNothingOutlivesAKilledHarness(t *testing.T) {
	long(t)
	if _, err := os.Stat("/proc/self/stat"); err != nil {
		need.Missing(t, "/proc")
	}
	var out syncedBuffer
	cmd, r := startHarness(t, &out)
	pid, err := aggregatorPID(r)
	if err != nil {
		t.Fatal(err)
	}
	children := append(pids(r), pid)
	for _, pid := range children {
		if !running(pid) {
			t.Fatalf("process %d does not run", pid)
		}
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // killed, as asked
	gone(t, children)
}

func aggregatorPID(r world.Ready) (int, error) {
	data, err := os.ReadFile(filepath.Join(r.Dir, world.Aggregator+".ready"))
	if err != nil {
		return 0, err
	}
	var p struct{ PID int }
	if err := json.Unmarshal(data, &p); err != nil || p.PID == 0 {
		return 0, fmt.Errorf("%s: %w", data, err)
	}
	return p.PID, nil
}

// What the harness prints works when it is pasted.
func TestPastedCurlWorks(t *testing.T) {
	long(t)
	need.Program(t, "curl")
	bash := need.Program(t, "bash")
	var out syncedBuffer
	cmd, r := startHarness(t, &out)
	line := regexp.MustCompile(`(?s)curl -sS .*?'includeAttached=true'`).FindString(out.String())
	answer, err := exec.CommandContext(t.Context(), bash, "-c", line).Output()
	if err != nil {
		t.Fatalf("%s: %v", line, err)
	}
	job, err := wire.Decode[wire.Job](answer)
	if err != nil || job.Status != wire.StatusCompleted || job.SHA256.String() != firstDigest {
		t.Fatalf("the pasted line answers %s, %v", answer, err)
	}
	c := client.Client{URL: r.HTTPURL, Key: r.APIKeys["acme"]}
	shownOrLater(t, &c, &job, func(job *wire.Job) bool {
		return job.Complete && len(job.Receipts) == 2 && len(job.ArchivesExpected) == 3 && job.ArchiveReplies == 2
	})
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	gone(t, pids(r))
}

// --seed timestamps a directory through the API; the files come back by their
// digests.
func TestSeedTimestampsADirectory(t *testing.T) {
	long(t)
	dir := t.TempDir()
	want := map[wire.Digest]string{}
	for i := range 12 {
		name := fmt.Sprintf("sub/file %d.txt", i)
		data := randomBytes(i*40_000, uint64(i))
		want[sum(data)] = name
		if err := os.MkdirAll(filepath.Join(dir, "sub"), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var out bytes.Buffer
	data := filepath.Join(t.TempDir(), "data")
	if code := run([]string{"--dir", data, "--seed", dir, "--verify", "--once"}, &out, &out); code != 0 {
		t.Fatalf("exit code %d: %s", code, out.String())
	}
	if !strings.Contains(out.String(), "found again, byte for byte, 12 files") {
		t.Errorf("the harness says %s", out.String())
	}
	w := startWorld(t, world.Config{Dir: data})
	for d, name := range want {
		awaitJob(t, w.Client("acme"), d, func(job *wire.Job) bool { return len(job.Files) == 1 && job.Files[0].Name == name })
	}
}

// Killing an archive is the first thing people try: the rest serves on, and
// says who is missing.
func TestHarnessOutlivesAnArchive(t *testing.T) {
	long(t)
	var out syncedBuffer
	cmd, r := startHarness(t, &out)
	archive, err := os.FindProcess(r.Archives[0].PID)
	if err != nil {
		t.Fatal(err)
	}
	if err := archive.Kill(); err != nil {
		t.Fatal(err)
	}
	c := client.Client{URL: r.HTTPURL, Key: r.APIKeys["acme"]}
	job := stamp(t, &c, client.Submission{Data: []byte("document"), IncludeAttached: true})
	shownOrLater(t, &c, job, func(job *wire.Job) bool {
		return !job.Complete && len(job.ArchivesMissing) == 1 && job.ArchivesMissing[0] == r.Archives[0].ID
	})
	deadline := time.Now().Add(30 * time.Second)
	for !strings.Contains(out.String(), "archive-a ended by itself") {
		if time.Now().After(deadline) {
			t.Fatalf("the harness does not say so: %s", out.String())
		}
		time.Sleep(10 * time.Millisecond) // polls; nothing is timed by it
	}
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("%v: %s", err, out.String())
	}
}

// syncedBuffer is a buffer that a process writes to while a test reads.
type syncedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *syncedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *syncedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}
