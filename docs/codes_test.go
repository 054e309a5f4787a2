package docs_test

import (
	"go/ast"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Packages whose refusals reach a caller over HTTP or NATS, or whoever starts a
// program.
var (
	refusing = []string{"edge", "splitter", "jobs", "bus", "blob", "archive", "mirror", "vault", "chain", "chain/ledger", "daemon", "internal/pebblex", "internal/serve", "bridge/envelope"}
	codeRow  = regexp.MustCompile("(?m)^\\| `([A-Z][A-Z0-9_]+)` \\|")
)

// The tables of codes have every code that somebody can meet, and none that
// nothing makes. Over HTTP and NATS kinds that are our own fault are told as
// INTERNAL or CORRUPT: their codes may have a row and need none.
func TestTheCodesAreThoseOfTheCode(t *testing.T) {
	made, told, inDocs := map[string]bool{}, map[string]string{}, map[string]bool{}
	for _, dir := range refusing {
		for code, is := range codes(t, dir) {
			made[code] = true
			if is {
				told[code] = dir
			}
		}
	}
	for _, doc := range []string{contracts, "docs/operations.md"} {
		_, part, _ := strings.Cut(read(t, doc), "<!-- codes -->")
		part, _, _ = strings.Cut(part, "<!-- end of codes -->")
		for _, m := range codeRow.FindAllStringSubmatch(part, -1) {
			inDocs[m[1]] = true
		}
	}
	for _, code := range slices.Sorted(maps.Keys(told)) {
		if !inDocs[code] {
			t.Errorf("no table has %s, made in %s", code, told[code])
		}
	}
	for _, code := range slices.Sorted(maps.Keys(inDocs)) {
		if !made[code] {
			t.Errorf("a table has %s, which nothing makes", code)
		}
	}
	if len(made) < 80 {
		t.Errorf("%d codes were found: the search sees too little", len(made))
	}
}

// codes are the codes of the faults that a package makes: those of calls of
// fault.New and refuse, and its constants of that name. The value is false if
// all faults with the code are of a kind that no caller is told about.
func codes(t *testing.T, dir string) map[string]bool {
	t.Helper()
	found := map[string]bool{}
	for _, name := range goDirs(t)[dir] {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		for constant, value := range constants(t, name) {
			if strings.HasPrefix(strings.ToLower(constant), "code") {
				found[value] = true
			}
		}
		ast.Inspect(syntax(t, name), func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if ok && makesFault(call) {
				for _, arg := range call.Args[:min(2, len(call.Args))] {
					if code, ok := literal(arg); ok && codeText.MatchString(code) {
						found[code] = found[code] || !ourFault(call)
					}
				}
			}
			return true
		})
	}
	return found
}

var codeText = regexp.MustCompile(`^[A-Z][A-Z0-9]*(_[A-Z0-9]+)*$`)

// makesFault reports whether a call is one of fault.New or of a package's refuse.
func makesFault(call *ast.CallExpr) bool {
	switch f := call.Fun.(type) {
	case *ast.SelectorExpr:
		pkg, ok := f.X.(*ast.Ident)
		return ok && pkg.Name == "fault" && f.Sel.Name == "New"
	case *ast.Ident:
		return f.Name == "refuse"
	}
	return false
}

// ourFault reports whether a call makes a fault of a kind that no caller is told
// about.
func ourFault(call *ast.CallExpr) bool {
	kind, ok := call.Args[0].(*ast.SelectorExpr)
	return ok && (kind.Sel.Name == "Internal" || kind.Sel.Name == "Corrupt")
}
