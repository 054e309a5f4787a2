package serve_test

import (
	"errors"
	"fmt"
	"runtime/debug"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/internal/serve"
)

func TestExitCodeFollowsTheFaultKind(t *testing.T) {
	for _, c := range []struct {
		err            error
		client, server int
	}{
		{nil, 0, 0},
		{errors.New("who knows"), 1, 1},
		{fault.New(fault.Corrupt, "", "bad"), 1, 65},
		{fault.New(fault.Conflict, "", "bad"), 1, 78},
		{fault.New(fault.Invalid, "", "bad"), 2, 2},
		{fault.New(fault.NotFound, "", "bad"), 3, 3},
		{fmt.Errorf("x: %w", &serve.ExitError{Code: serve.ExitPending}), 4, 4},
		{fault.New(fault.Transient, "", "bad"), 5, 5},
		{fault.New(fault.Transient, "DISK_FULL", "bad"), 5, 70},
		{fmt.Errorf("x: %w", fault.New(fault.Denied, "", "bad")), 6, 6},
		{&serve.ExitError{Code: 1, Err: fault.New(fault.Denied, "", "bad")}, 1, 1},
		{&serve.ExitError{Code: 1, Err: fault.New(fault.Corrupt, "", "bad")}, 1, 1},
	} {
		if got := serve.ExitCode(c.err); got != c.client {
			t.Errorf("ExitCode(%v) = %d, want %d", c.err, got, c.client)
		}
		if got := serve.ServerExitCode(c.err); got != c.server {
			t.Errorf("ServerExitCode(%v) = %d, want %d", c.err, got, c.server)
		}
	}
	inner := errors.New("inner")
	if e := (&serve.ExitError{Code: 1, Err: inner}); !errors.Is(e, inner) || e.Error() != "inner" {
		t.Errorf("ExitError hides %v", e)
	}
}

func TestBuildOfReadsWhatTheLinkerLeft(t *testing.T) {
	info := &debug.BuildInfo{GoVersion: "go1.26.8", Settings: []debug.BuildSetting{
		{Key: "vcs.revision", Value: "0123456789abcdef0123"}, {Key: "vcs.modified", Value: "true"}}}
	info.Main.Version = "(devel)"
	got := serve.BuildOf(info)
	want := serve.Build{Version: "devel", Revision: "0123456789abcdef0123", Modified: true, Go: "go1.26.8"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if s := got.String(); s != "devel 0123456789ab (modified) go1.26.8" {
		t.Errorf("String = %q", s)
	}
	if b := serve.BuildOf(&debug.BuildInfo{}); b.Version != "devel" {
		t.Errorf("empty build info gives %+v", b)
	}
	if serve.Version().Version == "" {
		t.Error("this test binary has no version")
	}
}
