package docs_test

import (
	"io/fs"
	"path"
	"strings"
	"testing"
)

// stores are the packages that keep bytes whose layout is frozen.
var stores = []string{"archive", "blob", "bloom", "bus", "chain", "chain/ledger", "edge", "internal/pebblex", "jobs", "vault", "wire"}

// Every golden file of a stored format is named where the format is described.
func TestEveryGoldenFileIsNamed(t *testing.T) {
	doc, seen := read(t, "docs/formats.md"), 0
	for _, dir := range stores {
		err := fs.WalkDir(repository(), path.Join(dir, "testdata"), func(name string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			sub := strings.TrimPrefix(name, dir+"/testdata/")
			switch {
			case strings.HasPrefix(sub, "fuzz/"), strings.HasPrefix(sub, "exchanges/"), strings.HasPrefix(sub, "seed/"), dir == "wire" && path.Ext(sub) == ".json" && !strings.Contains(sub, "/"):
				return nil // corpora, and what docs/contracts.md shows
			}
			seen++
			if !strings.Contains(doc, "`"+name+"`") && !strings.Contains(doc, "`"+path.Dir(name)+"/`") {
				t.Errorf("docs/formats.md does not name %s", name)
			}
			return nil
		})
		if err != nil && dir != "edge" {
			t.Error(err)
		}
	}
	if seen < 15 {
		t.Errorf("%d golden files were found: the search sees too little", seen)
	}
}
