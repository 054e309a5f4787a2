package docs_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"mime/multipart"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/verae/archive/client"
	"github.com/verae/archive/harness/world"
	"github.com/verae/archive/internal/need"
)

// What the documents say of a running system is tried on one.
func TestTheRunningSystem(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("NATS_URL", "") // of whoever runs the test
	// A loaded machine must not change the answers: both copies are waited for,
	// and all archives.
	w, err := world.Start(t.Context(), world.Config{Dir: dir, InProcess: true, Env: []string{"PUT_MIN_COPIES=2", "PUT_WAIT_MS=60000", "WAIT_ARCHIVE_MS=20000"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, stop := context.WithTimeout(context.Background(), time.Minute)
		defer stop()
		if err := w.Stop(ctx); err != nil {
			t.Error(err)
		}
	})
	ready := w.Ready()
	t.Run("the worked request", func(t *testing.T) { workedRequest(t, ready) })
	t.Run("middleware in Go", func(t *testing.T) { middlewareInGo(t, ready) })
	t.Run("middleware in Node", func(t *testing.T) { middlewareInNode(t, ready) })
	t.Run("the metrics", func(t *testing.T) {
		useFiles(t, w.Client("acme"))
		generated(t, operations, "metrics of an aggregator", metricsOf(t, scrape(t, dir, world.Aggregator)))
		generated(t, operations, "metrics of an archive", metricsOf(t, scrape(t, dir, string(ready.Archives[0].ID))))
	})
}

// passing is what differs from run to run in an answer.
var passing = []struct {
	pattern *regexp.Regexp
	with    string
}{
	{regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}`), "UUID"},
	{regexp.MustCompile(`20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z`), "TIME"},
	{regexp.MustCompile(`"(recordId)": ?"[0-9a-f]{64}"`), `"$1": "ID"`},
	{regexp.MustCompile(`\\nextra [A-Za-z0-9+/=]+\\n`), `\nextra LEAF\n`},
	{regexp.MustCompile(`\\n1\\n[A-Za-z0-9+/=]{44}\\n`), `\n1\nROOT\n`},
	{regexp.MustCompile(`— verae\.local/ledger [A-Za-z0-9+/=]+\\n`), `— verae.local/ledger SIGNATURE\n`},
}

// lasting is an answer without what differs from run to run.
func lasting(text string) string {
	for _, p := range passing {
		text = p.pattern.ReplaceAllString(text, p.with)
	}
	return text
}

// captured holds an answer in a document to one of the running system. What
// differs from run to run may differ.
func captured(t *testing.T, document, name, live string) {
	t.Helper()
	_, rest, _ := strings.Cut(read(t, document), "<!-- begin "+name+" -->\n```")
	_, rest, _ = strings.Cut(rest, "\n")
	have, _, _ := strings.Cut(rest, "\n```\n")
	if diff := cmp.Diff(lasting(have), lasting(live)); diff == "" {
		return
	} else if !*update {
		t.Errorf("%s, %q (-document +system):\n%s", document, name, diff)
		return
	}
	language := "text"
	if strings.HasPrefix(live, "{") {
		language = "json"
	}
	generated(t, document, name, "```"+language+"\n"+live+"\n```")
}

var (
	formField = regexp.MustCompile(`-F '([^=]+)=([^']*)'`)
	digest    = regexp.MustCompile(`verae lookup ([0-9a-f]{64})`)
)

// workedRequest sends the README's request, and looks it up as it says there.
func workedRequest(t *testing.T, ready world.Ready) {
	_, section, _ := strings.Cut(read(t, "README.md"), "## A request and its answer\n")
	fields := formField.FindAllStringSubmatch(section, -1)
	if len(fields) != 3 {
		t.Fatalf("the README's request has %d fields", len(fields))
	}
	var body bytes.Buffer
	form := multipart.NewWriter(&body)
	for _, f := range fields {
		if err := form.WriteField(f[1], f[2]); err != nil {
			t.Fatal(err)
		}
	}
	if err := form.Close(); err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, ready.HTTPURL+"/zapier/v1/timestamp/wait", &body)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", form.FormDataContentType())
	req.Header.Set("X-Api-Key", ready.APIKeys["acme"])
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s, %v", resp.Status, answer, err)
	}
	var pretty bytes.Buffer
	if err := json.Indent(&pretty, answer, "", "  "); err != nil {
		t.Fatal(err)
	}
	captured(t, "README.md", "answer", pretty.String())

	subject := digest.FindStringSubmatch(section)
	if subject == nil {
		t.Fatal("the README looks nothing up")
	}
	out := run(t, root, []string{"VERAE_URL=" + ready.HTTPURL, "VERAE_API_KEY=" + ready.APIKeys["acme"]},
		need.Program(t, "go"), "run", "./cmd/verae", "lookup", subject[1])
	captured(t, "README.md", "lookup", strings.TrimRight(out, "\n"))
}

// run runs a program and returns what it wrote to standard output.
func run(t *testing.T, dir string, env []string, name string, args ...string) string {
	t.Helper()
	out, err := try(t, dir, env, name, args...)
	if err != nil {
		t.Fatalf("%s %q: %v", name, args, err)
	}
	return out
}

func try(t *testing.T, dir string, env []string, name string, args ...string) (string, error) {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), 3*time.Minute)
	defer stop()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Env = dir, append(append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off"), env...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if stderr.Len() > 0 {
		t.Logf("%s %q: %s", filepath.Base(name), args, stderr.String())
	}
	return string(out), err
}

// useFiles stores a file and reads it back, so that what counts files is there to
// be seen. The subject decides which archives get it: the first is one of them.
func useFiles(t *testing.T, c *client.Client) {
	t.Helper()
	content := strings.Repeat("a file ", 100_000)
	outcome, err := c.Stamp(t.Context(), client.Submission{Data: []byte("hello archive"), IncludeAttached: true, Files: []client.File{{
		Name: "file.txt", Open: func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(content)), nil },
	}}})
	if err != nil || outcome.Job == nil || len(outcome.Job.Files) != 1 || outcome.Job.Files[0].ArchiveID != "archive-a" {
		t.Fatalf("%+v, %v", outcome.Job, err)
	}
	body, _, err := c.File(t.Context(), outcome.Job.Files[0].CID)
	if err != nil {
		t.Fatal(err)
	}
	defer body.Close()
	if back, err := io.ReadAll(body); err != nil || string(back) != content {
		t.Errorf("%d of %d bytes came back, %v", len(back), len(content), err)
	}
}

var adminAddr = regexp.MustCompile(`"the admin listener is open".*"addr":"([^"]+)"`)

// scrape returns the metrics of a program of the world in dir, which tells its
// admin address in its log.
func scrape(t *testing.T, dir, program string) string {
	t.Helper()
	log, err := os.ReadFile(filepath.Join(dir, program+".log"))
	if err != nil {
		t.Fatal(err)
	}
	m := adminAddr.FindSubmatch(log)
	if m == nil {
		t.Fatalf("%s tells no admin address:\n%s", program, log)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+string(m[1])+"/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s, %v", resp.Status, err)
	}
	return string(body)
}
