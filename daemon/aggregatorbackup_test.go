package daemon

import (
	"bytes"
	"context"
	"crypto/sha256"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/verae/archive/client"
	"github.com/verae/archive/edge"
	"github.com/verae/archive/internal/pebblex"
	"github.com/verae/archive/internal/serve"
	"github.com/verae/archive/wire"
)

// aggregated is an aggregator that a test runs in this process, for its
// commands.
type aggregated struct {
	t     *testing.T
	dir   string
	guard string // GUARD_FILE
	key   string
	stop  func()
	http  string
}

func newAggregated(t *testing.T) *aggregated {
	t.Helper()
	return newGuarded(t, "")
}

func newGuarded(t *testing.T, guard string) *aggregated {
	t.Helper()
	a := &aggregated{t: t, dir: filepath.Join(t.TempDir(), "agg"), guard: guard}
	a.command(0, "init")
	text, _, err := edge.CreateKey(filepath.Join(a.dir, fileKeys), edge.KeySpec{TenantID: "acme", Scopes: edge.Scopes()})
	if err != nil {
		t.Fatal(err)
	}
	a.key = text
	return a
}

// command runs a command on the directory and returns what it said.
func (a *aggregated) command(code int, args ...string) string {
	a.t.Helper()
	return a.commandOn(code, a.dir, args...)
}

func (a *aggregated) commandOn(code int, dir string, args ...string) string {
	a.t.Helper()
	var out bytes.Buffer
	got := AggregatorProgram.Main(append([]string{args[0], "--data-dir", dir, "--guard-file", a.guard}, args[1:]...), &out, &out)
	if got != code {
		a.t.Fatalf("%q ended with code %d, not %d: %s", args, got, code, out.String())
	}
	return out.String()
}

// run runs the aggregator until stop.
func (a *aggregated) run() {
	a.t.Helper()
	ready := filepath.Join(a.t.TempDir(), "ready")
	cfg := Aggregator{}
	if _, err := Parse("aggregator", "", &cfg, []string{
		"--data-dir", a.dir, "--guard-file", a.guard, "--http-addr", "127.0.0.1:0", "--nats-listen", "127.0.0.1:0", "--ready-file", ready,
		"--disk-reserve", "67108864", // a machine whose disk is nearly full can be tested on
	}, nil, io.Discard); err != nil {
		a.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- RunAggregator(ctx, cfg, slog.New(slog.DiscardHandler), new(slog.LevelVar)) }()
	r, err := wire.Decode[Running](awaitFile(a.t, ready, done))
	if err != nil {
		a.t.Fatal(err)
	}
	a.http = r.HTTPURL
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

// awaitFile returns the content of the ready file of a program, which ends with
// what is sent to done.
func awaitFile(t *testing.T, path string, done <-chan error) []byte {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	late := time.After(time.Minute)
	for {
		if data, err := os.ReadFile(path); err == nil {
			return data
		}
		select {
		case <-tick.C:
		case err := <-done:
			t.Fatalf("the program ended: %v", err)
		case <-late:
			t.Fatal("the program does not serve")
		}
	}
}

func (a *aggregated) client() *client.Client { return &client.Client{URL: a.http, Key: a.key} }

// seal has a document sealed and returns its receipts.
func (a *aggregated) seal(document string) wire.Job {
	a.t.Helper()
	out, err := a.client().Stamp(a.t.Context(), client.Submission{SHA256: sha256.Sum256([]byte(document))})
	if err != nil || out.Job == nil {
		a.t.Fatalf("%+v, %v", out, err)
	}
	return *out.Job
}

// sameSeal fails unless a document has the seal and the certificate that it had.
func (a *aggregated) sameSeal(document string, want wire.Job) {
	a.t.Helper()
	got, err := a.client().Receipts(a.t.Context(), sha256.Sum256([]byte(document)))
	if err != nil {
		a.t.Fatal(err)
	}
	x, err := wire.Encode(got.Receipts)
	if err != nil {
		a.t.Fatal(err)
	}
	y, err := wire.Encode(want.Receipts)
	if err != nil {
		a.t.Fatal(err)
	}
	if !bytes.Equal(x, y) {
		a.t.Errorf("%s: receipts\n%s\nwere\n%s", document, x, y)
	}
}

// A running aggregator is copied without a pause, a stopped one by the command
// itself; what is restored has every receipt that was given out before.
func TestAggregatorIsBackedUpAndRestored(t *testing.T) {
	a := newAggregated(t)
	a.run()
	before := map[string]wire.Job{}
	for _, d := range []string{"one", "two", "three"} {
		before[d] = a.seal(d)
	}
	to := t.TempDir()
	online, vaultTo := filepath.Join(to, "online"), filepath.Join(to, "vault")
	if out := a.command(0, "backup", "--to", online, "--vault-to", vaultTo); !strings.Contains(out, "copied by the running program") || !strings.Contains(out, "3 leaves") {
		t.Errorf("backup: %s", out)
	}
	a.command(78, "backup", "--to", online)                                                        // something is there
	a.command(78, "backup", "--to", filepath.Join(a.dir, "x"))                                     // inside the data directory
	a.command(2, "backup", "--to", filepath.Join(to, "b"), "--vault-to", filepath.Join(to, "b/v")) // the vault beside the rest
	a.command(78, "check")                                                                         // it runs
	before["four"] = a.seal("four")
	a.stop()

	if out := a.command(0, "check"); !strings.Contains(out, "nothing is wrong") {
		t.Errorf("check: %s", out)
	}
	offline := filepath.Join(to, "offline")
	if out := a.command(0, "backup", "--to", offline); !strings.Contains(out, "nothing had it open") || !strings.Contains(out, "the vault is not in it") {
		t.Errorf("backup: %s", out)
	}

	guard, restored := filepath.Join(a.dir, "ledger/ledger.checkpoint"), filepath.Join(to, "restored")
	a.commandOn(2, restored, "restore", "--from", online, "--vault-from", vaultTo)                    // nobody says that it is the newest
	a.commandOn(65, restored, "restore", "--from", online, "--vault-from", vaultTo, "--guard", guard) // it is not
	a.commandOn(65, restored, "restore", "--from", a.dir, "--newest")                                 // no backup
	a.commandOn(2, restored, "restore", "--from", vaultTo, "--newest")                                // of something else
	a.commandOn(78, a.dir, "restore", "--from", offline, "--newest")                                  // something is there
	a.commandOn(0, restored, "restore", "--from", offline, "--vault-from", vaultTo, "--guard", guard)
	a.dir = restored
	a.command(0, "check")
	a.run()
	for d, job := range before {
		a.sameSeal(d, job)
	}
	a.stop()
	a.command(0, "check")
}

// A restore without the vault says so, and the program does not make another.
func TestRestoreWithoutTheVaultSaysSo(t *testing.T) {
	a := newAggregated(t)
	to := t.TempDir()
	backup, vaultTo, restored := filepath.Join(to, "b"), filepath.Join(to, "v"), filepath.Join(to, "new")
	a.command(0, "backup", "--to", backup, "--vault-to", vaultTo)
	if out := a.commandOn(0, restored, "restore", "--from", backup, "--newest"); !strings.Contains(out, "the vault is not restored") {
		t.Errorf("restore: %s", out)
	}
	a.commandOn(65, restored, "check")
	elsewhere := filepath.Join(to, "keys")
	second := filepath.Join(to, "second")
	a.commandOn(0, second, "restore", "--from", backup, "--vault-from", vaultTo, "--vault-dir", elsewhere, "--newest")
	a.commandOn(0, second, "check", "--vault-dir", elsewhere)
}

// Every file of a backup is damaged in turn; a restore refuses each and leaves
// nothing.
func TestDamagedBackupOfAnAggregatorIsRefused(t *testing.T) {
	a := newAggregated(t)
	to := t.TempDir()
	backup, vaultTo, restored := filepath.Join(to, "b"), filepath.Join(to, "v"), filepath.Join(to, "new")
	a.command(0, "backup", "--to", backup, "--vault-to", vaultTo)
	for dir, kind := range map[string]string{backup: kindAggregator, vaultTo: kindVault} {
		m, err := pebblex.ReadManifest(nil, dir, kind)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range m.Files {
			path := filepath.Join(dir, f.Path)
			good, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, append(bytes.Clone(good), 'x'), 0o600); err != nil {
				t.Fatal(err)
			}
			a.commandOn(65, restored, "restore", "--from", backup, "--vault-from", vaultTo, "--newest")
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
	a.commandOn(0, restored, "restore", "--from", backup, "--vault-from", vaultTo, "--newest")
}

// A damage in any part of the directory is found by check.
func TestAggregatorCheckFindsDamage(t *testing.T) {
	a := newAggregated(t)
	a.run()
	a.seal("one")
	a.stop()
	a.command(0, "check")
	for _, pattern := range []string{"ledger/ledger.db/*.sst", "ledger/ledger.checkpoint", "ledger/ledger.key", "jobs/*.sst", "roster.json", "keys.json", "vault/vault", "vault/kek"} {
		found, err := filepath.Glob(filepath.Join(a.dir, pattern))
		if err != nil || len(found) == 0 {
			t.Errorf("%s: %v", pattern, err)
			continue
		}
		path := found[len(found)-1]
		good, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		bad := bytes.Clone(good)
		bad[len(bad)/2] ^= 0x20
		if pattern == "keys.json" {
			bad[0] ^= 0x20 // it has no checksum
		}
		if err := os.WriteFile(path, bad, 0o600); err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		if code := AggregatorProgram.Main([]string{"check", "--data-dir", a.dir}, &out, &out); code != serve.ExitDamaged {
			t.Errorf("%s: code %d: %s", pattern, code, out.String())
		}
		if err := os.WriteFile(path, good, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// Orders are taken only with the word of the data directory, one at a time.
func TestOrdersNeedTheWordOfTheDirectory(t *testing.T) {
	a := newAggregated(t)
	a.run()
	path := filepath.Join(a.dir, fileAdmin)
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	at, err := wire.Decode[adminFile](data)
	if err != nil {
		t.Fatal(err)
	}
	at.Word += "x"
	other := t.TempDir()
	bad, err := wire.Encode(at)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(other, fileAdmin), bad, 0o600); err != nil {
		t.Fatal(err)
	}
	target := filepath.Join(other, "backup")
	if _, err := give[pebblex.Manifest](t.Context(), other, orderBackup, backupOrder{To: target}); err == nil || !strings.Contains(err.Error(), "word") {
		t.Errorf("without the word: %v", err)
	}
	if _, err := os.Lstat(target); !os.IsNotExist(err) {
		t.Error("it was copied all the same")
	}
	a.stop()
	if _, err := os.Lstat(path); !os.IsNotExist(err) {
		t.Errorf("a stopped program leaves %s: %v", fileAdmin, err)
	}
}

// With the guard on another disk an older copy of the whole data directory does
// not start, nobody has to name the newest checkpoint to a restore, and init does
// not take another log's guard.
func TestGuardOnAnotherDiskFindsAnOlderDirectory(t *testing.T) {
	disk, to := t.TempDir(), t.TempDir()
	a := newGuarded(t, filepath.Join(disk, "guards", "ledger.checkpoint"))
	a.run()
	a.seal("one")
	a.stop()
	if _, err := os.Lstat(filepath.Join(a.dir, "ledger/ledger.checkpoint")); !os.IsNotExist(err) {
		t.Errorf("there is a guard in the data directory too: %v", err)
	}
	backup, older := filepath.Join(to, "b"), filepath.Join(to, "older")
	a.command(0, "backup", "--to", backup, "--vault-to", filepath.Join(to, "v"))
	if err := os.Rename(a.dir, older); err != nil {
		t.Fatal(err)
	}
	a.commandOn(78, filepath.Join(to, "other"), "init")
	a.command(0, "restore", "--from", backup, "--vault-from", filepath.Join(to, "v"), "--newest")
	a.run()
	two := a.seal("two")
	a.stop()
	newest := filepath.Join(to, "newest")
	a.command(0, "backup", "--to", newest, "--vault-to", filepath.Join(to, "v2"))

	if out := a.commandOn(65, older, "serve", "--http-addr", "127.0.0.1:0", "--nats-listen", "127.0.0.1:0"); !strings.Contains(out, "rolled back") {
		t.Errorf("an older directory: %s", out)
	}
	restored := filepath.Join(to, "restored")
	a.commandOn(65, restored, "restore", "--from", backup, "--vault-from", filepath.Join(to, "v"))
	a.commandOn(0, restored, "restore", "--from", newest, "--vault-from", filepath.Join(to, "v2"))
	a.dir = restored
	a.command(0, "check")
	a.run()
	a.sameSeal("two", two)
}
