package layers

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

func TestTheTreeKeepsItsRules(t *testing.T) {
	root, err := moduleRoot()
	if err != nil {
		t.Fatal(err)
	}
	gomod, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil || !strings.HasPrefix(string(gomod), "module "+ours.module+"\n") {
		t.Fatalf("go.mod at %s is not that of %s: %v", root, ours.module, err)
	}
	tree, err := readTree(os.DirFS(root))
	if err != nil {
		t.Fatal(err)
	}
	for _, must := range []string{"wire", "internal/fault", "internal/layers"} {
		if tree[must] == nil {
			t.Errorf("package %s was not found: the walk sees too little", must)
		}
	}
	for _, v := range ours.check(tree) {
		t.Error(v)
	}
}

func TestTheTableIsConsistent(t *testing.T) {
	on := map[string]string{}
	for _, f := range ours.floors {
		for _, p := range f.packages {
			if other, twice := on[p]; twice {
				t.Errorf("%s stands on floors %s and %s", p, other, f.name)
			}
			on[p] = f.name
		}
	}
	known := func(kind, of string, packages []string) {
		for _, p := range packages {
			if _, ok := on[p]; !ok && p != "internal/*" && !slices.Contains(anyone, p) {
				t.Errorf("%s of %s: no floor has %s", kind, of, p)
			}
		}
	}
	libraries := map[string]bool{}
	for _, o := range ours.owners {
		known("owner", o.library, o.packages)
		if o.reason == "" || libraries[o.library] {
			t.Errorf("%s: listed twice, or without a reason", o.library)
		}
		libraries[o.library] = true
	}
	for _, u := range ours.users {
		known("user", u.pkg, append(u.packages, u.pkg))
		if u.reason == "" {
			t.Errorf("%s: no reason", u.pkg)
		}
	}
	for _, m := range []map[string]string{ours.stdOnly, ours.plainJSON} {
		for p, reason := range m {
			known("exception", "json or std", []string{p})
			if reason == "" {
				t.Errorf("%s: no reason", p)
			}
		}
	}
}

// source is a Go file of a package with the given imports.
func source(pkg string, imports ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "// Package %s is a sample.\npackage %s\n", pkg, pkg)
	for _, i := range imports {
		fmt.Fprintf(&b, "import _ %q\n", strings.Replace(i, "@", ours.module, 1))
	}
	return b.String()
}

// Every rule is broken once, and the failure must say what and why.
func TestEveryRuleCatches(t *testing.T) {
	const json = "// Package edge is a sample.\npackage edge\nimport \"encoding/json\"\nfunc f(b []byte) { var v any; json.Unmarshal(b, &v) }\n"
	tests := []struct {
		name, file, src string
		says            []string // of the one violation; none: the file is fine
	}{
		{"down", "jobs/flow.go", source("jobs", "@/receipts", "@/wire", "fmt", "github.com/cockroachdb/pebble/v2"), nil},
		{"up", "jobs/flow.go", source("jobs", "@/edge"), []string{"jobs/flow.go", "@/edge", "strictly downward", "floor 3", "floor 4"}},
		{"sideways", "receipts/gather.go", source("receipts", "@/chain/remote"), []string{"strictly downward", "floor 2"}},
		{"sideways in the basement", "blob/store.go", source("blob", "@/wire"), []string{"strictly downward", "floor 0'"}},
		{"internal to internal", "internal/serve/serve.go", source("serve", "@/internal/pebblex"), []string{"strictly downward"}},
		{"internal to fault", "internal/serve/serve.go", source("serve", "@/internal/fault"), nil},
		{"fault to internal", "internal/fault/fault.go", source("fault", "@/internal/serve"), []string{"strictly downward"}},
		{"a program", "edge/edge.go", source("edge", "@/cmd/aggregator"), []string{"strictly downward", "floor 5"}},
		{"program to program", "cmd/verae/main.go", source("main", "@/cmd/aggregator"), []string{"strictly downward", "floor 5"}},
		{"unknown target", "edge/edge.go", source("edge", "@/utils"), []string{"@/utils", "does not know"}},
		{"root as target", "edge/edge.go", source("edge", "@"), []string{"does not know"}},
		{"unknown package", "utils/strings.go", source("utils"), []string{"utils:", "does not know this package"}},
		{"unknown package below a known one", "edge/deep/x.go", source("deep"), []string{"edge/deep:", "does not know this package"}},
		{"package at the root", "root.go", source("archive"), []string{".:", "does not know this package"}},

		{"wire and a library", "wire/cbor.go", source("wire", "github.com/fxamacker/cbor/v2"), []string{"belongs to archive"}},
		{"wire and ours", "wire/wire.go", source("wire", "@/internal/fault"), []string{"standard library only"}},
		{"wire and std", "wire/wire.go", source("wire", "encoding/json"), nil},

		{"nats outside the bus", "receipts/gather.go", source("receipts", "github.com/nats-io/nats.go"), []string{"belongs to bus;", "without a server"}},
		{"nats subpackage", "jobs/flow.go", source("jobs", "github.com/nats-io/nats.go/jetstream"), []string{"belongs to bus;"}},
		{"nats by a like name", "jobs/flow.go", source("jobs", "github.com/nats-io/nats.golf"), []string{"no owner"}},
		{"server in the bus", "bus/connect.go", source("bus", "github.com/nats-io/nats-server/v2/server"), []string{"belongs to bus/server"}},
		{"pebble in edge", "edge/keys.go", source("edge", "github.com/cockroachdb/pebble/v2/vfs"), []string{"belongs to internal/pebblex"}},
		{"cid outside blob", "splitter/files.go", source("splitter", "github.com/ipfs/go-cid"), []string{"belongs to blob"}},
		{"bloom outside bloom", "archive/filter.go", source("archive", "github.com/bits-and-blooms/bloom/v3"), []string{"belongs to bloom"}},
		{"cipher outside the vault", "edge/keys.go", source("edge", "golang.org/x/crypto/chacha20poly1305"), []string{"belongs to vault"}},
		{"cipher in the vault", "vault/seal.go", source("vault", "golang.org/x/crypto/chacha20poly1305"), nil},
		{"other crypto in the vault", "vault/seal.go", source("vault", "golang.org/x/crypto/nacl/box"), []string{"belongs to nobody", "subpackage"}},
		{"notes in jobs", "jobs/flow.go", source("jobs", "golang.org/x/mod/sumdb/note"), []string{"belongs to internal/tlogx"}},
		{"library without owner", "edge/edge.go", source("edge", "example.com/clever/router"), []string{"no owner"}},
		{"flags below a program", "jobs/flow.go", source("jobs", "github.com/alecthomas/kong"), []string{"where a program starts"}},
		{"metrics in a leaf", "bloom/set.go", source("bloom", "github.com/prometheus/client_golang/prometheus"), []string{"free of metrics"}},

		{"testing in production", "jobs/flow.go", source("jobs", "testing"), []string{"test framework"}},
		{"fstest in production", "jobs/flow.go", source("jobs", "testing/fstest"), []string{"test framework"}},
		{"cmp in production", "jobs/flow.go", source("jobs", "github.com/google/go-cmp/cmp"), []string{"tests only"}},
		{"testing in a suite", "chain/chaintest/suite.go", source("chaintest", "testing"), nil},
		{"testing in the world", "harness/world/world.go", source("world", "testing"), nil},
		{"anything in a test", "jobs/flow_test.go", source("jobs", "testing", "@/edge", "github.com/nats-io/nats.go"), nil},
		{"cgo", "blob/fast.go", source("blob", "C"), []string{"CGO_ENABLED=0"}},
		{"log", "edge/edge.go", source("edge", "log"), []string{"slog"}},
		{"slog", "edge/edge.go", source("edge", "log/slog"), nil},

		{"bus below the programs", "jobs/flow.go", source("jobs", "@/bus"), []string{"may be imported by", "declare the slice"}},
		{"bus in a program", "daemon/aggregator.go", source("daemon", "@/bus"), nil},
		{"a ledger in jobs", "jobs/flow.go", source("jobs", "@/chain/ledger"), []string{"chain.Ledger"}},
		{"a suite in a program", "cmd/verae/main.go", source("main", "@/chain/chaintest"), []string{"by nobody only"}},
		{"the world in a program", "cmd/verae/main.go", source("main", "@/harness/world"), []string{"may be imported by harness only"}},
		{"the world in the harness", "harness/main.go", source("main", "@/harness/world"), nil},

		{"json in edge", "edge/edge.go", json, []string{"json.Unmarshal", "wire.Decode"}},
		{"json under another name", "edge/edge.go", strings.NewReplacer("import ", "import j ", "json.U", "j.U").Replace(json), []string{"wire.Decode"}},
		{"json decoder", "edge/edge.go", strings.Replace(json, "json.Unmarshal(b, &v)", "json.NewDecoder(nil)", 1), []string{"json.NewDecoder"}},
		{"json encoder", "edge/edge.go", strings.Replace(json, "json.Unmarshal(b, &v)", "json.Marshal(v)", 1), nil},
		{"json in wire", "wire/wire.go", strings.ReplaceAll(json, "edge", "wire"), nil},

		{"no package comment", "edge/edge.go", "package edge\n", []string{"edge:", "package comment"}},
		{"comment apart", "edge/edge.go", "// Package edge is apart.\n\npackage edge\n", []string{"package comment"}},
		{"other comment", "edge/edge.go", "// This is HTTP.\npackage edge\n", []string{`begins with "Package edge "`}},
		{"comment of a program", "cmd/verae/main.go", "// Command verae is a sample.\npackage main\n", nil},
		{"bare function", "edge/edge.go", source("edge") + "func F() {}\n", []string{"exported F has no comment"}},
		{"bare method", "edge/edge.go", source("edge") + "// T is.\ntype T[K any] struct{}\nfunc (t *T[K]) M() {}\n", []string{"exported T.M has no comment"}},
		{"bare method of two", "edge/edge.go", source("edge") + "// T is.\ntype T[K, V any] struct{}\nfunc (t T[K, V]) M() {}\n", []string{"exported T.M has no comment"}},
		{"method of a hidden type", "edge/edge.go", source("edge") + "type t struct{}\nfunc (t) M() {}\nfunc (t) m() {}\n", nil},
		{"bare type", "edge/edge.go", source("edge") + "type T int\n", []string{"exported T has no comment"}},
		{"bare constant", "edge/edge.go", source("edge") + "const (\n\tA = 1 // counts\n\tB = 2\n)\n", []string{"exported B has no comment"}},
		{"bare variable", "edge/edge.go", source("edge") + "var a, B = 1, 2\n", []string{"exported B has no comment"}},
		{"group comment", "edge/edge.go", source("edge") + "// Limits.\nconst (\n\tA = 1\n\tB = 2\n)\n// Types.\ntype (\n\tT int\n\tU int\n)\n", nil},
		{"a program's names", "cmd/verae/main.go", "// Command verae is a sample.\npackage main\nfunc F() {}\n", nil},

		{"passed over", "edge/testdata/x.go", "package broken\n", nil},
		{"passed over too", "_old/x.go", "package broken\n", nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tree, err := readTree(fstest.MapFS{"go.mod": {}, tt.file: {Data: []byte(tt.src)}})
			if err != nil {
				t.Fatal(err)
			}
			found := ours.check(tree)
			if tt.says == nil {
				if len(found) > 0 {
					t.Errorf("unexpected: %v", found)
				}
				return
			}
			var all []string
			for _, v := range found {
				all = append(all, v.String())
			}
			for _, says := range tt.says {
				if text := strings.Join(all, "\n"); !strings.Contains(text, strings.Replace(says, "@", ours.module, 1)) {
					t.Errorf("%q does not say %q", text, says)
				}
			}
		})
	}
}

func TestASecondPackageCommentIsReported(t *testing.T) {
	tree, err := readTree(fstest.MapFS{"edge/a.go": {Data: []byte(source("edge"))}, "edge/b.go": {Data: []byte(source("edge"))}})
	if err != nil {
		t.Fatal(err)
	}
	if found := ours.check(tree); len(found) != 1 || !strings.Contains(found[0].String(), "edge/b.go: a second package comment") {
		t.Errorf("got %v", found)
	}
}

func TestModulesInsideAreTheirOwn(t *testing.T) {
	tree, err := readTree(fstest.MapFS{
		"bench/go.mod":         {},
		"bench/x.go":           {Data: []byte("package broken")},
		"bench/deep/x.go":      {Data: []byte("package broken")},
		"node_modules/a/x.go":  {Data: []byte("package broken")},
		".ci/x.go":             {Data: []byte("package broken")},
		"wire/wire.go":         {Data: []byte(source("wire"))},
		"wire/notes.txt":       {Data: []byte("no Go")},
		"wire/broken_test.go":  {Data: []byte("no Go")},
		"wire/testdata/x.go":   {Data: []byte("no Go")},
		"bench/testdata/y.go":  {Data: []byte("no Go")},
		"vendor/example/z.go":  {Data: []byte("no Go")},
		"integrations/zapier/": {},
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(tree) != 1 || tree["wire"] == nil {
		t.Errorf("got %d packages", len(tree))
	}
}

func TestAFileThatDoesNotParseIsAnError(t *testing.T) {
	if _, err := readTree(fstest.MapFS{"wire/wire.go": {Data: []byte("pakage wire")}}); err == nil {
		t.Error("accepted")
	}
}
