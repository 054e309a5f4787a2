package daemon

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/verae/archive/blob"
	"github.com/verae/archive/bus"
	"github.com/verae/archive/edge"
	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/splitter"
	"github.com/verae/archive/wire"
)

func parse(t *testing.T, cfg any, environ []string, args ...string) error {
	t.Helper()
	var out bytes.Buffer
	_, err := Parse("program", "A program.", cfg, args, environ, &out)
	return err
}

func TestFlagWinsOverVariableOverDefault(t *testing.T) {
	var c Aggregator
	if err := parse(t, &c, []string{"WAIT_ARCHIVE_MS=700", "PUT_WAIT_MS=800", "RESUBMIT_WINDOW=1h"}, "--wait-archive-ms=900"); err != nil {
		t.Fatal(err)
	}
	if c.WaitArchive != 900 || c.PutWait != 800 || c.WaitJob != 25000 || c.ResubmitWindow != time.Hour || c.PutCopies != 2 {
		t.Errorf("parsed %+v", c)
	}
}

func TestEmptyVariableIsTheDefault(t *testing.T) {
	var c Aggregator
	if err := parse(t, &c, []string{"WAIT_ARCHIVE_MS="}); err != nil || c.WaitArchive != 1500 {
		t.Errorf("%d, %v", c.WaitArchive, err)
	}
}

// A setting with a slip in its name must not be silently without effect.
func TestSlipsInNamesStopTheStart(t *testing.T) {
	for line, want := range map[string]string{
		"wait_archive_ms=1":        "WAIT_ARCHIVE_MS",
		"WAIT_ARCHIV_MS=1":         "WAIT_ARCHIVE_MS",
		"WAIT_ARCHIVE_MSX=1":       "WAIT_ARCHIVE_MS",
		"WAIT_ARCHIVE-MS=1":        "WAIT_ARCHIVE_MS",
		"PUT_COPIE=1":              "PUT_COPIES",
		"ENROLL=open":              "ENROL",
		"VERAE_SOMETHING=1":        "VERAE_SOMETHING",
		"Data_Dir=x":               "DATA_DIR",
		"VERAE_APIKEY=secret-text": "VERAE_API_KEY",
	} {
		var c Aggregator
		err := parse(t, &c, []string{line})
		if !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", line, err)
		}
		if err != nil && strings.Contains(err.Error(), "secret-text") {
			t.Errorf("%s: the message shows the value: %v", line, err)
		}
	}
	var c Aggregator
	if err := parse(t, &c, []string{"HOME=/x", "PATH=/y", "LANG=C", "PWD=/z", "TERM=dumb", "no equals sign", "VERAE_URL=x"}); err != nil {
		t.Errorf("a plain environment: %v", err)
	}
}

func TestBadFlagIsTheUsersError(t *testing.T) {
	var c Aggregator
	for _, arg := range []string{"--no-such-flag", "--wait-archive-ms=soon", "--enrol=maybe", "--chain=other", "argument"} {
		if err := parse(t, &c, nil, arg); !fault.Is(err, fault.Invalid) {
			t.Errorf("%s: %v", arg, err)
		}
	}
	if err := parse(t, &c, []string{"PUT_COPIES=many"}); !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), "put-copies") {
		t.Errorf("PUT_COPIES=many: %v", err)
	}
}

func TestHelpNamesEveryVariable(t *testing.T) {
	for name, program := range map[string]func([]string, *bytes.Buffer) int{
		"archived":   func(a []string, b *bytes.Buffer) int { return ArchivedProgram.Main(a, b, b) },
		"aggregator": func(a []string, b *bytes.Buffer) int { return AggregatorProgram.Main(a, b, b) },
	} {
		var out bytes.Buffer
		if code := program([]string{"--help"}, &out); code != 0 {
			t.Errorf("%s --help ends with %d: %s", name, code, out.String())
		}
		for _, v := range Variables(Common{}) {
			if !strings.Contains(out.String(), v.Name) || !strings.Contains(out.String(), v.Flag) {
				t.Errorf("%s --help does not name %s and %s", name, v.Name, v.Flag)
			}
		}
	}
}

func TestEverySettingIsDocumented(t *testing.T) {
	seen := map[string]Variable{}
	for _, cfg := range []any{Archived{}, Aggregator{}} {
		for _, v := range Variables(cfg) {
			if v.Help == "" || v.Name == "" {
				t.Errorf("%+v says nothing", v)
			}
			if before, ok := seen[v.Name]; ok && before.Flag != v.Flag {
				t.Errorf("%s is %s here and %s there", v.Name, before.Flag, v.Flag)
			}
			seen[v.Name] = v
		}
	}
	if len(seen) < 25 {
		t.Errorf("only %d settings were found", len(seen))
	}
}

// Every number has an edge: the last value that works, and the first that does
// not and is named.
func TestValuesOutOfRangeAreNamed(t *testing.T) {
	archived := func(change func(*Archived)) error {
		c := Archived{ArchiveID: "archive-a"}
		if err := parse(t, &c, []string{"ARCHIVE_ID=archive-a"}); err != nil {
			t.Fatal(err)
		}
		change(&c)
		return c.Check()
	}
	aggregator := func(change func(*Aggregator)) error {
		var c Aggregator
		if err := parse(t, &c, nil); err != nil {
			t.Fatal(err)
		}
		change(&c)
		return c.Check()
	}
	for name, tc := range map[string]struct {
		field     string
		good, bad error
	}{
		"archive id":      {"ARCHIVE_ID", archived(func(c *Archived) { c.ArchiveID = strings.Repeat("a", 32) }), archived(func(c *Archived) { c.ArchiveID = strings.Repeat("a", 33) })},
		"archive id set":  {"ARCHIVE_ID", archived(func(*Archived) {}), archived(func(c *Archived) { c.ArchiveID = "" })},
		"error rate low":  {"BLOOM_ERROR_RATE", archived(func(c *Archived) { c.BloomErrorRate = 1e-6 }), archived(func(c *Archived) { c.BloomErrorRate = 9e-7 })},
		"error rate high": {"BLOOM_ERROR_RATE", archived(func(c *Archived) { c.BloomErrorRate = 0.5 }), archived(func(c *Archived) { c.BloomErrorRate = 0.51 })},
		"disk reserve":    {"DISK_RESERVE", archived(func(c *Archived) { c.DiskReserve = 1 << 62 }), archived(func(c *Archived) { c.DiskReserve = 1<<62 + 1 })},
		"its reserve":     {"DISK_RESERVE", aggregator(func(c *Aggregator) { c.DiskReserve = 0 }), aggregator(func(c *Aggregator) { c.DiskReserve = 1<<62 + 1 })},
		"reconcile rate":  {"RECONCILE_RECORDS_PER_S", archived(func(c *Archived) { c.ReconcileRate = 0 }), archived(func(c *Archived) { c.ReconcileRate = -1 })},
		"lease":           {"LEASE_MS", archived(func(c *Archived) { c.LeaseMS = wire.MaxLeaseMs }), archived(func(c *Archived) { c.LeaseMS = wire.MaxLeaseMs + 1 })},
		"upload idle":     {"UPLOAD_IDLE_S", archived(func(c *Archived) { c.UploadIdle = 1 }), archived(func(c *Archived) { c.UploadIdle = 0 })},
		"wait":            {"WAIT_ARCHIVE_MS", aggregator(func(c *Aggregator) { c.WaitArchive = 1 }), aggregator(func(c *Aggregator) { c.WaitArchive = 0 })},
		"late":            {"LATE_MS", aggregator(func(c *Aggregator) { c.Late = 0 }), aggregator(func(c *Aggregator) { c.Late = -1 })},
		"late, long":      {"LATE_MS", aggregator(func(c *Aggregator) { c.Late = maxLate }), aggregator(func(c *Aggregator) { c.Late = maxLate + 1 })},
		"copies":          {"PUT_MIN_COPIES", aggregator(func(c *Aggregator) { c.PutMinCopies = 2 }), aggregator(func(c *Aggregator) { c.PutMinCopies = 3 })},
		"metadata":        {"MAX_METADATA", aggregator(func(c *Aggregator) { c.MaxMetadata = 256 << 10 }), aggregator(func(c *Aggregator) { c.MaxMetadata = 256<<10 + 1 })},
		"window":          {"RESUBMIT_WINDOW", aggregator(func(c *Aggregator) { c.ResubmitWindow = 0 }), aggregator(func(c *Aggregator) { c.ResubmitWindow = -1 })},
	} {
		if tc.good != nil {
			t.Errorf("%s: the last good value is refused: %v", name, tc.good)
		}
		if !fault.Is(tc.bad, fault.Invalid) || fault.FieldOf(tc.bad) != tc.field || !strings.Contains(tc.bad.Error(), tc.field) {
			t.Errorf("%s: %v", name, tc.bad)
		}
	}
}

// The defaults that --help tells are those of the packages that apply them.
func TestDefaultsAreThoseOfTheirPackages(t *testing.T) {
	var c Aggregator
	if err := parse(t, &c, nil); err != nil {
		t.Fatal(err)
	}
	if got, want := c.limits(), splitter.DefaultLimits(); got != want {
		t.Errorf("limits of bodies: %+v, want %+v", got, want)
	}
	got, want := c.edgeLimits(), edge.DefaultLimits()
	if got.HeaderBytes != want.HeaderBytes || got.InFlight != want.InFlight || got.Uploads != want.Uploads {
		t.Errorf("limits of the edge: %+v, want %+v", got, want)
	}
	var a Archived
	if err := parse(t, &a, []string{"ARCHIVE_ID=archive-a"}); err != nil {
		t.Fatal(err)
	}
	if a.MaxFile != blob.DefaultMaxFileSize || a.PutCopies != bus.DefaultCopies || c.PutCopies != bus.DefaultCopies || c.PutMinCopies != bus.DefaultMinCopies {
		t.Errorf("%+v %+v", a, c)
	}
}

func TestSplitAddr(t *testing.T) {
	if host, port, err := splitAddr("NATS_LISTEN", "127.0.0.1:0"); err != nil || host != "127.0.0.1" || port != 0 {
		t.Errorf("%s %d %v", host, port, err)
	}
	for _, bad := range []string{"", "127.0.0.1", ":4222", "127.0.0.1:x", "127.0.0.1:65536", "127.0.0.1:-1"} {
		if _, _, err := splitAddr("NATS_LISTEN", bad); fault.FieldOf(err) != "NATS_LISTEN" {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

func TestLoopback(t *testing.T) {
	for addr, want := range map[string]bool{"127.0.0.1:1": true, "[::1]:1": true, "localhost:1": true, "0.0.0.0:1": false, "10.0.0.1:1": false, "": false} {
		if got := loopback(addr); got != want {
			t.Errorf("loopback(%q) = %v", addr, got)
		}
	}
}

func TestOneEdit(t *testing.T) {
	for _, tc := range []struct {
		a, b string
		near bool
	}{
		{"ENROL", "ENROLL", true}, {"ENROL", "ENRO", false}, {"CHAIN", "CHAIX", true}, {"CHAIN", "CHIAN", false},
		{"CHAIN", "XCHAIN", true}, {"CHAIN", "CHAINXX", false}, {"JOBS", "JOB", false}, {"CHAIN", "CHAIN", false},
	} {
		if got := oneEdit(tc.a, tc.b); got != tc.near {
			t.Errorf("oneEdit(%s, %s) = %v", tc.a, tc.b, got)
		}
	}
}

// A directory appears whole or not at all.
func TestCreateIsAllOrNothing(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "deep", "node")
	boom := errors.New("boom")
	err := create(dir, func(half string) error {
		if err := os.WriteFile(filepath.Join(half, "part"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		return boom
	})
	if !errors.Is(err, boom) {
		t.Fatalf("create says %v", err)
	}
	left, err := os.ReadDir(filepath.Dir(dir))
	if err != nil || len(left) != 0 {
		t.Errorf("a failed create left %v, %v", left, err)
	}
	// What a crash left half done is replaced.
	if err := os.MkdirAll(dir+".incomplete/old", 0o700); err != nil {
		t.Fatal(err)
	}
	if err := create(dir, func(half string) error { return os.WriteFile(filepath.Join(half, "part"), nil, 0o600) }); err != nil {
		t.Fatal(err)
	}
	if there, err := exists(filepath.Join(dir, "part")); !there || err != nil {
		t.Errorf("%v, %v", there, err)
	}
	if there, err := exists(filepath.Join(dir, "old")); there || err != nil {
		t.Errorf("the half-done old one shows: %v, %v", there, err)
	}
	if err := create(dir, func(string) error { return nil }); !fault.Is(err, fault.Conflict) {
		t.Errorf("create over what is there: %v", err)
	}
}

// Programs do not start without their data, with another's, or twice on one
// directory.
func TestUnsafeStartsAreRefused(t *testing.T) {
	dir := t.TempDir()
	var out bytes.Buffer
	main := func(args ...string) (int, string) {
		out.Reset()
		code := ArchivedProgram.Main(args, &out, &out)
		return code, out.String()
	}
	data := "--data-dir=" + filepath.Join(dir, "a")
	if code, text := main(data, "--archive-id=archive-a", "--nats-url=nats://127.0.0.1:1"); code != 3 || !strings.Contains(text, "archived init") {
		t.Errorf("without data: %d %s", code, text)
	}
	if code, text := main("init", data, "--archive-id=archive-a"); code != 0 {
		t.Fatalf("init: %d %s", code, text)
	}
	if code, text := main("init", data, "--archive-id=archive-a"); code != 78 || !strings.Contains(text, "there already") {
		t.Errorf("init again: %d %s", code, text)
	}
	if code, text := main(data, "--archive-id=archive-b", "--nats-url=nats://127.0.0.1:1"); code != 78 || !strings.Contains(text, "archive-a") {
		t.Errorf("with another id: %d %s", code, text)
	}
	if code, text := main(data, "--archive-id=archive-a"); code != 2 || !strings.Contains(text, "NATS_URL") {
		t.Errorf("without NATS_URL: %d %s", code, text)
	}
	out.Reset()
	if code := AggregatorProgram.Main([]string{data}, &out, &out); code != 78 || !strings.Contains(out.String(), "of archived, not of aggregator") {
		t.Errorf("an archive's directory as aggregator's: %d %s", code, out.String())
	}
}
