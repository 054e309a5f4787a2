package serve_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/internal/serve"
)

func env(kv map[string]string) func(string) string {
	return func(k string) string { return kv[k] }
}

func TestLogLevelComesFromTheEnvironment(t *testing.T) {
	for _, c := range []struct {
		text string
		want slog.Level
	}{{"", slog.LevelInfo}, {"info", slog.LevelInfo}, {"DEBUG", slog.LevelDebug}, {" warn ", slog.LevelWarn}, {"error", slog.LevelError}} {
		_, level, err := serve.NewLogger(new(bytes.Buffer), env(map[string]string{"LOG_LEVEL": c.text}))
		if err != nil || level.Level() != c.want {
			t.Errorf("LOG_LEVEL=%q: level %v, error %v, want %v", c.text, level, err, c.want)
		}
	}
	_, _, err := serve.NewLogger(new(bytes.Buffer), env(map[string]string{"LOG_LEVEL": "loud"}))
	if !fault.Is(err, fault.Invalid) || fault.FieldOf(err) != "LOG_LEVEL" || !strings.Contains(err.Error(), `"loud"`) {
		t.Errorf("LOG_LEVEL=loud: %v", err)
	}
}

func TestLogIsJSONWhenStderrIsNoTerminal(t *testing.T) {
	var out bytes.Buffer
	log, level, err := serve.NewLogger(&out, env(nil))
	if err != nil {
		t.Fatal(err)
	}
	ctx := serve.With(t.Context(), slog.String("request", "r-1"))
	a := serve.With(ctx, slog.String("job", "a"))
	b := serve.With(ctx, slog.String("job", "b"))
	log.DebugContext(a, "hidden")
	log.With("part", "edge").InfoContext(a, "one")
	log.WithGroup("g").InfoContext(b, "two", "n", 2)
	level.Set(slog.LevelDebug)
	log.Debug("three")

	var got []map[string]any
	for line := range strings.Lines(out.String()) {
		m := map[string]any{}
		if err := json.Unmarshal([]byte(line), &m); err != nil {
			t.Fatalf("line %q: %v", line, err)
		}
		delete(m, "time")
		got = append(got, m)
	}
	want := []map[string]any{
		{"level": "INFO", "msg": "one", "part": "edge", "request": "r-1", "job": "a"},
		{"level": "INFO", "msg": "two", "g": map[string]any{"n": 2.0, "request": "r-1", "job": "b"}},
		{"level": "DEBUG", "msg": "three"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("log (-want +got):\n%s", diff)
	}
}

func TestLogIsTextOnATerminal(t *testing.T) {
	var out bytes.Buffer
	log := slog.New(serve.NewHandler(&out, true, slog.LevelInfo))
	log.InfoContext(serve.With(t.Context(), slog.String("request", "r-1")), "one", "token", canary)
	if got := out.String(); !strings.HasSuffix(got, "level=INFO msg=one token=[redacted] request=r-1\n") {
		t.Errorf("text log %q", got)
	}
}

// canary must never reach the log.
const canary = "canary-3f9a"

func TestSecretsNeverReachTheLog(t *testing.T) {
	var out bytes.Buffer
	log, _, err := serve.NewLogger(&out, env(nil))
	if err != nil {
		t.Fatal(err)
	}
	s := serve.Secret(canary)
	h := http.Header{"Authorization": {"Bearer " + canary}, "X-Api-Key": {canary}, "Accept": {"text/plain"}}
	log.Info("by type", "tenant", s, "all", []any{s}, "fmt", fmt.Sprintf("%s %v %+v %#v %q", s, s, s, s, s))
	log.Info("by name", "apiKey", canary, "api_key", canary, "X-API-Key", canary, "Authorization", canary,
		"token", canary, "private-metadata", []byte(canary), "plaintext", canary, "body", map[string]string{"a": canary})
	log.Info("in a group", slog.Group("cookie", "value", canary))
	log.Info("headers", "header", h)
	log.With("secret", canary).WithGroup("token").Info("with", "x", canary)
	if strings.Contains(out.String(), canary) {
		t.Errorf("a secret is in the log:\n%s", out.String())
	}
	for _, want := range []string{`"apiKey":"[redacted]"`, `"Accept":["text/plain"]`, `"value":"[redacted]"`} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%s is missing in the log:\n%s", want, out.String())
		}
	}
	if h.Get("X-Api-Key") != canary {
		t.Error("logging a header changed it")
	}
	if data, err := json.Marshal(struct{ S serve.Secret }{s}); err != nil || strings.Contains(string(data), canary) {
		t.Errorf("json of a secret: %s, %v", data, err)
	}
}
