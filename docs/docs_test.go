// Package docs_test holds the documentation to what the code is: every link
// leads somewhere, every sample is a golden file, every table is that of the
// code, every example runs.
//
//	go test ./docs            # compare
//	go test ./docs -update    # write the generated parts anew
package docs_test

import (
	"flag"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the generated parts of the documents anew")

// root is the root of the repository, seen from the directory of the tests.
const root = ".."

// repository is the tree of the repository.
func repository() fs.FS { return os.DirFS(root) }

// read returns the text of a file by its path from the root.
func read(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(name)))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// documents are the paths of all documents from the root.
func documents(t *testing.T) (paths []string) {
	t.Helper()
	err := fs.WalkDir(repository(), ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && name != "." && name != "docs" && !strings.HasPrefix(name, "docs/"), d.IsDir() && d.Name() == "node_modules":
			return fs.SkipDir
		case path.Ext(name) == ".md":
			paths = append(paths, name)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, must := range []string{"README.md", "CHANGELOG.md", "docs/architecture.md"} {
		if !slices.Contains(paths, must) {
			t.Fatalf("%s was not found: the walk sees too little", must)
		}
	}
	return paths
}

// generated holds the part of a document between the lines
//
//	<!-- begin NAME -->
//	<!-- end NAME -->
//
// to what the code gives, or writes it with -update.
func generated(t *testing.T, document, name, want string) {
	t.Helper()
	text := read(t, document)
	begin, end := "<!-- begin "+name+" -->\n", "<!-- end "+name+" -->"
	before, rest, found := strings.Cut(text, begin)
	have, after, closed := strings.Cut(rest, end)
	if !found || !closed {
		t.Fatalf("%s has no part between %q and %q", document, begin, end)
	}
	want = strings.TrimRight(want, "\n") + "\n"
	if have == want {
		return
	}
	if *update {
		if err := os.WriteFile(filepath.Join(root, document), []byte(before+begin+want+end+after), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	t.Errorf("%s, part %q, is not what the code gives (-document +code):\n%s\nIt should be:\n%s\ngo test ./docs -update writes it.",
		document, name, cmp.Diff(have, want), want)
}

// table writes rows, the first of which is the head, as a table of Markdown.
func table(rows ...[]string) string {
	var b strings.Builder
	for i, row := range rows {
		b.WriteString("|")
		for _, cell := range row {
			b.WriteString(" " + strings.ReplaceAll(cell, "|", `\|`) + " |")
		}
		b.WriteString("\n")
		if i == 0 {
			b.WriteString("|" + strings.Repeat("---|", len(row)) + "\n")
		}
	}
	return b.String()
}
