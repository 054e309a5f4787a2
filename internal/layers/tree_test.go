package layers

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// A tree is the non-test source of a module by package path; "." is its root.
type tree map[string]*pkg

// A pkg is one directory of Go files.
type pkg struct {
	name  string
	files []file
}

// A file is parsed with its comments.
type file struct {
	name   string // relative to the root of the module
	syntax *ast.File
}

// readTree parses every Go file of the module at the root of fsys but tests.
// Directories that the go command passes over, and modules inside, are none of
// its packages.
func readTree(fsys fs.FS) (tree, error) {
	t := tree{}
	fset := token.NewFileSet()
	err := fs.WalkDir(fsys, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			return passOver(fsys, name)
		}
		if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return nil
		}
		src, err := fs.ReadFile(fsys, name)
		if err != nil {
			return err
		}
		syntax, err := parser.ParseFile(fset, name, src, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return fmt.Errorf("layers: %w", err)
		}
		dir := path.Dir(name)
		if t[dir] == nil {
			t[dir] = &pkg{name: syntax.Name.Name}
		}
		t[dir].files = append(t[dir].files, file{name, syntax})
		return nil
	})
	return t, err
}

// passOver returns fs.SkipDir for directories without packages of the module.
func passOver(fsys fs.FS, dir string) error {
	if dir == "." {
		return nil
	}
	base := path.Base(dir)
	if base == "testdata" || base == "vendor" || base == "node_modules" || base[0] == '.' || base[0] == '_' {
		return fs.SkipDir
	}
	if _, err := fs.Stat(fsys, path.Join(dir, "go.mod")); err == nil {
		return fs.SkipDir
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// moduleRoot returns the nearest directory above the working directory that has
// a go.mod.
func moduleRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		up := filepath.Dir(dir)
		if up == dir {
			return "", errors.New("layers: no go.mod above the working directory")
		}
		dir = up
	}
}
