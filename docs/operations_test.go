package docs_test

import (
	"io"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/verae/archive/daemon"
)

const operations = "docs/operations.md"

func TestTheVariablesAreThoseOfThePrograms(t *testing.T) {
	for name, config := range map[string]any{"archived": daemon.Archived{}, "aggregator": daemon.Aggregator{}, "both": daemon.Common{}} {
		rows := [][]string{{"variable", "flag", "default", "meaning"}}
		for _, v := range daemon.Variables(config) {
			if name != "both" && slices.Contains(daemon.Variables(daemon.Common{}), v) {
				continue
			}
			byDefault := "none"
			if v.Default != "" {
				byDefault = "`" + v.Default + "`"
			}
			rows = append(rows, []string{"`" + v.Name + "`", "`" + v.Flag + "`", byDefault, v.Help})
		}
		if len(rows) < 6 {
			t.Errorf("%s has %d variables: the search sees too little", name, len(rows)-1)
		}
		generated(t, operations, "variables of "+name, table(rows...))
	}
}

// Every variable of the system that a document names is one that the programs
// know: they do not start with another.
func TestNamedVariablesAreKnown(t *testing.T) {
	named, seen := regexp.MustCompile(`\bVERAE_[A-Z_]+\b`), map[string]bool{}
	for _, doc := range documents(t) {
		for _, name := range named.FindAllString(read(t, doc), -1) {
			if name == "VERAE_" || seen[name] {
				continue
			}
			seen[name] = true
			var cfg daemon.Archived
			if _, err := daemon.Parse("archived", "", &cfg, nil, []string{name + "=1"}, io.Discard); err != nil {
				t.Errorf("%s names %s: %v", doc, name, err)
			}
		}
	}
	if len(seen) < 4 {
		t.Errorf("%d variables were found: the search sees too little", len(seen))
	}
}

// metric is a line of an exposition that names a metric of ours.
var metric = regexp.MustCompile(`(?m)^# HELP (verae_\w+) (.+)$`)

// metricsOf writes a table of the metrics in expositions, in their order.
func metricsOf(t *testing.T, exposition string) string {
	t.Helper()
	rows := [][]string{{"metric", "meaning"}}
	for _, m := range metric.FindAllStringSubmatch(exposition, -1) {
		rows = append(rows, []string{"`" + m[1] + "`", m[2]})
	}
	if len(rows) < 15 {
		t.Errorf("%d metrics were found: the search sees too little", len(rows)-1)
	}
	return table(rows...)
}

// Every direct dependency that something imports has a row, with the version in
// force, and no other has.
func TestTheDependenciesAreThoseOfTheModule(t *testing.T) {
	const doc = "docs/dependencies.md"
	direct := regexp.MustCompile(`(?m)^\t(\S+) (v\S+)$`)
	row := regexp.MustCompile("(?m)^\\| `([^` ]+)` \\| (v\\S+) \\|")
	want, have, imported := map[string]string{}, map[string]string{}, imports(t)
	for _, m := range direct.FindAllStringSubmatch(read(t, "go.mod"), -1) {
		if slices.ContainsFunc(imported, func(p string) bool { return p == m[1] || strings.HasPrefix(p, m[1]+"/") }) {
			want[m[1]] = m[2]
		}
	}
	for _, m := range row.FindAllStringSubmatch(read(t, doc), -1) {
		have[m[1]] = m[2]
	}
	if len(want) < 15 {
		t.Fatalf("%d direct dependencies were found: the search sees too little", len(want))
	}
	for path, version := range want {
		if have[path] != version {
			t.Errorf("%s has %q for %s %s", doc, have[path], path, version)
		}
	}
	for path := range have {
		if want[path] == "" {
			t.Errorf("%s has %s, which is no direct dependency", doc, path)
		}
	}
}

// imports are the paths that the Go files of this module import.
func imports(t *testing.T) (paths []string) {
	t.Helper()
	for _, files := range goDirs(t) {
		for _, name := range files {
			for _, spec := range syntax(t, name).Imports {
				if path, ok := literal(spec.Path); ok {
					paths = append(paths, path)
				}
			}
		}
	}
	slices.Sort(paths)
	return slices.Compact(paths)
}

// What tests ask a machine for is told.
func TestEveryNeedIsTold(t *testing.T) {
	doc, asks, seen := read(t, "docs/testing.md"), regexp.MustCompile(`need\.(?:Program|Missing)\(t, "(/?[a-z]+)"\)`), 0
	for _, files := range goDirs(t) {
		for _, name := range files {
			for _, m := range asks.FindAllStringSubmatch(read(t, name), -1) {
				seen++
				if !strings.Contains(doc, "`"+m[1]+"`") {
					t.Errorf("docs/testing.md does not name %s, which %s asks for", m[1], name)
				}
			}
		}
	}
	if seen < 4 {
		t.Errorf("%d needs were found: the search sees too little", seen)
	}
}

// The module of the example uses the versions of this one, so that the tests
// need nothing beside them.
func TestTheExampleUsesOurVersions(t *testing.T) {
	ours, seen := read(t, "go.mod"), 0
	for line := range strings.Lines(read(t, "docs/examples/middleware/go/go.mod")) {
		fields := strings.Fields(strings.TrimPrefix(line, "require "))
		if len(fields) < 2 || !strings.HasPrefix(fields[1], "v") {
			continue
		}
		seen++
		if require := fields[0] + " " + fields[1]; !strings.Contains(ours, require) && !strings.Contains(read(t, "go.sum"), require) {
			t.Errorf("the example requires %s, this module does not", require)
		}
	}
	if seen < 3 {
		t.Errorf("%d requirements were found: the search sees too little", seen)
	}
}
