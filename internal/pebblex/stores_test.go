package pebblex

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// losing are the names by which a program can make Pebble change, lose or not
// sync what it holds.
var losing = []string{
	"Delete", "DeleteSized", "SingleDelete", "DeleteRange", "DeleteDeferred", "DeleteSizedDeferred", "SingleDeleteDeferred",
	"DeleteRangeDeferred", "Merge", "MergeDeferred", "RangeKeySet", "RangeKeyUnset", "RangeKeyDelete", "RangeKeySetDeferred",
	"RangeKeyUnsetDeferred", "RangeKeyDeleteDeferred", "Ingest", "IngestAndExcise", "IngestExternalFiles", "IngestLocal",
	"IngestWithStats", "Excise", "NoSync", "ApplyNoSyncWait", "SyncWait", "AsyncApply", "LogData", "DisableWAL", "SetRepr",
	"AddInternalKey", "UnsafeForceDelete", "DisableAutomaticCompactions",
}

// TestStoresCallNothingThatLosesData reads the sources of the stores that promise
// never to lose or change anything. The job store is not among them: rows leave
// its outbox and its work list, keys expire, and what can be done again (its lazy
// updates) is not synced by itself.
func TestStoresCallNothingThatLosesData(t *testing.T) {
	for _, dir := range []string{".", "../../archive", "../../chain/ledger", "../../blob"} {
		files, err := filepath.Glob(filepath.Join(dir, "*.go"))
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %d files, %v", dir, len(files), err)
		}
		found := false
		for _, name := range files {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			for _, use := range uses(t, name) {
				found = found || use.name == "Apply" || use.name == "Commit"
				if slices.Contains(losing, use.name) {
					t.Errorf("%s uses %s", use.at, use.name)
				}
			}
		}
		if !found && dir != "." {
			t.Errorf("%s commits nothing: does the test still read the source?", dir)
		}
	}
}

// use is a name that stands in a source as a selector or a field.
type use struct{ at, name string }

func uses(t *testing.T, file string) (out []use) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	fset := token.NewFileSet()
	syntax, err := parser.ParseFile(fset, file, text, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(syntax, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.SelectorExpr:
			out = append(out, use{fset.Position(n.Pos()).String(), n.Sel.Name})
		case *ast.KeyValueExpr: // a field of options
			if id, ok := n.Key.(*ast.Ident); ok {
				out = append(out, use{fset.Position(n.Pos()).String(), id.Name})
			}
		}
		return true
	})
	return out
}
