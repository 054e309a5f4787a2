package wire

import (
	"regexp"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// names lists every grammar with its parser and the pattern of the contract.
var names = []struct {
	what    string
	pattern string
	max     int
	parse   func(string) (string, error)
}{
	{"a tenant id", `[A-Za-z0-9][A-Za-z0-9._:-]{0,127}`, MaxTenantID, asText(ParseTenantID)},
	{"an archive id", `[a-z0-9][a-z0-9-]{0,31}`, MaxArchiveID, asText(ParseArchiveID)},
	{"a correlation id", `[A-Za-z0-9_-]{1,64}`, MaxCorrelationID, asText(ParseCorrelationID)},
	{"a kind", `[a-z0-9][a-z0-9.-]{0,63}`, MaxKind, asText(ParseKind)},
}

func asText[T ~string](parse func(string) (T, error)) func(string) (string, error) {
	return func(s string) (string, error) {
		v, err := parse(s)
		return string(v), err
	}
}

// The parsers and the contract's patterns agree on every byte in every place.
func TestNamesFollowTheContractsPatterns(t *testing.T) {
	for _, n := range names {
		pattern := regexp.MustCompile(`^(?:` + n.pattern + `)$`)
		for b := range 256 {
			for _, s := range []string{string([]byte{byte(b)}), "a" + string([]byte{byte(b)}), "a" + string([]byte{byte(b)}) + "a"} {
				requireSame(t, n.parse, pattern, n.what, s)
			}
		}
		for _, s := range []string{"", strings.Repeat("a", n.max), strings.Repeat("a", n.max+1), "é", "a\n", "a ", "*", ">", "$SYS", "a..b", ".a", "abc."} {
			requireSame(t, n.parse, pattern, n.what, s)
		}
		rapid.Check(t, func(t *rapid.T) {
			requireSame(t, n.parse, pattern, n.what, rapid.StringMatching(`[a-zA-Z0-9._:*>\n -]{0,140}`).Draw(t, "name"))
		})
	}
}

func requireSame(t interface {
	Helper()
	Errorf(string, ...any)
}, parse func(string) (string, error), pattern *regexp.Regexp, what, s string) {
	t.Helper()
	got, err := parse(s)
	if want := pattern.MatchString(s) && !strings.HasSuffix(s, "\n"); want != (err == nil) || want && got != s {
		t.Errorf("%s %q: got %q, %v; the pattern says %v", what, s, got, err, want)
	}
}

func TestNameRefusalsSayWhere(t *testing.T) {
	tests := []struct {
		parse  func(string) (string, error)
		in     string
		offset int
		says   []string
	}{
		{asText(ParseTenantID), "", -1, []string{"a tenant id is missing", "[A-Za-z0-9]"}},
		{asText(ParseTenantID), "*", 0, []string{`'*'`}},
		{asText(ParseTenantID), "-a", 0, []string{`'-'`}},
		{asText(ParseTenantID), "acme corp", 4, []string{`' '`}},
		{asText(ParseTenantID), "grün", 2, []string{`'ü'`}},
		{asText(ParseArchiveID), "archive-A", 8, []string{`'A'`}},
		{asText(ParseArchiveID), strings.Repeat("a", 33), 32, []string{"at most 32", "33"}},
		{asText(ParseCorrelationID), strings.Repeat("a", 5000), 64, []string{"at most 64", "5000"}},
		{asText(ParseCorrelationID), "a\r\nPUB x 0", 1, []string{`'\r'`}},
		{asText(ParseCorrelationID), "a.b", 1, []string{`'.'`}},
		{asText(ParseKind), "Metadata", 0, []string{`'M'`}},
	}
	for _, tt := range tests {
		_, err := tt.parse(tt.in)
		if e := wantError(t, err, "", tt.says...); e.Offset != tt.offset {
			t.Errorf("%q: offset %d, want %d", tt.in, e.Offset, tt.offset)
		}
	}
}

func TestReservedKindsAreTheSystems(t *testing.T) {
	tests := []struct {
		kind              Kind
		reserved, control bool
	}{
		{KindMetadata, true, false}, {KindPrivateMetadata, true, false}, {KindFile, true, false},
		{KindShare, true, true}, {KindRetain, true, true}, {KindHold, true, true}, {KindRelease, true, true},
		{ReceiptSeal, true, false}, {ReceiptMetadataAttach, true, false},
		{"approval", false, false}, {"", false, false}, {"metadata-attachment", false, false},
	}
	for _, tt := range tests {
		if tt.kind.Reserved() != tt.reserved || tt.kind.Control() != tt.control {
			t.Errorf("%q: reserved %v, control %v", tt.kind, tt.kind.Reserved(), tt.kind.Control())
		}
	}
}
