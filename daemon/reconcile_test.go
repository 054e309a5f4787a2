package daemon

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/internal/serve"
	"github.com/verae/archive/wire"
)

// orderly is an archive that reconciles as a test tells it to.
type orderly struct {
	steps   []any // wire.ReconcileProgress or error
	started int
}

func (a *orderly) Reconcile(_ context.Context, _ wire.ArchiveID, start bool) (wire.ReconcileProgress, error) {
	if start {
		a.started++
	}
	step := a.steps[0]
	if len(a.steps) > 1 {
		a.steps = a.steps[1:]
	}
	if err, ok := step.(error); ok {
		return wire.ReconcileProgress{}, err
	}
	return step.(wire.ReconcileProgress), nil
}

func TestReconcileIsFollowedToItsEnd(t *testing.T) {
	away := fault.New(fault.Transient, "ARCHIVE_UNREACHABLE", "nobody listens")
	half := wire.ReconcileProgress{ArchiveID: "archive-a", Running: true, Seq: 500, End: 1000, Missing: 3, Copied: 2}
	done := wire.ReconcileProgress{ArchiveID: "archive-a", Seq: 1000, End: 1000, Missing: 3, Copied: 3, DoneAt: "2026-11-30T14:02:11.000000000Z"}
	short := done
	short.Copied, short.Failed, short.Problem = 2, 1, &wire.Problem{Code: "NO_ARCHIVE", Kind: "transient", Message: "nobody has room"}
	broken := wire.ReconcileProgress{ArchiveID: "archive-a", Seq: 500, End: 1000, Problem: &wire.Problem{Code: "CORRUPT", Kind: "corrupt", Message: "damaged"}}
	tests := []struct {
		name  string
		steps []any
		code  int
		says  []string
	}{
		{"all copied", []any{half, half, done}, serve.ExitOK, []string{"500 of 1000, 3 with too few copies, 2 copies made", "1000 of 1000", "3 copies made, 0 failed"}},
		{"the archive starts anew meanwhile", []any{half, away, away, half, done}, serve.ExitOK, []string{"1000 of 1000"}},
		{"a copy could not be made", []any{half, short}, serve.ExitFailed, []string{"1 failed: nobody has room"}},
		{"it ended early", []any{half, broken}, serve.ExitFailed, []string{"damaged"}},
		{"it can not be reached", []any{away}, serve.ExitUnreachable, nil},
		{"it never comes back", []any{half, away}, serve.ExitUnreachable, []string{"500 of 1000"}},
		{"it refuses", []any{half, fault.New(fault.Denied, "X", "no")}, serve.ExitDenied, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var out bytes.Buffer
				a := &orderly{steps: tt.steps}
				err := followReconcile(t.Context(), a, "archive-a", &out)
				if got := serve.ServerExitCode(err); got != tt.code {
					t.Errorf("exit code %d, want %d: %v", got, tt.code, err)
				}
				if a.started != 1 {
					t.Errorf("started %d times", a.started)
				}
				for _, text := range tt.says {
					if !strings.Contains(out.String(), text) {
						t.Errorf("it does not say %q:\n%s", text, out.String())
					}
				}
			})
		})
	}
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		if err := followReconcile(ctx, &orderly{steps: []any{half}}, "archive-a", new(bytes.Buffer)); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a signal: %v", err)
		}
	})
}

// What runs until the stack closes it ends before what is below it.
func TestPartsEndBeforeTheirStores(t *testing.T) {
	var order []string
	stack := &serve.Stack{}
	push := func(name string) {
		if err := stack.Push(name, time.Minute, func(context.Context) error { order = append(order, name); return nil }); err != nil {
			t.Fatal(err)
		}
	}
	push("store")
	if err := runUntilClosed(stack, "part", func(ctx context.Context) error { <-ctx.Done(); order = append(order, "part"); return nil }); err != nil {
		t.Fatal(err)
	}
	if err := stack.Close(); err != nil {
		t.Fatal(err)
	}
	if strings.Join(order, " ") != "part store" {
		t.Errorf("ended in the order %v", order)
	}
}
