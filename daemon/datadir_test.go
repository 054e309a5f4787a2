package daemon

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/internal/pebblex"
	"github.com/verae/archive/internal/serve"
)

// A DATA_DIR that is not the program's is refused by what it is, with an exit
// code that tells whether something is missing or wrong, and nothing is written.
func TestAWrongDataDirectoryIsNamed(t *testing.T) {
	for name, c := range map[string]struct {
		make func(t *testing.T, dir string)
		code int
		says string
	}{
		"nothing":         {func(*testing.T, string) {}, serve.ExitNotFound, "is not there"},
		"a missing mount": {func(t *testing.T, dir string) { mkdir(t, dir) }, serve.ExitNotFound, "is empty"},
		"something else":  {func(t *testing.T, dir string) { touch(t, filepath.Join(dir, "notes.txt")) }, serve.ExitNotFound, "other things"},
		"a file":          {func(t *testing.T, dir string) { touch(t, dir) }, serve.ExitMisplaced, "it is a file"},
		"an aggregator's": {func(t *testing.T, dir string) { mkdir(t, filepath.Join(dir, dirJobs)) }, serve.ExitMisplaced, "of aggregator, not of archived"},
		"a backup of an archive": {func(t *testing.T, dir string) {
			mkdir(t, filepath.Join(dir, dirRecords))
			touch(t, filepath.Join(dir, pebblex.ManifestName))
		}, serve.ExitMisplaced, "archived restore"},
		"below a file":            {func(t *testing.T, dir string) { touch(t, filepath.Dir(dir)) }, serve.ExitUsage, "DATA_DIR"},
		"the directory of others": {func(t *testing.T, dir string) { mkdir(t, filepath.Join(dir, dirRecords)) }, serve.ExitOK, ""},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "above", "data")
			c.make(t, dir)
			err := mustExist(dir, dirRecords, "archived")
			if got := serve.ServerExitCode(err); got != c.code {
				t.Errorf("exit code %d, want %d: %v", got, c.code, err)
			}
			if c.code != serve.ExitOK && (!strings.Contains(err.Error(), c.says) || fault.FieldOf(err) != "DATA_DIR") {
				t.Errorf("it says: %v", err)
			}
		})
	}
}

func mkdir(t *testing.T, dir string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
}

func touch(t *testing.T, path string) {
	t.Helper()
	mkdir(t, filepath.Dir(path))
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
}

// Parts of a data directory that are missing, swapped or another's stop the
// start. Which program is to blame is not asked: a volume is mounted in the wrong
// place as easily as a path is mistyped.
func TestPartsOfAnotherArchiveAreRefused(t *testing.T) {
	start := func(dir, id string) (int, string) {
		var out strings.Builder
		code := ArchivedProgram.Main([]string{"--data-dir=" + dir, "--archive-id=" + id, "--nats-url=nats://127.0.0.1:1"}, &out, &out)
		return code, out.String()
	}
	base := t.TempDir()
	for _, id := range []string{"archive-a", "archive-b"} {
		var out strings.Builder
		if code := ArchivedProgram.Main([]string{"init", "--data-dir=" + filepath.Join(base, id), "--archive-id=" + id}, &out, &out); code != serve.ExitOK {
			t.Fatal(out.String())
		}
	}
	for name, c := range map[string]struct {
		change func(a, b string) error
		code   int
		says   string
	}{
		"files of another": {func(a, b string) error {
			return os.Rename(filepath.Join(b, dirFiles), filepath.Join(a, dirFiles))
		}, serve.ExitMisplaced, `"archive-b"`},
		"records of another": {func(a, b string) error {
			return os.Rename(filepath.Join(b, dirRecords), filepath.Join(a, dirRecords))
		}, serve.ExitMisplaced, `"archive-b"`},
		"key of another": {func(a, b string) error {
			return os.Rename(filepath.Join(b, dirRecords, "key.pem"), filepath.Join(a, dirRecords, "key.pem"))
		}, serve.ExitMisplaced, "key.pem"},
		"records not mounted": {func(a, b string) error { return os.MkdirAll(filepath.Join(a, dirRecords), 0o700) }, serve.ExitNotFound, "mounted"},
		"files not mounted":   {func(a, b string) error { return os.MkdirAll(filepath.Join(a, dirFiles), 0o700) }, serve.ExitNotFound, "mounted"},
		"one level too deep":  {nil, serve.ExitNotFound, "archived init"},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := filepath.Join(t.TempDir(), "a"), filepath.Join(t.TempDir(), "b")
			for dir, id := range map[string]string{a: "archive-a", b: "archive-b"} {
				if err := os.CopyFS(dir, os.DirFS(filepath.Join(base, id))); err != nil {
					t.Fatal(err)
				}
			}
			part := map[string]string{"files of another": dirFiles, "files not mounted": dirFiles, "key of another": "records/key.pem"}[name]
			if part == "" {
				part = dirRecords
			}
			if c.change == nil {
				a = filepath.Join(a, dirFiles)
			} else if err := os.RemoveAll(filepath.Join(a, part)); err != nil {
				t.Fatal(err)
			} else if err := c.change(a, b); err != nil {
				t.Fatal(err)
			}
			if code, text := start(a, "archive-a"); code != c.code || !strings.Contains(text, c.says) {
				t.Errorf("exit code %d, want %d, naming %s: %s", code, c.code, c.says, text)
			}
		})
	}
}

// What is damaged ends the start with a code of its own, so that nobody starts it
// again and again, and says what repairs it.
func TestADamagedStoreEndsWithItsCode(t *testing.T) {
	for name, part := range map[string]string{
		"records": filepath.Join(dirRecords, "records"), "files": filepath.Join(dirFiles, "index"),
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "data")
			var out strings.Builder
			if code := ArchivedProgram.Main([]string{"init", "--data-dir=" + dir, "--archive-id=archive-a"}, &out, &out); code != serve.ExitOK {
				t.Fatal(out.String())
			}
			paths, err := filepath.Glob(filepath.Join(dir, part, "MANIFEST-*"))
			if err != nil || len(paths) == 0 {
				t.Fatalf("no manifest: %v", err)
			}
			for _, path := range paths {
				data, err := os.ReadFile(path)
				if err != nil {
					t.Fatal(err)
				}
				data[9] ^= 1
				if err := os.WriteFile(path, data, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			out.Reset()
			code := ArchivedProgram.Main([]string{"--data-dir=" + dir, "--archive-id=archive-a", "--nats-url=nats://127.0.0.1:1"}, &out, &out)
			if code != serve.ExitDamaged || !strings.Contains(out.String(), "archived repair") {
				t.Errorf("exit code %d, want %d: %s", code, serve.ExitDamaged, out.String())
			}
		})
	}
}
