package daemon

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/verae/archive/archive"
	"github.com/verae/archive/blob"
	"github.com/verae/archive/internal/serve"
	"github.com/verae/archive/wire"
)

// stored is the data directory of a stopped archive with one record of metadata
// and one of a file.
func stored(t *testing.T) (c Archived, file string) {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	var cmd commands[Archived]
	dir := filepath.Join(t.TempDir(), "a")
	if _, err := Parse("archived", "", &cmd, []string{"--data-dir", dir, "--archive-id", "archive-a", "--disk-reserve", "1"}, nil, io.Discard); err != nil {
		t.Fatal(err)
	}
	c = cmd.Config
	if err := InitArchive(c, log); err != nil {
		t.Fatal(err)
	}
	files, err := blob.OpenStore(c.fileConfig(log, false))
	if err != nil {
		t.Fatal(err)
	}
	node, err := archive.Open(c.recordConfig(log, files))
	if err != nil {
		t.Fatal(err)
	}
	data := bytes.Repeat([]byte("bytes of a file "), 1000)
	sums, err := blob.SumReader(bytes.NewReader(data), blob.Default)
	if err != nil {
		t.Fatal(err)
	}
	if err := files.Open("u", blob.Default); err != nil {
		t.Fatal(err)
	}
	if _, err := files.Write("u", 0, data); err != nil {
		t.Fatal(err)
	}
	if _, err := files.Commit(t.Context(), "u", sums.Size, sums.SHA256, sums.CID); err != nil {
		t.Fatal(err)
	}
	for _, r := range []wire.PutRecord{
		{Kind: wire.KindMetadata, SHA256: sums.SHA256, TenantID: "alice", Body: []byte(`{"a":1}`)},
		{Kind: wire.KindFile, SHA256: sums.SHA256, TenantID: "alice", File: &wire.File{Name: "f", Size: sums.Size, SHA256: sums.SHA256, CID: sums.CID}},
	} {
		if _, err := node.Put(t.Context(), wire.Put{PutID: wire.NewPutID(), Record: r}); err != nil {
			t.Fatal(err)
		}
	}
	if err := node.Close(); err != nil {
		t.Fatal(err)
	}
	if err := files.Close(); err != nil {
		t.Fatal(err)
	}
	name := fmt.Sprintf("%x", sums.SHA256)
	return c, filepath.Join(dir, dirFiles, "files", name[:2], name)
}

func runCheck(c Archived, more ...string) (code int, stdout, stderr string) {
	var out, errs bytes.Buffer
	args := append([]string{"check", "--data-dir", c.DataDir, "--archive-id", c.ArchiveID, "--disk-reserve", "1", "--log-level", "error"}, more...)
	code = ArchivedProgram.Main(args, &out, &errs)
	return code, out.String(), errs.String()
}

// TestArchivedCheck goes through what an operator can meet.
func TestArchivedCheck(t *testing.T) {
	c, file := stored(t)
	code, out, errs := runCheck(c)
	if code != serve.ExitOK || !strings.Contains(out, "2 records") || !strings.Contains(out, "1 files of 16000 bytes") || !strings.HasSuffix(out, "nothing is wrong\n") {
		t.Errorf("whole: %d\n%s%s", code, out, errs)
	}
	code, out, _ = runCheck(c, "--json")
	if r, err := wire.Decode[archive.CheckReport]([]byte(strings.TrimSpace(out))); code != serve.ExitOK || err != nil || r.Records != 2 || r.Files != 1 || r.Found != 0 {
		t.Errorf("whole: %d, %v\n%s", code, err, out)
	}

	t.Run("in use", func(t *testing.T) {
		log := slog.New(slog.DiscardHandler)
		files, err := blob.OpenStore(c.fileConfig(log, false))
		if err != nil {
			t.Fatal(err)
		}
		code, _, errs := runCheck(c)
		if code != serve.ExitMisplaced || !strings.Contains(errs, "verae_scrub_") || !strings.Contains(errs, "/readyz?verbose") {
			t.Errorf("%d\n%s", code, errs)
		}
		if err := files.Close(); err != nil {
			t.Error(err)
		}
	})
	t.Run("another archive", func(t *testing.T) {
		other := c
		other.ArchiveID = "archive-b"
		if code, _, errs := runCheck(other); code != serve.ExitMisplaced {
			t.Errorf("%d\n%s", code, errs)
		}
	})
	t.Run("nothing there", func(t *testing.T) {
		other := c
		other.DataDir = filepath.Join(t.TempDir(), "b")
		if code, _, errs := runCheck(other); code != serve.ExitNotFound {
			t.Errorf("%d\n%s", code, errs)
		}
	})

	flip(t, file, 5000)
	code, out, errs = runCheck(c)
	if code != serve.ExitDamaged || !strings.Contains(out, "DAMAGE: file: ") || !strings.Contains(out, "repair: archived repair") || errs == "" {
		t.Errorf("file flipped: %d\n%s%s", code, out, errs)
	}
	if code, out, errs = runCheck(c, "--json"); code != serve.ExitDamaged || !strings.Contains(out, `"kind":"file"`) || !strings.Contains(out, `"damage":true`) {
		t.Errorf("file flipped: %d\n%s%s", code, out, errs)
	}
	flip(t, file, 5000)

	mark := filepath.Join(c.DataDir, dirRecords, "highwater")
	if err := os.Remove(mark); err != nil {
		t.Fatal(err)
	}
	code, out, errs = runCheck(c)
	if code != serve.ExitDamaged || !strings.Contains(out, "DAMAGE: open: ") || !strings.Contains(out, "2 records") || !strings.Contains(out, "1 files") {
		t.Errorf("no mark: %d\n%s%s", code, out, errs)
	}
	if err := os.RemoveAll(filepath.Join(c.DataDir, dirFiles, "index")); err != nil {
		t.Fatal(err)
	}
	if code, out, errs = runCheck(c); code != serve.ExitDamaged || !strings.Contains(out, "DAMAGE: file: ") || !strings.Contains(out, "2 records") {
		t.Errorf("no file store: %d\n%s%s", code, out, errs)
	}
}

// Where nobody knows the files, what they are is not held against the records.
func TestCheckWithoutFilesBlamesNoRecord(t *testing.T) {
	c, _ := stored(t)
	if err := os.RemoveAll(filepath.Join(c.DataDir, dirFiles, "index")); err != nil {
		t.Fatal(err)
	}
	code, out, errs := runCheck(c)
	if code != serve.ExitDamaged || !strings.Contains(out, "1 findings of damage") || !strings.Contains(out, "DAMAGE: file: ") {
		t.Errorf("%d\n%s%s", code, out, errs)
	}
}

func flip(t *testing.T, path string, at int) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	data[at] ^= 1
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
}
