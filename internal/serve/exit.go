package serve

import (
	"errors"
	"fmt"

	"github.com/verae/archive/internal/fault"
)

// Exit codes of every program. The command line uses those up to ExitDenied. A
// server uses the others too, and of these only ExitOK, ExitFailed, ExitUsage,
// ExitNotFound and ExitUnreachable.
const (
	ExitOK          = 0
	ExitFailed      = 1 // something failed; for verae also: a verification failed
	ExitUsage       = 2 // a flag, an argument or a variable is wrong
	ExitNotFound    = 3 // there is no such thing, or not for this caller
	ExitPending     = 4 // not done yet; ask again
	ExitUnreachable = 5 // the service did not answer or asks to come back later
	ExitDenied      = 6 // the key may not do this

	// Codes of servers, where sysexits(3) has them too. They tell a supervisor
	// whether starting again can help.
	ExitDamaged     = 65 // a store is damaged, cut or rolled back: do not start again, repair
	ExitStoreFailed = 70 // a store could not write: start again, with a delay
	ExitMisplaced   = 78 // another's directory, or one in use: set it right, then start
)

// An ExitError ends a program with a code of its own. Err may be nil when
// everything worth saying has been printed.
type ExitError struct {
	Code int
	Err  error
}

// Error returns the text of the wrapped error.
func (e *ExitError) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("exit code %d", e.Code)
	}
	return e.Err.Error()
}

// Unwrap returns the wrapped error, or nil.
func (e *ExitError) Unwrap() error { return e.Err }

// ExitCode returns the code a program ends with after err: the code of an
// [ExitError] inside it, else the one that fits its fault kind. A nil err is
// ExitOK; what nobody classified is ExitFailed.
func ExitCode(err error) int {
	if err == nil {
		return ExitOK
	}
	if e, ok := errors.AsType[*ExitError](err); ok {
		return e.Code
	}
	switch fault.KindOf(err) {
	case fault.Invalid:
		return ExitUsage
	case fault.NotFound:
		return ExitNotFound
	case fault.Transient:
		return ExitUnreachable
	case fault.Denied:
		return ExitDenied
	}
	return ExitFailed
}

// ServerExitCode is ExitCode for a program that keeps a store: what is stored
// and not what was written is ExitDamaged, a directory of another identity, or
// in use, is ExitMisplaced, a disk without room to open a store is
// ExitStoreFailed.
func ServerExitCode(err error) int {
	if _, chosen := errors.AsType[*ExitError](err); err == nil || chosen {
		return ExitCode(err)
	}
	switch kind := fault.KindOf(err); {
	case kind == fault.Transient && fault.CodeOf(err) == "DISK_FULL":
		return ExitStoreFailed
	case kind == fault.Corrupt:
		return ExitDamaged
	case kind == fault.Conflict:
		return ExitMisplaced
	}
	return ExitCode(err)
}
