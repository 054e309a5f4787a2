// Package fault classifies errors by what a caller may do about them.
//
// A [Kind] crosses process boundaries (it is the "kind" of a wire.Problem) and
// decides HTTP status codes, retries and blame. The zero value is [Internal]:
// whatever nobody classified is our own fault and is never charged to the
// sender. Only an error made with an explicit [Invalid] is the sender's.
package fault

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Kind says whose fault an error is and whether trying again can help.
type Kind uint8

// The closed list of kinds. The names returned by String travel on the wire
// and never change.
const (
	Internal  Kind = iota // our fault, or unknown; do not retry blindly
	Invalid               // the sender's input is wrong; the same input fails again
	Denied                // the caller may not do this
	NotFound              // there is no such thing, or not for this caller
	Conflict              // contradicts what is already recorded
	Transient             // may succeed later; see Error.RetryAfter
	Corrupt               // stored bytes are not what was written
)

var names = [...]string{"internal", "invalid", "denied", "not-found", "conflict", "transient", "corrupt"}

// String returns the wire name of k; an unknown kind reads as "internal".
func (k Kind) String() string {
	if int(k) < len(names) {
		return names[k]
	}
	return names[Internal]
}

// ParseKind returns the kind with the wire name s. Unknown names are Internal,
// so that a newer peer's vocabulary never blames a sender.
func ParseKind(s string) Kind {
	for k, n := range names {
		if n == s {
			return Kind(k)
		}
	}
	return Internal
}

// Error is an error with a kind, a stable code and, where one applies, the
// input field that caused it.
type Error struct {
	Kind       Kind
	Code       string        // stable upper-case code, such as DIGEST_MISMATCH; may be empty
	Field      string        // the input field at fault; may be empty
	RetryAfter time.Duration // for Transient: when another try makes sense; 0 = unknown
	Err        error         // what happened, in words a person can act on
}

// Error returns the text of the wrapped error, which names the operation.
func (e *Error) Error() string {
	if e.Err == nil {
		return e.Kind.String()
	}
	return e.Err.Error()
}

// Unwrap returns the wrapped error.
func (e *Error) Unwrap() error { return e.Err }

// New returns an error of kind k with a stable code. The message is formatted
// as by fmt.Errorf, so %w wraps.
func New(k Kind, code, format string, args ...any) *Error {
	return &Error{Kind: k, Code: code, Err: fmt.Errorf(format, args...)}
}

// Wrap classifies err as kind k. It returns nil for a nil err, and keeps the
// code, field and delay of a fault already inside err.
func Wrap(k Kind, err error) error {
	if err == nil {
		return nil
	}
	out := &Error{Kind: k, Err: err}
	if in, ok := errors.AsType[*Error](err); ok {
		out.Code, out.Field, out.RetryAfter = in.Code, in.Field, in.RetryAfter
	}
	return out
}

// InField returns e with the name of the input field at fault.
func (e *Error) InField(name string) *Error {
	c := *e
	c.Field = name
	return &c
}

// After returns e with the delay after which another try makes sense.
func (e *Error) After(d time.Duration) *Error {
	c := *e
	c.RetryAfter = d
	return &c
}

// KindOf returns the kind of the outermost fault in err. An error that carries
// none is Internal, except that a passed deadline or a cancelled context is
// Transient.
func KindOf(err error) Kind {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Kind
	}
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return Transient
	}
	return Internal
}

// CodeOf returns the code of the outermost fault in err, or "".
func CodeOf(err error) string {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Code
	}
	return ""
}

// FieldOf returns the field of the outermost fault in err, or "".
func FieldOf(err error) string {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Field
	}
	return ""
}

// RetryAfter returns the delay of the outermost fault in err, or 0.
func RetryAfter(err error) time.Duration {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.RetryAfter
	}
	return 0
}

// Is reports whether err is of kind k. A nil err is of no kind.
func Is(err error, k Kind) bool { return err != nil && KindOf(err) == k }
