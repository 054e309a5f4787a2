package docs_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const contracts = "docs/contracts.md"

// shownFile is a code block that shows a file of the repository.
var shownFile = regexp.MustCompile("(?s)<!-- file (\\S+) -->\n(```[a-z]*\n)(.*?)\n```\n")

// Files that documents show are shown byte for byte.
func TestShownFilesAreTheRealOnes(t *testing.T) {
	shown := map[string]bool{}
	for _, doc := range documents(t) {
		text := read(t, doc)
		exact := shownFile.ReplaceAllStringFunc(text, func(block string) string {
			m := shownFile.FindStringSubmatch(block)
			shown[m[1]] = true
			want := strings.TrimRight(read(t, m[1]), "\n")
			if m[3] != want && !*update {
				t.Errorf("%s shows %s as (-document +file):\n%s", doc, m[1], cmp.Diff(m[3], want))
			}
			return "<!-- file " + m[1] + " -->\n" + m[2] + want + "\n```\n"
		})
		if *update && exact != text {
			if err := os.WriteFile(filepath.Join(root, doc), []byte(exact), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, kind := range payloadTypes(t) {
		if !slices.ContainsFunc(slices.Collect(maps.Keys(shown)), func(name string) bool { return payloadType(name) == kind }) {
			t.Errorf("%s shows no sample of %s", contracts, kind)
		}
	}
	for _, name := range []string{"go/main.go", "node/middleware.js", "node/package.json"} {
		if name = "docs/examples/middleware/" + name; !shown[name] {
			t.Errorf("no document shows %s", name)
		}
	}
}

// payloadTypes are the types of which there are golden samples.
func payloadTypes(t *testing.T) (types []string) {
	t.Helper()
	files, err := fs.Glob(repository(), "wire/testdata/*.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		types = append(types, payloadType(name))
	}
	slices.Sort(types)
	if types = slices.Compact(types); len(types) < 15 {
		t.Fatalf("%d payload types were found: the search sees too little", len(types))
	}
	return types
}

// payloadType is the type that a golden sample is of: the begin of its name.
func payloadType(name string) string {
	if path.Dir(name) != "wire/testdata" {
		return ""
	}
	words := strings.Split(strings.TrimSuffix(path.Base(name), ".json"), "_")
	if slices.Contains([]string{"blob", "sync", "ctl", "roster", "mirror", "outbox"}, words[0]) || len(words) > 1 && (words[1] == "ack" || words[1] == "minimal") {
		return words[0] + "_" + words[1]
	}
	return words[0]
}

func TestEverySubjectAndHeaderIsNamed(t *testing.T) {
	doc, seen := read(t, contracts), 0
	for _, name := range []string{"wire/wire.go", "wire/blob.go", "wire/sync.go", "wire/outbox.go"} {
		for constant, value := range constants(t, name) {
			if strings.HasPrefix(constant, "Subject") || strings.HasPrefix(constant, "Header") {
				seen++
				if !strings.Contains(doc, "`"+value) {
					t.Errorf("%s does not name %s, %q", contracts, constant, value)
				}
			}
		}
	}
	if seen < 20 {
		t.Errorf("%d constants were found: the search sees too little", seen)
	}
}

// constants are the string constants of a file.
func constants(t *testing.T, name string) map[string]string {
	t.Helper()
	found := map[string]string{}
	ast.Inspect(syntax(t, name), func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		for i := 0; ok && i < len(spec.Names) && i < len(spec.Values); i++ {
			if text, ok := literal(spec.Values[i]); ok {
				found[spec.Names[i].Name] = text
			}
		}
		return true
	})
	return found
}

func syntax(t *testing.T, name string) *ast.File {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, name), nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	return file
}

func literal(e ast.Expr) (string, bool) {
	lit, ok := e.(*ast.BasicLit)
	if !ok || lit.Kind != token.STRING {
		return "", false
	}
	text, err := strconv.Unquote(lit.Value)
	return text, err == nil
}

var (
	routePath = regexp.MustCompile(`\{path: "([^"]+)"`)
	routeRow  = regexp.MustCompile("(?m)^\\| `(?:GET|POST|DELETE)[^`]* (/[^`?]*)`")
)

// The table of routes has every route of the edge, and no other.
func TestTheRoutesAreThoseOfTheEdge(t *testing.T) {
	code, doc := map[string]bool{}, map[string]bool{}
	for _, m := range routePath.FindAllStringSubmatch(read(t, "edge/routes.go"), -1) {
		code[m[1]] = true
	}
	for _, m := range routeRow.FindAllStringSubmatch(read(t, contracts), -1) {
		doc[m[1]] = true
	}
	if len(code) < 10 {
		t.Fatalf("%d routes were found in the edge: the search sees too little", len(code))
	}
	if !maps.Equal(code, doc) {
		t.Errorf("the edge has %q, the table %q", slices.Sorted(maps.Keys(code)), slices.Sorted(maps.Keys(doc)))
	}
}

// limitComment is the comment on a limit of a request.
var limitComment = regexp.MustCompile(`(?m)^\t\w+ +\w+ +// \[(MAX_\w+)\] (.+); default (.+)$`)

func TestTheLimitsAreThoseOfTheSplitter(t *testing.T) {
	rows := [][]string{{"limit", "of what", "default"}}
	for _, m := range limitComment.FindAllStringSubmatch(read(t, "splitter/limits.go"), -1) {
		rows = append(rows, []string{"`" + m[1] + "`", m[2], m[3]})
	}
	if len(rows) < 12 {
		t.Fatalf("%d limits were found: the search sees too little", len(rows)-1)
	}
	generated(t, contracts, "limits", table(rows...))
}
