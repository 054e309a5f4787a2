package docs_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/verae/archive/harness/world"
	"github.com/verae/archive/internal/need"
	"github.com/verae/archive/wire"
)

const examples = "docs/examples/middleware"

func middlewareInGo(t *testing.T, ready world.Ready) {
	out := run(t, filepath.Join(root, examples, "go"), []string{"NATS_URL=" + ready.NATSURL, "TENANT=acme"},
		need.Program(t, "go"), "run", ".", "order 1017")
	checkMiddleware(t, out)
}

// middlewareInNode installs the example's packages beside a copy of it: the tree
// stays as it is.
func middlewareInNode(t *testing.T, ready world.Ready) {
	node, npm := need.Program(t, "node"), need.Program(t, "npm")
	dir := t.TempDir()
	for _, name := range []string{"middleware.js", "package.json", "package-lock.json"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(read(t, examples+"/node/"+name)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := try(t, dir, nil, npm, "ci", "--no-audit", "--no-fund", "--prefer-offline", "--ignore-scripts"); err != nil {
		need.Missing(t, "the packages of "+examples+"/node, which npm could not install")
	}
	checkMiddleware(t, run(t, dir, []string{"NATS_URL=" + ready.NATSURL, "TENANT=globex"}, node, "middleware.js", "order 1018"))
}

// checkMiddleware looks at what an example printed: the job it submitted, and the
// same as it was looked up.
func checkMiddleware(t *testing.T, out string) {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if len(lines) != 2 {
		t.Fatalf("it printed %d lines:\n%s", len(lines), out)
	}
	var jobs [2]wire.Job
	for i, line := range lines {
		if err := json.Unmarshal([]byte(line), &jobs[i]); err != nil {
			t.Fatalf("%v in %s", err, line)
		}
		j := jobs[i]
		if j.Status != wire.StatusCompleted || !j.Complete || len(j.Receipts) != 2 ||
			j.Receipts[0].Kind != wire.ReceiptSeal || string(j.Receipts[1].PublicMetadata) != `{"source":"middleware"}` {
			t.Errorf("answer %d: %s", i, line)
		}
	}
	if jobs[0].JobID != jobs[1].JobID || jobs[0].Receipts[0].Certificate != jobs[1].Receipts[0].Certificate {
		t.Errorf("the job looked up is not the one submitted:\n%s", out)
	}
}
