package daemon

import (
	"bytes"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/verae/archive/archive"
	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/internal/serve"
)

func TestQueryModes(t *testing.T) {
	for mode, want := range map[string]int{"broadcast": 0, "directed": 1, "auto": 17} {
		var c Aggregator
		if err := parse(t, &c, []string{"QUERY_MODE=" + mode}); err != nil || c.direct() != want {
			t.Errorf("%s: %d, %v", mode, c.direct(), err)
		}
	}
	if c := (Aggregator{MirrorMaxBytes: 77}); c.mirrorBytes() != 77 {
		t.Errorf("MIRROR_MAX_BYTES is not heard: %d", c.mirrorBytes())
	}
}

// TestMirrorsAreKeptWithTheFleetsKey: an aggregator with the key mirrors, one that is
// told not to does not, one without it says what that costs, and one with a key that
// others can read does not start.
func TestMirrorsAreKeptWithTheFleetsKey(t *testing.T) {
	for name, c := range map[string]struct {
		key     string
		mode    os.FileMode
		mirrors string
		kept    bool
		says    string
		refused bool
	}{
		"with the key":        {key: archive.NewFilterKey(), mode: 0o600, mirrors: "on", kept: true},
		"turned off":          {key: archive.NewFilterKey(), mode: 0o600, mirrors: "off"},
		"without the key":     {mirrors: "on", says: "set FILTER_KEY_FILE"},
		"a key for everybody": {key: archive.NewFilterKey(), mode: 0o644, mirrors: "on", refused: true},
	} {
		t.Run(name, func(t *testing.T) {
			a := newAggregated(t)
			args := []string{"--data-dir", a.dir, "--guard-file", a.guard, "--http-addr", "127.0.0.1:0", "--nats-listen", "127.0.0.1:0", "--ready-file", filepath.Join(t.TempDir(), "ready"), "--mirrors", c.mirrors}
			if c.key != "" {
				path := filepath.Join(t.TempDir(), "filter.key")
				if err := os.WriteFile(path, []byte(c.key), c.mode); err != nil {
					t.Fatal(err)
				}
				args = append(args, "--filter-key-file", path)
			}
			var cfg Aggregator
			if _, err := Parse("aggregator", "", &cfg, args, nil, io.Discard); err != nil {
				t.Fatal(err)
			}
			var log bytes.Buffer
			stack := &serve.Stack{Log: slog.New(slog.DiscardHandler)}
			p := &aggregator{Aggregator: cfg, log: slog.New(slog.NewTextHandler(&log, nil)), level: new(slog.LevelVar), stack: stack, asked: t.Context()}
			err := p.start()
			if closing := stack.Close(); closing != nil {
				t.Error(closing)
			}
			if c.refused {
				if !fault.Is(err, fault.Invalid) || fault.CodeOf(err) != "FILTER_KEY" {
					t.Fatalf("it starts: %v", err)
				}
				return
			}
			if err != nil || (p.gatherer.Mirrors != nil) != c.kept || c.says != "" && !strings.Contains(log.String(), c.says) {
				t.Errorf("%v; mirrors: %v; it says %s", err, p.gatherer.Mirrors, log.String())
			}
			if c.says == "" && strings.Contains(log.String(), "FILTER_KEY_FILE") {
				t.Errorf("it says %s", log.String())
			}
		})
	}
}
