package daemon

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/verae/archive/archive"
	"github.com/verae/archive/blob"
	"github.com/verae/archive/bus/server"
	"github.com/verae/archive/internal/pebblex"
	"github.com/verae/archive/wire"
)

// archived is an archive's directory, for its commands.
type archivedDir struct {
	t    *testing.T
	dir  string
	nats string
	stop func()
}

func newArchivedDir(t *testing.T) *archivedDir {
	t.Helper()
	a := &archivedDir{t: t, dir: filepath.Join(t.TempDir(), "a")}
	a.command(0, "init")
	return a
}

func (a *archivedDir) command(code int, args ...string) string {
	a.t.Helper()
	return a.commandOn(code, a.dir, args...)
}

func (a *archivedDir) commandOn(code int, dir string, args ...string) string {
	a.t.Helper()
	got, said := a.ends(dir, args...)
	if got != code {
		a.t.Fatalf("%q ended with code %d, not %d: %s", args, got, code, said)
	}
	return said
}

// ends runs a command and returns how it ended.
func (a *archivedDir) ends(dir string, args ...string) (code int, said string) {
	var out bytes.Buffer
	all := append([]string{args[0], "--data-dir", dir, "--archive-id", "archive-a", "--nats-url", a.nats}, args[1:]...)
	code = ArchivedProgram.Main(all, &out, &out)
	return code, out.String()
}

func (a *archivedDir) config(args ...string) Archived {
	a.t.Helper()
	var cfg Archived
	if _, err := Parse("archived", "", &cfg, append([]string{"--data-dir", a.dir, "--archive-id", "archive-a", "--nats-url", a.nats, "--disk-reserve", "1"}, args...), nil, io.Discard); err != nil {
		a.t.Fatal(err)
	}
	return cfg
}

// open opens the stores of an archive that does not run, for the time of fn.
func (a *archivedDir) open(fn func(*archive.Node, *blob.Store)) {
	a.t.Helper()
	cfg, log := a.config(), slog.New(slog.DiscardHandler)
	err := cfg.withFiles(log, func(files *blob.Store) error {
		c := cfg.recordConfig(log, files)
		c.Lease = time.Nanosecond
		node, err := archive.Open(c)
		if err != nil {
			return err
		}
		<-node.Loaded()
		fn(node, files)
		return node.Close()
	})
	if err != nil {
		a.t.Fatal(err)
	}
}

// fill stores records about n subjects, and a file.
func (a *archivedDir) fill(n int) (puts []wire.Put) {
	a.t.Helper()
	a.open(func(node *archive.Node, files *blob.Store) {
		for i := range n {
			puts = append(puts, wire.Put{PutID: wire.NewPutID(), Record: wire.PutRecord{
				Kind: wire.KindMetadata, SHA256: sha256.Sum256(fmt.Append(nil, i)), TenantID: "acme", SubmissionID: wire.NewSubmissionID(),
				AttachedAt: "2026-11-30T12:00:00Z", ContentType: "application/json", Body: fmt.Appendf(nil, `{"n":%d}`, i),
			}})
		}
		data := bytes.Repeat([]byte("a page "), 1000)
		sum := sha256.Sum256(data)
		cid := storeFile(a.t, files, data)
		puts = append(puts, wire.Put{PutID: wire.NewPutID(), Record: wire.PutRecord{
			Kind: wire.KindFile, SHA256: sum, TenantID: "acme", SubmissionID: wire.NewSubmissionID(), AttachedAt: "2026-11-30T12:00:00Z",
			File: &wire.File{Name: "a.txt", Size: int64(len(data)), SHA256: sum, CID: cid},
		}})
		for _, p := range puts {
			if _, err := node.Put(a.t.Context(), p); err != nil {
				a.t.Fatal(err)
			}
		}
	})
	return puts
}

// holds fails unless the archive is generation number and has the puts, whole.
func (a *archivedDir) holds(number int, puts []wire.Put) {
	a.t.Helper()
	a.open(func(node *archive.Node, files *blob.Store) {
		if got := node.Hello().Generation; got != number {
			a.t.Errorf("generation %d, want %d", got, number)
		}
		for _, p := range puts {
			if ack, err := node.Put(a.t.Context(), p); err != nil || !ack.Duplicate {
				a.t.Errorf("%+v, %v", ack, err)
			}
		}
		if _, err := node.CheckWith(a.t.Context(), archive.CheckOptions{Blobs: files}); err != nil {
			a.t.Error(err)
		}
	})
}

// bus starts a NATS server for the test.
func (a *archivedDir) bus() {
	a.t.Helper()
	s, err := server.Start(server.Config{Host: "127.0.0.1", Port: server.RandomPort})
	if err != nil {
		a.t.Fatal(err)
	}
	a.nats = s.ClientURL()
	a.t.Cleanup(func() {
		ctx, stop := context.WithTimeout(context.Background(), time.Minute)
		defer stop()
		if err := s.Shutdown(ctx); err != nil {
			a.t.Error(err)
		}
	})
}

// run runs the archive until stop.
func (a *archivedDir) run(args ...string) {
	a.t.Helper()
	ready := filepath.Join(a.t.TempDir(), "ready")
	cfg := a.config(append(args, "--ready-file", ready)...)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- RunArchive(ctx, cfg, slog.New(slog.DiscardHandler), new(slog.LevelVar)) }()
	awaitFile(a.t, ready, done)
	a.stop = func() {
		a.t.Helper()
		cancel()
		if err := <-done; err != nil {
			a.t.Error(err)
		}
		a.stop = func() {}
	}
	a.t.Cleanup(func() { a.stop() })
}

// An archive is copied while it runs and while it does not, and restored as
// another generation that has all its records and files.
func TestArchiveIsBackedUpAndRestored(t *testing.T) {
	a := newArchivedDir(t)
	puts := a.fill(20)
	to := t.TempDir()
	offline, online := filepath.Join(to, "offline"), filepath.Join(to, "online")
	if out := a.command(0, "backup", "--to", offline); !strings.Contains(out, "nothing had it open") || !strings.Contains(out, "21 leaves") {
		t.Errorf("backup: %s", out)
	}
	restored := filepath.Join(to, "restored")
	a.commandOn(2, restored, "restore", "--from", offline) // nobody can be asked
	a.bus()
	a.commandOn(5, restored, "restore", "--from", offline) // nobody answers
	a.run()
	if out := a.command(0, "backup", "--to", online); !strings.Contains(out, "copied by the running program") {
		t.Errorf("backup: %s", out)
	}
	a.command(78, "backup", "--to", online) // something is there
	awaitThat(t, "it is seen that it is alive", func() bool {
		code, _ := a.ends(filepath.Join(t.TempDir(), "twin"), "restore", "--from", online)
		return code == 78
	})
	a.stop()
	a.command(78, "restore", "--from", online, "--offline")                                          // something is there
	a.commandOn(78, restored, "restore", "--from", online, "--offline", "--archive-id", "archive-b") // another's
	a.commandOn(65, restored, "restore", "--from", a.dir, "--offline")                               // no backup
	out := a.commandOn(0, restored, "restore", "--from", online, "--offline", "--seen", "30")
	if !strings.Contains(out, "accept archive-a/g2") || !strings.Contains(out, "begins with seq 32") || !strings.Contains(out, "restored 21 records") {
		t.Errorf("restore: %s", out)
	}
	a.holds(1, puts)
	a.dir = restored
	a.holds(2, puts)
}

// An archive whose key is lost does not start and is not repaired; a backup of it
// needs no key, and all its records go on as a new generation. Another key is
// no lost one.
func TestArchiveWithoutItsKeyIsBackedUpAndRestored(t *testing.T) {
	a := newArchivedDir(t)
	puts := a.fill(10)
	to := t.TempDir()
	key, backup, restored := filepath.Join(a.dir, dirRecords, "key.pem"), filepath.Join(to, "backup"), filepath.Join(to, "restored")
	if err := os.Rename(key, key+".gone"); err != nil {
		t.Fatal(err)
	}
	if out := a.command(65, "check"); !strings.Contains(out, "archived backup") || strings.Contains(out, "repair: archived repair") {
		t.Errorf("check: %s", out)
	}
	if out := a.command(65, "repair", "--offline"); !strings.Contains(out, "archived backup") {
		t.Errorf("repair: %s", out)
	}
	if out := a.command(0, "backup", "--to", backup); !strings.Contains(out, "11 leaves") {
		t.Errorf("backup: %s", out)
	}
	a.commandOn(0, restored, "restore", "--from", backup, "--offline")
	other := newArchivedDir(t)
	if err := os.Rename(filepath.Join(other.dir, dirRecords, "key.pem"), key); err != nil {
		t.Fatal(err)
	}
	a.command(78, "backup", "--to", filepath.Join(to, "another"))
	a.dir = restored
	a.holds(2, puts)
}

// A restore refuses a damaged backup and leaves nothing. That every file of one
// is compared is shown where files are copied.
func TestDamagedBackupIsNotRestored(t *testing.T) {
	a := newArchivedDir(t)
	a.fill(3)
	to := t.TempDir()
	backup, restored := filepath.Join(to, "backup"), filepath.Join(to, "restored")
	a.command(0, "backup", "--to", backup)
	m, err := pebblex.ReadManifest(nil, backup, kindArchive)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range []pebblex.BackupFile{m.Files[0], m.Files[len(m.Files)-1]} {
		path := filepath.Join(backup, f.Path)
		good, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, append(bytes.Clone(good), 'x'), 0o600); err != nil {
			t.Fatal(err)
		}
		a.commandOn(65, restored, "restore", "--from", backup, "--offline")
		for _, left := range []string{restored, restored + ".incomplete"} {
			if _, err := os.Lstat(left); !os.IsNotExist(err) {
				t.Errorf("%s: %s is left", f.Path, left)
			}
		}
		if err := os.WriteFile(path, good, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// storeFile stores a file and returns its CID.
func storeFile(t *testing.T, files *blob.Store, data []byte) string {
	t.Helper()
	sums, err := blob.SumReader(bytes.NewReader(data), blob.Default)
	if err != nil {
		t.Fatal(err)
	}
	const id = "018fa2b4-5f03-7cc1-a1b2-0242ac120002"
	if err := files.Open(id, blob.Default); err != nil {
		t.Fatal(err)
	}
	if _, err := files.Write(id, 0, data); err != nil {
		t.Fatal(err)
	}
	if _, err := files.Commit(t.Context(), id, int64(len(data)), sums.SHA256, sums.CID); err != nil {
		t.Fatal(err)
	}
	return sums.CID
}
