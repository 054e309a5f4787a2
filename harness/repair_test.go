package main

import (
	"encoding/hex"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/verae/archive/client"
	"github.com/verae/archive/harness/world"
	"github.com/verae/archive/internal/serve"
	"github.com/verae/archive/wire"
)

// repaired is how many submissions there are of which an archive loses its part.
const repaired = 24

// An archive is killed, and its disk loses all tables and logs of its store, the
// index of its files, one file, and a byte of another. It refuses to start and
// names the command; the command fetches everything from the other archives, and
// every receipt is what it was before, from the same archives. The old directory
// is left as it was.
func TestADamagedArchiveIsRepaired(t *testing.T) {
	long(t)
	dir := t.TempDir()
	w := startWorld(t, world.Config{Dir: dir})
	c := w.Client("acme")
	digests := make([]wire.Digest, repaired)
	for i := range digests {
		data := randomBytes(100_000, uint64(i))
		digests[i] = sum(data)
		stamp(t, c, client.Submission{SHA256: digests[i], PublicMetadata: fmt.Appendf(nil, `{"n":%d}`, i), Files: []client.File{bytesFile("scan", data)}})
	}
	before := map[wire.Digest]wire.Job{}
	awaitThat(t, "everything has two copies", func() bool {
		for _, d := range digests {
			job, err := c.Receipts(t.Context(), d)
			if err != nil || !job.Complete || len(job.Files) != 1 || len(job.Receipts) != 2 || len(job.Files[0].ArchiveIDs) < 2 || len(job.Receipts[1].ArchiveIDs) < 2 {
				return false
			}
			before[d] = job
		}
		return true
	})

	const sick = "archive-a"
	path := filepath.Join(dir, sick)
	settled := wire.At(time.Now())
	awaitThat(t, "the mark covers the log", func() bool {
		told := archiveInfo(t, c, sick)
		return told.LastHelloAt.Compare(settled) > 0 && markOf(t, path) == fmt.Sprint(max(told.Seq, told.Remembered))
	})
	if err := w.Kill(t.Context(), sick); err != nil {
		t.Fatal(err)
	}
	var mine []string // files that the archive has
	for _, d := range digests {
		name := hex.EncodeToString(d[:])
		file := filepath.Join(path, "files", "files", name[:2], name)
		if _, err := os.Stat(file); err == nil {
			mine = append(mine, file)
		}
	}
	if len(mine) < 3 {
		t.Fatalf("the archive has %d of the files", len(mine))
	}
	for _, part := range []string{"records/records/*.sst", "records/records/*.log", "files/index/MANIFEST-*"} {
		removeAll(t, filepath.Join(path, filepath.FromSlash(part)))
	}
	removeAll(t, mine[0])
	flipByte(t, mine[1])
	left := readFiles(t, filepath.Join(path, "records"))

	if err := w.Restart(t.Context(), sick); err == nil {
		t.Fatal("the damaged archive starts")
	}
	said, code, err := w.Command(t.Context(), sick, "repair", "--json")
	if err != nil || code != serve.ExitOK {
		t.Fatalf("repair: code %d, %v\n%s", code, err, said)
	}
	evidence, err := filepath.Glob(filepath.Join(path, "records.damaged-*"))
	if err != nil || len(evidence) != 1 {
		t.Fatalf("evidence %v, %v", evidence, err)
	}
	if diff := cmp.Diff(left, readFiles(t, evidence[0])); diff != "" {
		t.Errorf("the evidence is not what was there: %s", diff)
	}
	if bad, err := filepath.Glob(filepath.Join(path, "files", "damaged-*", filepath.Base(mine[1]))); err != nil || len(bad) != 1 {
		t.Errorf("the damaged file was not kept: %v, %v", bad, err)
	}

	if err := w.Restart(t.Context(), sick); err != nil {
		t.Fatal(err)
	}
	if err := w.WaitUp(t.Context(), 3); err != nil {
		t.Fatal(err)
	}
	for _, d := range digests {
		var after wire.Job
		awaitJob(t, c, d, func(job *wire.Job) bool { after = *job; return job.Complete })
		if diff := cmp.Diff([]any{before[d].Receipts, before[d].Files}, []any{after.Receipts, after.Files}); diff != "" {
			t.Errorf("after the repair %s has other receipts: %s", d, diff)
		}
	}
	if said, code, err := w.Command(t.Context(), "archive-b", "repair"); err != nil || code != serve.ExitMisplaced {
		t.Errorf("repair of a running archive: code %d, %v\n%s", code, err, said)
	}
}

// markOf returns how many leaves the mark of an archive of generation 1 covers.
func markOf(t *testing.T, dir string) string {
	t.Helper()
	note, err := os.ReadFile(filepath.Join(dir, "records", "highwater"))
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(string(note), "\n")[1]
}

func removeAll(t *testing.T, pattern string) {
	t.Helper()
	paths, err := filepath.Glob(pattern)
	if err != nil || len(paths) == 0 {
		t.Fatalf("nothing is %s: %v", pattern, err)
	}
	for _, p := range paths {
		if err := os.Remove(p); err != nil {
			t.Fatal(err)
		}
	}
}

func flipByte(t *testing.T, path string) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	data[len(data)/2] ^= 1
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

// readFiles returns the files below a directory, but for the locks in it.
func readFiles(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || d.Name() == "LOCK" {
			return err
		}
		data, err := os.ReadFile(path)
		files[strings.TrimPrefix(path, dir)] = string(data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}
