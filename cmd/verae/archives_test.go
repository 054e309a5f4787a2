package main

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/verae/archive/internal/serve"
)

// A list of lost records that may grow is not passed off as the whole one.
func TestLostRecordsSayWhetherTheyAreAll(t *testing.T) {
	const (
		fine    = `{"archiveId":"archive-a","state":"up"}`
		behind  = `{"archiveId":"archive-a","state":"lost-records","lost":{"reason":"BEHIND","at":"2026-11-30T12:00:00Z"}}`
		stubs   = `{"archiveId":"archive-a","state":"up","lostRecords":3}`
		other   = `{"archiveId":"archive-b","state":"lost-records","lost":{"reason":"BEHIND","at":"2026-11-30T12:00:00Z"}}`
		none    = ``
		running = `"accounting":{"startedAt":"2026-11-30T12:00:01Z"},`
		done    = `"accounting":{"startedAt":"2026-11-30T12:00:01Z","doneAt":"2026-11-30T12:00:02Z"},`
		before  = `"accounting":{"startedAt":"2026-11-30T11:00:01Z","doneAt":"2026-11-30T11:00:02Z"},`
	)
	for name, tc := range map[string]struct {
		archive, accounting string
		code                int
		says                string
	}{
		"nothing happened":     {fine, none, serve.ExitOK, "nothing is known to be lost"},
		"another lost":         {other, none, serve.ExitOK, "nothing is known to be lost"},
		"not begun":            {behind, none, serve.ExitPending, "not accounted for yet"},
		"not begun with stubs": {stubs, none, serve.ExitPending, "not accounted for yet"},
		"not begun again":      {behind, before, serve.ExitPending, "not accounted for yet"},
		"under way":            {behind, running, serve.ExitPending, "is being accounted for"},
		"ended":                {behind, done, serve.ExitOK, "was accounted for at"},
		"ended long ago":       {fine, before, serve.ExitOK, "was accounted for at"},
	} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			answer := `{"archives":[` + tc.archive + `]}`
			if strings.HasSuffix(r.URL.Path, "/lost") {
				answer = `{"archiveId":"archive-a",` + tc.accounting + `"records":[]}`
			}
			if _, err := io.WriteString(w, answer); err != nil {
				t.Error(err)
			}
		}))
		for _, json := range []bool{false, true} {
			args := []string{"--url", s.URL, "archives", "lost", "archive-a"}
			if json {
				args = append(args, "--json")
			}
			var out, diagnostics bytes.Buffer
			if code := run(args, []string{"VERAE_API_KEY=key"}, &out, &diagnostics); code != tc.code {
				t.Errorf("%s, json %v: exit code %d, want %d: %s", name, json, code, tc.code, diagnostics.String())
			}
			if strings.Contains(out.String(), tc.says) == json {
				t.Errorf("%s, json %v: %s", name, json, out.String())
			}
		}
		s.Close()
	}
}
