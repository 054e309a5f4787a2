package main

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/verae/archive/harness/world"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"verae": main})
}

// TestScripts runs the command line against a whole system. Every script has
// VERAE_URL and the keys of two tenants, ACME_KEY and GLOBEX_KEY, and a
// directory of its own.
func TestScripts(t *testing.T) {
	w, err := world.Start(t.Context(), world.Config{Dir: t.TempDir(), InProcess: true, Env: []string{"WAIT_ARCHIVE_MS=500", "NATS_URL="}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		ctx, stop := context.WithTimeout(context.Background(), time.Minute)
		defer stop()
		if err := w.Stop(ctx); err != nil {
			t.Error(err)
		}
	}()
	ready := w.Ready()
	t.Run("scripts", func(t *testing.T) {
		testscript.Run(t, testscript.Params{
			Dir: "testdata",
			Setup: func(env *testscript.Env) error {
				env.Setenv("VERAE_URL", ready.HTTPURL)
				env.Setenv("ACME_KEY", ready.APIKeys["acme"])
				env.Setenv("GLOBEX_KEY", ready.APIKeys["globex"])
				env.Setenv("VERAE_API_KEY", ready.APIKeys["acme"])
				return nil
			},
			Cmds: map[string]func(*testscript.TestScript, bool, []string){"exits": exits},
		})
	})
	t.Run("get goes on", func(t *testing.T) { getGoesOn(t, ready) })
}

// exits runs a command and checks its exit code: exits CODE COMMAND...
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE COMMAND...")
	}
	err := ts.Exec(args[1], args[2:]...)
	got := "0"
	if err != nil {
		got = exitCode(err)
	}
	if got != args[0] {
		ts.Fatalf("exit code %s, want %s: %v", got, args[0], err)
	}
}

func TestKeyComesFromFileOrEnvironment(t *testing.T) {
	path := t.TempDir() + "/key"
	if err := os.WriteFile(path, []byte("  from-file\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		file string
		env  []string
		want string
	}{
		{path, []string{"VERAE_API_KEY=from-env"}, "from-file"},
		{"", []string{"VERAE_API_KEY=from-env"}, "from-env"},
		{"", nil, ""},
	} {
		if got, err := apiKey(tc.file, tc.env); err != nil || got != tc.want {
			t.Errorf("apiKey(%q, %v) = %q, %v", tc.file, tc.env, got, err)
		}
	}
	if _, err := apiKey(path+".missing", nil); err == nil {
		t.Error("a key file that is not there is no error")
	}
}
