package wire

import (
	"fmt"
	"strings"
)

// Error says what is wrong with a text or payload from outside, where, and what
// would be right. Callers above wrap it as fault.Invalid: the sender is at
// fault, and the same input fails again.
type Error struct {
	Field  string // path of the field, such as "records[2].file.size"; empty: the whole input
	Offset int    // byte offset of the fault in what was read: the payload for Decode, the field's own text for Parse* and Check; -1 when there is no single place
	Msg    string // the reason and the fix, in words
}

// Error returns the path, the reason and the place, those of them that are known.
func (e *Error) Error() string {
	var b strings.Builder
	if e.Field != "" {
		b.WriteString(e.Field)
		b.WriteString(": ")
	}
	b.WriteString(e.Msg)
	if e.Offset >= 0 {
		fmt.Fprintf(&b, " (at byte %d)", e.Offset)
	}
	return b.String()
}

// in returns e with its path placed below field. A part that is a list index
// joins without a dot.
func (e *Error) in(field string) *Error {
	c := *e
	switch {
	case c.Field == "":
		c.Field = field
	case c.Field[0] == '[':
		c.Field = field + c.Field
	default:
		c.Field = field + "." + c.Field
	}
	return &c
}

// refuse returns an Error about a field of a value that has no text of its own
// to point into.
func refuse(field, format string, args ...any) *Error {
	return &Error{Field: field, Offset: -1, Msg: fmt.Sprintf(format, args...)}
}

// show quotes a piece of foreign text for a message, cut so that a message
// never carries a whole payload.
func show(s string) string {
	const most = 40
	if len(s) > most {
		return fmt.Sprintf("%q...", strings.ToValidUTF8(s[:most], ""))
	}
	return fmt.Sprintf("%q", s)
}
