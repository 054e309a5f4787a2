package daemon

import (
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/verae/archive/archive"
	"github.com/verae/archive/internal/fault"
)

// The filter's share follows from the least limit that holds for the process.
func TestMemoryLimit(t *testing.T) {
	files := func(pairs ...string) fstest.MapFS {
		m := fstest.MapFS{}
		for i := 0; i < len(pairs); i += 2 {
			m[pairs[i]] = &fstest.MapFile{Data: []byte(pairs[i+1])}
		}
		return m
	}
	const groups, v2, v1 = "proc/self/cgroup", "sys/fs/cgroup/", "sys/fs/cgroup/memory/"
	for name, tc := range map[string]struct {
		own  int64
		root fstest.MapFS
		want uint64
	}{
		"nothing known":           {math.MaxInt64, files(), 0},
		"GOMEMLIMIT":              {1 << 30, files(), 1 << 30},
		"a group":                 {math.MaxInt64, files(groups, "0::/a/b\n", v2+"a/b/memory.max", "4096\n"), 4096},
		"the group above":         {math.MaxInt64, files(groups, "0::/a/b\n", v2+"a/b/memory.max", "max\n", v2+"a/memory.max", "2048\n"), 2048},
		"inside a container":      {math.MaxInt64, files(groups, "0::/\n", v2+"memory.max", "1024\n"), 1024},
		"the least":               {512, files(groups, "0::/\n", v2+"memory.max", "1024\n"), 512},
		"version 1":               {math.MaxInt64, files(groups, "5:cpu:/x\n4:memory:/x\n", v1+"x/memory.limit_in_bytes", "8192\n"), 8192},
		"version 1, unlimited":    {math.MaxInt64, files(groups, "4:memory:/\n", v1+"memory.limit_in_bytes", "9223372036854771712\n"), 0},
		"a group without a limit": {math.MaxInt64, files(groups, "0::/a\n"), 0},
		"nothing to be read":      {math.MaxInt64, files(groups, "0::\nx\n0::/../..\n", v2+"memory.max", "much\n"), 0},
	} {
		if got := memoryLimit(tc.own, tc.root); got != tc.want {
			t.Errorf("%s: %d, want %d", name, got, tc.want)
		}
	}
	c := Archived{BloomMaxBytes: 77}
	if got := c.filterBytes(); got != 77 {
		t.Errorf("BLOOM_MAX_BYTES is not heard: %d", got)
	}
}

// What is wrong with the filters shows in the health of their archive, the worst
// first, and tells which it is.
func TestFilterTroubleIsTold(t *testing.T) {
	for code, views := range map[string]archive.FilterStats{
		"":                {Ready: true},
		"FILTER_DEGRADED": {Degraded: true},
		"FILTER_SUSPECT":  {Degraded: true, Suspect: true},
		"FILTER_DENIED":   {Degraded: true, Suspect: true, Denied: 1},
	} {
		views.Name = "views"
		for _, keys := range []archive.FilterStats{{Name: "keys"}, {Name: "keys", Degraded: code == "FILTER_SUSPECT" || code == "FILTER_DENIED"}} {
			err := filterTrouble(archive.Stats{Filters: []archive.FilterStats{keys, views}})
			if (err == nil) != (code == "") || err != nil && (fault.CodeOf(err) != code || !strings.Contains(err.Error(), "views")) {
				t.Errorf("%s: %v", code, err)
			}
		}
	}
}

// A filter key that can not be used stops an archive before it makes or opens
// anything, and the file is named.
func TestFilterKeyFileIsNamed(t *testing.T) {
	dir := t.TempDir()
	key := filepath.Join(dir, "filter.key")
	if err := os.WriteFile(key, []byte(archive.NewFilterKey()), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(key, 0o644); err != nil { // whatever the mask is
		t.Fatal(err)
	}
	var c Archived
	if err := parse(t, &c, []string{"ARCHIVE_ID=archive-a", "DATA_DIR=" + filepath.Join(dir, "data"), "FILTER_KEY_FILE=" + key}); err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	if err := InitArchive(c, log); fault.CodeOf(err) != "FILTER_KEY" || !strings.Contains(err.Error(), "FILTER_KEY_FILE "+key) {
		t.Errorf("others can read it: %v", err)
	}
	if _, err := os.Stat(c.DataDir); !os.IsNotExist(err) {
		t.Errorf("something was made: %v", err)
	}
	if err := os.Chmod(key, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := InitArchive(c, log); err != nil {
		t.Error(err)
	}
}
