package wire

import (
	"fmt"
	"unicode/utf8"
)

// Longest texts of the named identifiers, in bytes. All of them are ASCII.
const (
	MaxTenantID      = 128
	MaxArchiveID     = 32
	MaxCorrelationID = 64 // a subject of some 4 KiB makes the NATS server close the responder's connection for good
	MaxKind          = 64
)

// A grammar is an identifier of one to max characters. The classes are sets of
// ASCII characters: the first one of the text, and the others.
type grammar struct {
	what        string
	max         int
	first, rest charset
	shown       string // the rule as the contract prints it
}

// A charset is a set of ASCII characters.
type charset [2]uint64

func chars(ranges ...string) (c charset) {
	for _, r := range ranges {
		for b := r[0]; b <= r[len(r)-1]; b++ {
			c[b/64] |= 1 << (b % 64)
		}
	}
	return c
}

func (c charset) has(b byte) bool { return b < 128 && c[b/64]&(1<<(b%64)) != 0 }

var (
	alnum = []string{"AZ", "az", "09"}

	tenantGrammar = grammar{"a tenant id", MaxTenantID,
		chars(alnum...), chars("AZ", "az", "09", ".", "_", ":", "-"), "[A-Za-z0-9][A-Za-z0-9._:-]{0,127}"}
	archiveGrammar = grammar{"an archive id", MaxArchiveID,
		chars("az", "09"), chars("az", "09", "-"), "[a-z0-9][a-z0-9-]{0,31}"}
	correlationGrammar = grammar{"a correlation id", MaxCorrelationID,
		chars("AZ", "az", "09", "_", "-"), chars("AZ", "az", "09", "_", "-"), "[A-Za-z0-9_-]{1,64}"}
	kindGrammar = grammar{"a kind", MaxKind,
		chars("az", "09"), chars("az", "09", ".", "-"), "[a-z0-9][a-z0-9.-]{0,63}"}
)

// check returns an *Error that names the rule and the offset of the first
// character that breaks it, or nil.
func (g *grammar) check(s string) *Error {
	if s == "" {
		return refuse("", "%s is missing; it must match %s", g.what, g.shown)
	}
	for i := range min(len(s), g.max) {
		if class := &g.rest; !class.has(s[i]) || i == 0 && !g.first.has(s[0]) {
			r, _ := utf8.DecodeRuneInString(s[i:])
			return &Error{Offset: i, Msg: fmt.Sprintf("%q may not stand here in %s; it must match %s", r, g.what, g.shown)}
		}
	}
	if len(s) > g.max {
		return &Error{Offset: g.max, Msg: fmt.Sprintf("%s has at most %d characters, this has %d", g.what, g.max, len(s))}
	}
	return nil
}

// parseName returns s as the identifier type T if the grammar admits it.
func parseName[T ~string](g *grammar, s string) (T, error) {
	if err := g.check(s); err != nil {
		return "", err
	}
	return T(s), nil
}

// ParseTenantID reads [A-Za-z0-9][A-Za-z0-9._:-]{0,127}. It refuses Public,
// which is no tenant.
func ParseTenantID(s string) (TenantID, error) { return parseName[TenantID](&tenantGrammar, s) }

// ParseArchiveID reads [a-z0-9][a-z0-9-]{0,31}.
func ParseArchiveID(s string) (ArchiveID, error) { return parseName[ArchiveID](&archiveGrammar, s) }

// ParseCorrelationID reads [A-Za-z0-9_-]{1,64}. Whoever is about to publish on
// SubjectReplyPrefix must have parsed the token: a long or odd one can cost him
// his connection.
func ParseCorrelationID(s string) (CorrelationID, error) {
	return parseName[CorrelationID](&correlationGrammar, s)
}

// ParseKind reads [a-z0-9][a-z0-9.-]{0,63}, reserved kinds included.
func ParseKind(s string) (Kind, error) { return parseName[Kind](&kindGrammar, s) }
