package archive

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// forbidden are the calls by which a program could change or lose what is
// stored, wherever they stand: on the store, on a batch or on the file system.
var forbidden = []string{
	"Delete", "DeleteSized", "DeleteRange", "SingleDelete", "DeleteDeferred", "DeleteSizedDeferred", "DeleteRangeDeferred",
	"SingleDeleteDeferred", "Merge", "MergeDeferred", "RangeKeySet", "RangeKeyUnset", "RangeKeyDelete", "LogData", "SetRepr",
	"AddInternalKey", "Ingest", "IngestAndExcise", "IngestExternalFiles", "IngestWithStats", "Excise",
	"ApplyNoSyncWait", "AsyncApply", "NoSync", "DisableWAL", "SetDeferred", "RatchetFormatMajorVersion",
	"Truncate", "ReuseForWrite", "Link",
}

// allowedOnce are calls that a store needs, with the only functions, or files,
// that may make them: behind the guard, before there is a store, or beside it.
// Repair and restore write stores of their own, in directories that were not there,
// through the same guard.
var allowedOnce = map[string][]string{
	"Apply":    {"store", "writeIdentity", "repairstore.go", "restore.go"},
	"Set":      {"fill", "fillRecord", "writeIdentity", "repairstore.go", "restore.go"},
	"NewBatch": {"store", "writeIdentity", "repairstore.go", "restore.go"},
	"Mkdir":    {"Init", "OpenWitness", "repairbuild.go", "restore.go", "filtertend.go"},
	// The keys, the mark, the skeleton and the generations; the memory of the
	// witness, of the reconciliation and of the scrub.
	"WriteFile": {
		"writeKey", "begin", "writeMarkFile", "build", "writeLineageFile", "addLostFiles", "save", "saveScrub", "keepEvidence", "filterSecret", "writeLeases", "repairbuild.go", "restore.go",
	},
	"OpenReadWrite": {"open"},
	"WriteAt":       {"put"},
	// Of files that were pulled, to the store of files.
	"Commit": {"fetch", "repair.go"},
	// Copies that were made to look at them, and the sign of a time that has passed;
	// snapshots of the filter.
	"Create":    {"filterfs.go"},
	"Remove":    {"beginGrace", "removeLeases", "filterfs.go"},
	"RemoveAll": {"opens", "restore.go"},
	"Rename":    {"rewrite", "filterfs.go"},
}

// TestLaw3NoCallChangesWhatIsStored reads the package's own source.
func TestLaw3NoCallChangesWhatIsStored(t *testing.T) {
	entries, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), ".go") || strings.HasSuffix(e.Name(), "_test.go") {
			continue
		}
		fset := token.NewFileSet()
		file, err := parser.ParseFile(fset, e.Name(), nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, imp := range file.Imports {
			if path := strings.Trim(imp.Path.Value, `"`); path == "unsafe" || path == "syscall" {
				t.Errorf("%s imports %s", e.Name(), path)
			}
		}
		for _, decl := range file.Decls {
			fn, ok := decl.(*ast.FuncDecl)
			if !ok {
				continue
			}
			ast.Inspect(fn, func(node ast.Node) bool {
				sel, ok := node.(*ast.SelectorExpr)
				if !ok {
					return true
				}
				name := sel.Sel.Name
				if slices.Contains(forbidden, name) {
					t.Errorf("%s: %s uses %s", fset.Position(sel.Pos()), fn.Name.Name, name)
				}
				if allowed, ok := allowedOnce[name]; ok {
					seen[name] = true
					if !slices.Contains(allowed, fn.Name.Name) && !slices.Contains(allowed, e.Name()) {
						t.Errorf("%s: %s uses %s, which only %v may", fset.Position(sel.Pos()), fn.Name.Name, name, allowed)
					}
				}
				return true
			})
		}
	}
	for name := range allowedOnce {
		if !seen[name] {
			t.Errorf("%s is not used anywhere: does the test still read the source?", name)
		}
	}
}

// TestLaw3NodeHasNoWayToTheStore: every exported method is on the list, no
// exported field is on a Node, and no method gives the store away.
func TestLaw3NodeHasNoWayToTheStore(t *testing.T) {
	want := []string{
		"Absent", "AbsentBatch", "Answer", "Backup", "Check", "CheckWith", "Checkpoint", "Close", "Consistency", "Feed", "FileLost", "FileOf", "HasRecords",
		"Heard", "Hello", "Inclusion", "Loaded", "Metrics", "OpenWitness", "Portable", "Proof", "Put", "Ready", "RecordIDs",
		"Reopen", "Seq", "SetState", "Stats", "ViewsSnapshot",
	}
	typ := reflect.TypeFor[*Node]()
	var got []string
	for m := range typ.Methods() {
		got = append(got, m.Name)
		for out := range m.Type.Outs() {
			if strings.Contains(out.String(), "pebble") || strings.Contains(out.String(), "vfs") {
				t.Errorf("%s returns %s", m.Name, out)
			}
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("methods %v, want %v: does the new one keep the law?", got, want)
	}
	for f := range typ.Elem().Fields() {
		if f.IsExported() {
			t.Errorf("field %s is exported", f.Name)
		}
	}
}
