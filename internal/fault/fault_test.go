package fault

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"time"
)

// The names travel between processes of different versions: they are frozen.
func TestKindNamesAreFrozen(t *testing.T) {
	frozen := map[Kind]string{
		Internal: "internal", Invalid: "invalid", Denied: "denied", NotFound: "not-found",
		Conflict: "conflict", Transient: "transient", Corrupt: "corrupt",
	}
	if len(frozen) != len(names) {
		t.Errorf("%d kinds, %d frozen names", len(names), len(frozen))
	}
	for k, name := range frozen {
		if k.String() != name || ParseKind(name) != k {
			t.Errorf("kind %d is %q, %q parses as %v", k, k, name, ParseKind(name))
		}
	}
}

func TestUnknownKindsBlameNobody(t *testing.T) {
	for _, name := range []string{"", "Invalid", "INVALID", "invalid ", "teapot"} {
		if k := ParseKind(name); k != Internal {
			t.Errorf("%q parses as %v", name, k)
		}
	}
	if Kind(200).String() != "internal" {
		t.Errorf("kind 200 is %q", Kind(200))
	}
}

// Law 11: only an explicit Invalid is the sender's fault.
func TestNothingUnknownBlamesTheSender(t *testing.T) {
	tests := []struct {
		name string
		err  error
		want Kind
	}{
		{"no error", nil, Internal},
		{"plain error", io.ErrUnexpectedEOF, Internal},
		{"zero fault", &Error{}, Internal},
		{"zero fault around a plain error", &Error{Err: io.EOF}, Internal},
		{"explicit", New(Invalid, "X", "bad"), Invalid},
		{"explicit below", fmt.Errorf("edge: %w", New(Invalid, "X", "bad")), Invalid},
		{"outermost wins", Wrap(Internal, New(Invalid, "X", "bad")), Internal},
		{"outermost wins the other way", Wrap(Denied, New(NotFound, "X", "gone")), Denied},
		{"deadline", fmt.Errorf("ask: %w", context.DeadlineExceeded), Transient},
		{"cancelled", context.Canceled, Transient},
		{"deadline inside a fault", Wrap(Corrupt, context.DeadlineExceeded), Corrupt},
		{"joined", errors.Join(io.EOF, New(Conflict, "X", "twice")), Conflict},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := KindOf(tt.err); got != tt.want {
				t.Errorf("KindOf = %v, want %v", got, tt.want)
			}
			for _, k := range []Kind{Internal, Invalid, Denied, NotFound, Conflict, Transient, Corrupt} {
				if got, want := Is(tt.err, k), tt.err != nil && k == tt.want; got != want {
					t.Errorf("Is(%v) = %v, want %v", k, got, want)
				}
			}
		})
	}
}

func TestWrapKeepsWhatACallerActsOn(t *testing.T) {
	inner := New(Invalid, "DIGEST_MISMATCH", "sha256 and data differ").InField("sha256").After(3 * time.Second)
	err := Wrap(Conflict, fmt.Errorf("accept: %w", inner))
	if KindOf(err) != Conflict || CodeOf(err) != "DIGEST_MISMATCH" || FieldOf(err) != "sha256" || RetryAfter(err) != 3*time.Second {
		t.Errorf("got %v %q %q %v", KindOf(err), CodeOf(err), FieldOf(err), RetryAfter(err))
	}
	if err.Error() != "accept: sha256 and data differ" || !errors.Is(err, inner) {
		t.Errorf("got %q", err)
	}
}

func TestWrapOfNothingIsNothing(t *testing.T) {
	if err := Wrap(Invalid, nil); err != nil {
		t.Errorf("got %v", err)
	}
}

func TestPlainErrorsCarryNothing(t *testing.T) {
	for _, err := range []error{nil, io.EOF} {
		if CodeOf(err) != "" || FieldOf(err) != "" || RetryAfter(err) != 0 {
			t.Errorf("%v: %q %q %v", err, CodeOf(err), FieldOf(err), RetryAfter(err))
		}
	}
}

func TestNewWrapsItsCause(t *testing.T) {
	err := New(Transient, "NO_ARCHIVE", "put: %w", io.ErrClosedPipe)
	if !errors.Is(err, io.ErrClosedPipe) || err.Error() != "put: io: read/write on closed pipe" {
		t.Errorf("got %q", err)
	}
}

func TestInFieldAndAfterLeaveTheOriginalAlone(t *testing.T) {
	base := New(Invalid, "X", "bad")
	if a, b := base.InField("f"), base.After(time.Second); a.Field != "f" || b.RetryAfter != time.Second {
		t.Errorf("got %+v, %+v", a, b)
	}
	if base.Field != "" || base.RetryAfter != 0 {
		t.Errorf("the original became %+v", base)
	}
}

func TestAFaultWithoutACauseReadsAsItsKind(t *testing.T) {
	if got := (&Error{Kind: Denied}).Error(); got != "denied" {
		t.Errorf("got %q", got)
	}
}
