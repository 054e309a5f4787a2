package wire

import (
	"errors"
	"strings"
	"testing"
)

// wantError fails unless err is an *Error about the field whose text contains
// every part. It returns the error for further questions.
func wantError(t testing.TB, err error, field string, parts ...string) *Error {
	t.Helper()
	e, ok := errors.AsType[*Error](err)
	if !ok {
		t.Fatalf("got %v, want an *Error about %q", err, field)
	}
	if e.Field != field {
		t.Errorf("error %q is about field %q, want %q", e, e.Field, field)
	}
	for _, p := range parts {
		if !strings.Contains(e.Error(), p) {
			t.Errorf("error %q does not say %q", e, p)
		}
	}
	return e
}

func TestErrorTextNamesFieldReasonAndPlace(t *testing.T) {
	tests := []struct {
		err  Error
		want string
	}{
		{Error{"record.sha256", 12, "reason"}, "record.sha256: reason (at byte 12)"},
		{Error{"", 0, "reason"}, "reason (at byte 0)"},
		{Error{"kind", -1, "reason"}, "kind: reason"},
	}
	for _, tt := range tests {
		if got := tt.err.Error(); got != tt.want {
			t.Errorf("got %q, want %q", got, tt.want)
		}
	}
}

func TestErrorPathsJoin(t *testing.T) {
	e := refuse("mode", "bad").in("[3]").in("shareWith").in("record")
	if e.Field != "record.shareWith[3].mode" {
		t.Errorf("path is %q", e.Field)
	}
}

func TestForeignTextIsCutInMessages(t *testing.T) {
	long := strings.Repeat("é", 500)
	if got := show(long); len(got) > 60 {
		t.Errorf("%d bytes of foreign text in a message", len(got))
	}
	if got := show("a\nb"); got != `"a\nb"` {
		t.Errorf("got %s", got)
	}
}
