package docs_test

import (
	"io/fs"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// treeLine is a line of the README's tree: a directory and what it is for.
var treeLine = regexp.MustCompile(`(?m)^([a-z][a-z0-9/]*)/ +\S`)

// The README has one line for every directory of the module with Go files, and
// for none that is not there.
func TestTheTreeOfTheREADMEIsTheRealOne(t *testing.T) {
	_, rest, found := strings.Cut(read(t, "README.md"), "## The tree\n")
	block := fence.FindString(rest)
	if !found || block == "" {
		t.Fatal("README.md has no tree")
	}
	shown := map[string]bool{}
	for _, m := range treeLine.FindAllStringSubmatch(block, -1) {
		shown[m[1]] = true
	}
	real := map[string]bool{}
	for dir := range goDirs(t) {
		real[dir] = true
	}
	for _, dir := range slices.Sorted(maps.Keys(real)) {
		if !shown[dir] {
			t.Errorf("the tree lacks %s", dir)
		}
	}
	for _, dir := range slices.Sorted(maps.Keys(shown)) {
		if info, err := fs.Stat(repository(), dir); err != nil || !info.IsDir() {
			t.Errorf("the tree shows %s, which is not there", dir)
		}
	}
}

// goDirs are the directories of this module with Go files, with the files. Those
// that the go command passes over, and modules inside, are left out.
func goDirs(t *testing.T) map[string][]string {
	t.Helper()
	dirs := map[string][]string{}
	err := fs.WalkDir(repository(), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			base := path.Base(name)
			inside := name != "." && (base[0] == '.' || base[0] == '_' || base == "testdata" || base == "node_modules")
			if _, err := fs.Stat(repository(), path.Join(name, "go.mod")); inside || err == nil && name != "." {
				return fs.SkipDir
			}
			return nil
		}
		if path.Ext(name) == ".go" {
			dirs[path.Dir(name)] = append(dirs[path.Dir(name)], name)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(dirs) < 20 {
		t.Fatalf("%d directories with Go files were found: the walk sees too little", len(dirs))
	}
	return dirs
}

// testName is how documents name a test: the directory of its package and its
// function, as in archive.TestLaw3AppendOnly.
var testName = regexp.MustCompile("`([a-z][a-z0-9/]*)\\.((?:Test|Fuzz|Benchmark)[A-Za-z0-9_]+)`")

// Every test that a document names is there.
func TestNamedTestsExist(t *testing.T) {
	dirs, seen := goDirs(t), 0
	for _, doc := range documents(t) {
		for _, m := range testName.FindAllStringSubmatch(read(t, doc), -1) {
			seen++
			if !hasFunction(t, dirs[m[1]], m[2]) {
				t.Errorf("%s names %s.%s, which is not there", doc, m[1], m[2])
			}
		}
	}
	if seen < 30 {
		t.Errorf("%d names were found: the search sees too little", seen)
	}
}

func hasFunction(t *testing.T, files []string, name string) bool {
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") && strings.Contains(read(t, file), "\nfunc "+name+"(") {
			return true
		}
	}
	return false
}

// Each of the laws is shown by a test at least.
func TestEveryLawHasATest(t *testing.T) {
	_, rest, _ := strings.Cut(read(t, "docs/architecture.md"), "## The laws\n")
	section, _, _ := strings.Cut(rest, "\n## ")
	laws := regexp.MustCompile(`(?m)^\d+\. `).Split(section, -1)[1:]
	if len(laws) != 11 {
		t.Fatalf("there are %d laws, not 11", len(laws))
	}
	for i, law := range laws {
		if !testName.MatchString(law) {
			t.Errorf("law %d names no test", i+1)
		}
	}
}

// The table of crashes has every gap that the test goes through, and no other.
func TestTheGapsAreThoseOfTheCrashTest(t *testing.T) {
	name := regexp.MustCompile(`"((?:accept|settle)\.[a-z]+)"`)
	row := regexp.MustCompile("(?m)^\\| `((?:accept|settle)\\.[a-z]+)` \\|")
	_, list, _ := strings.Cut(read(t, "jobs/crash_test.go"), "var gaps = []string{")
	list, _, _ = strings.Cut(list, "}")
	var gaps, rows []string
	for _, m := range name.FindAllStringSubmatch(list, -1) {
		gaps = append(gaps, m[1])
	}
	for _, m := range row.FindAllStringSubmatch(read(t, "docs/architecture.md"), -1) {
		rows = append(rows, m[1])
	}
	if len(gaps) < 8 || !slices.Equal(gaps, rows) {
		t.Errorf("the test goes through %q, the table has %q", gaps, rows)
	}
}

// pathName is a path of the repository in a document.
var pathName = regexp.MustCompile("`((?:[a-z][A-Za-z0-9_.-]*/)+[A-Za-z0-9_.-]+\\.(?:go|json|hex|txt|md|row|golden|http|vkey|mod|yaml))`")

// Every file of the repository that a document names is there.
func TestNamedFilesExist(t *testing.T) {
	seen := 0
	for _, doc := range documents(t) {
		for _, m := range pathName.FindAllStringSubmatch(read(t, doc), -1) {
			if strings.HasPrefix(m[1], "github.com/") {
				continue
			}
			seen++
			if _, err := fs.Stat(repository(), m[1]); err != nil {
				t.Errorf("%s names %s: %v", doc, m[1], err)
			}
		}
	}
	if seen < 20 {
		t.Errorf("%d names were found: the search sees too little", seen)
	}
}
