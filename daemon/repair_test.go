package daemon

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/verae/archive/archive"
	"github.com/verae/archive/blob"
	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/internal/serve"
	"github.com/verae/archive/wire"
)

// ailing is the directory of an archive that does not run.
type ailing struct {
	t   *testing.T
	cfg Archived
}

func newAiling(t *testing.T, records int) *ailing {
	t.Helper()
	a := &ailing{t: t}
	args := []string{"--data-dir", filepath.Join(t.TempDir(), "a"), "--archive-id", "archive-a", "--disk-reserve", "1"}
	if _, err := Parse("archived", "", &a.cfg, args, nil, io.Discard); err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	if err := InitArchive(a.cfg, log); err != nil {
		t.Fatal(err)
	}
	a.open(func(n *archive.Node, files *blob.Store) {
		for i := range records {
			r := wire.PutRecord{
				Kind: wire.KindMetadata, SHA256: sha256.Sum256(fmt.Append(nil, i)), TenantID: "alice",
				SubmissionID: "018fa2b4-5f03-7cc1-a1b2-0242ac120002", AttachedAt: "2025-05-19T12:00:00.000000001Z", Body: []byte(`{}`),
			}
			if i == 0 {
				r.Kind, r.Body, r.File = wire.KindFile, nil, a.addFile(files)
			}
			if _, err := n.Put(t.Context(), wire.Put{PutID: wire.NewPutID(), Record: r}); err != nil {
				t.Fatal(err)
			}
		}
	})
	return a
}

func (a *ailing) addFile(s *blob.Store) *wire.File {
	a.t.Helper()
	data := bytes.Repeat([]byte("scan"), 1000)
	sums, err := blob.SumReader(bytes.NewReader(data), blob.Default)
	if err == nil {
		err = s.Open("scan", blob.Default)
	}
	if err == nil {
		_, err = s.Write("scan", 0, data)
	}
	if err == nil {
		_, err = s.Commit(a.t.Context(), "scan", sums.Size, sums.SHA256, sums.CID)
	}
	if err != nil {
		a.t.Fatal(err)
	}
	return &wire.File{Name: "scan", Size: sums.Size, SHA256: sums.SHA256, CID: sums.CID}
}

// open opens both stores for the time of fn.
func (a *ailing) open(fn func(*archive.Node, *blob.Store)) {
	a.t.Helper()
	log := slog.New(slog.DiscardHandler)
	files, err := blob.OpenStore(a.cfg.fileConfig(log, false))
	if err != nil {
		a.t.Fatal(err)
	}
	n, err := archive.Open(a.cfg.recordConfig(log, files))
	if err != nil {
		a.t.Fatal(err)
	}
	<-n.Loaded()
	fn(n, files)
	if err := errors.Join(n.Close(), files.Close()); err != nil {
		a.t.Fatal(err)
	}
}

// repair runs the command and returns what it wrote to standard output.
func (a *ailing) repair(code int, args ...string) string {
	a.t.Helper()
	var out, log bytes.Buffer
	all := append([]string{"repair", "--data-dir", a.cfg.DataDir, "--archive-id", "archive-a", "--disk-reserve", "1"}, args...)
	if got := ArchivedProgram.Main(all, &out, &log); got != code {
		a.t.Fatalf("%q ended with code %d, not %d: %s%s", args, got, code, out.String(), log.String())
	}
	return out.String()
}

// remove removes the files in a part of the directory whose names contain a word.
func (a *ailing) remove(dir, word string) {
	a.t.Helper()
	paths, err := filepath.Glob(filepath.Join(a.cfg.DataDir, dir, "*"+word+"*"))
	if err != nil || len(paths) == 0 {
		a.t.Fatalf("no %s in %s: %v", word, dir, err)
	}
	for _, p := range paths {
		if err := os.Remove(p); err != nil {
			a.t.Fatal(err)
		}
	}
}

// hashes returns the hash of every file of a directory.
func hashes(t *testing.T, dir string) map[string][32]byte {
	t.Helper()
	sums := map[string][32]byte{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		rel, relErr := filepath.Rel(dir, path)
		sums[rel] = sha256.Sum256(data)
		return errors.Join(err, relErr)
	})
	if err != nil {
		t.Fatal(err)
	}
	return sums
}

func TestArchivedRepair(t *testing.T) {
	a := newAiling(t, 5)
	if out := a.repair(0, "--offline"); !strings.Contains(out, "nothing is wrong") {
		t.Errorf("of a whole archive: %s", out)
	}
	a.repair(serve.ExitUsage) // neither a server nor --offline

	a.remove("records/records", "MANIFEST")
	before := hashes(t, a.cfg.DataDir)
	if out := a.repair(0, "--offline", "--dry-run"); !strings.Contains(out, "5 records would be carried over") {
		t.Errorf("a dry run: %s", out)
	}
	if diff := cmp.Diff(before, hashes(t, a.cfg.DataDir)); diff != "" {
		t.Errorf("a dry run changes %s", diff)
	}
	records := hashes(t, filepath.Join(a.cfg.DataDir, "records"))
	report, err := wire.Decode[repairReport]([]byte(a.repair(0, "--offline", "--json")))
	if err != nil || report.Records.Carried != 5 || len(report.Records.Lost) > 0 {
		t.Fatalf("%+v, %v", report.Records, err)
	}
	if diff := cmp.Diff(records, hashes(t, report.Records.Evidence)); diff != "" {
		t.Errorf("the evidence is not what was there: %s", diff)
	}
	if out := a.repair(0, "--offline"); !strings.Contains(out, "nothing is wrong") {
		t.Errorf("after the repair: %s", out)
	}

	// The newest records are in the log of the store only.
	a.open(func(n *archive.Node, _ *blob.Store) {
		if n.Seq() != 5 {
			t.Errorf("after the repair there are %d records", n.Seq())
		}
		r := wire.PutRecord{Kind: wire.KindMetadata, SHA256: sha256.Sum256(nil), TenantID: "alice", Body: []byte(`{}`)}
		if _, err := n.Put(t.Context(), wire.Put{PutID: wire.NewPutID(), Record: r}); err != nil {
			t.Fatal(err)
		}
	})
	a.remove("records/records", ".log")
	if out := a.repair(serve.ExitDamaged, "--offline"); !strings.Contains(out, "lost: seq 6, record") {
		t.Errorf("with a stub: %s", out)
	}
	a.open(func(n *archive.Node, _ *blob.Store) {
		if h := n.Hello(); h.Seq != 6 || h.Lost != 1 {
			t.Errorf("with a stub: %+v", h)
		}
		a.repair(serve.ExitMisplaced, "--offline") // while it is open
	})
}

// TestArchivedRepairOfFiles: an index that is lost comes back from the files, and
// a lost file is named.
func TestArchivedRepairOfFiles(t *testing.T) {
	a := newAiling(t, 1)
	a.remove("files/index", ".sst")
	a.remove("files/index", ".log")
	if out := a.repair(0, "--offline", "--dry-run"); strings.Contains(out, "lost: ") {
		t.Errorf("a dry run without an index: %s", out)
	}
	if out := a.repair(0, "--offline"); !strings.Contains(out, "made whole: file") || !strings.Contains(out, "index.damaged-") {
		t.Errorf("without an index: %s", out)
	}
	if out := a.repair(0, "--offline"); !strings.Contains(out, "nothing is wrong") {
		t.Errorf("after the repair: %s", out)
	}
	if err := os.RemoveAll(filepath.Join(a.cfg.DataDir, "files")); err != nil {
		t.Fatal(err)
	}
	a.repair(serve.ExitNotFound, "--offline") // it could be a volume that is not mounted
	if _, err := os.Stat(filepath.Join(a.cfg.DataDir, "files")); !os.IsNotExist(err) {
		t.Errorf("a refused repair makes the directory of the files: %v", err)
	}
	if out := a.repair(serve.ExitDamaged, "--offline", "--files-gone", "--dry-run"); !strings.Contains(out, "would be lost: file") {
		t.Errorf("a dry run without the file: %s", out)
	}
	if out := a.repair(serve.ExitDamaged, "--offline", "--files-gone"); !strings.Contains(out, "lost: file") {
		t.Errorf("without the file: %s", out)
	}
	if out := a.repair(serve.ExitOK, "--offline"); !strings.Contains(out, "lost before: file") {
		t.Errorf("what is settled: %s", out)
	}
	a.open(func(n *archive.Node, _ *blob.Store) {
		if h := n.Hello(); h.State != wire.StateUp || h.Lost != 1 {
			t.Errorf("with a lost file: %+v", h)
		}
	})
}

// TestLostFileIsNoDamage: no check asks for a repair that would do nothing, as one
// does of a file that was lost since.
func TestLostFileIsNoDamage(t *testing.T) {
	a := newAiling(t, 1)
	sums, err := blob.SumReader(strings.NewReader(strings.Repeat("scan", 1000)), blob.Default)
	if err != nil {
		t.Fatal(err)
	}
	damage := func() (ok bool) {
		a.open(func(n *archive.Node, files *blob.Store) {
			if there, err := files.Holds(t.Context(), sums.SHA256); there || err != nil {
				t.Errorf("the file is there: %v, %v", there, err)
			}
			health := new(serve.Health)
			addArchiveChecks(health, n, files)
			_, list := health.Ready(t.Context())
			for _, s := range list {
				ok = ok || s.Name == "damage" && s.OK
			}
			if files.Stats().Damaged != 1 {
				t.Errorf("the files do not know what is missing: %+v", files.Stats())
			}
		})
		return ok
	}
	a.remove(filepath.Join("files", "files", "*"), "")
	if damage() {
		t.Error("a file is gone, and nothing is damaged")
	}
	a.repair(serve.ExitDamaged, "--offline")
	if !damage() {
		t.Error("a file is lost, and a repair is asked for")
	}
}

// TestNoServiceBesideAnUnfinishedRepair: an archive whose repair was cut short
// does not serve.
func TestNoServiceBesideAnUnfinishedRepair(t *testing.T) {
	for _, dir := range []string{"records.new", "files/index.new"} {
		a := newAiling(t, 1)
		a.cfg.NATSURL = "nats://127.0.0.1:1"
		half := filepath.Join(a.cfg.DataDir, dir)
		if err := os.Mkdir(half, 0o700); err != nil {
			t.Fatal(err)
		}
		err := RunArchive(context.Background(), a.cfg, slog.New(slog.DiscardHandler), new(slog.LevelVar))
		if fault.CodeOf(err) != "REPAIR_UNFINISHED" || serve.ServerExitCode(err) != serve.ExitDamaged {
			t.Errorf("%s: %v", dir, err)
		}
		a.repair(0, "--offline")
		if _, err := os.Stat(half); !os.IsNotExist(err) {
			t.Errorf("%s is still there: %v", dir, err)
		}
	}
}
