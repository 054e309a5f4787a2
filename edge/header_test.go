package edge

import (
	"net/http"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/verae/archive/internal/fault"
)

func TestIdempotencyKeyGrammar(t *testing.T) {
	long := strings.Repeat("k", MaxIdempotencyKey)
	for value, want := range map[string]string{
		`"8e03978e-40d5-43dd-bc93-6894a57f9324"`: "8e03978e-40d5-43dd-bc93-6894a57f9324",
		`8e03978e-40d5-43dd-bc93-6894a57f9324`:   "8e03978e-40d5-43dd-bc93-6894a57f9324",
		" \tabc ":                                "abc",
		`"a b"`:                                  "a b",
		`"a\"b\\c"`:                              `a"b\c`,
		`"` + long + `"`:                         long,
		long:                                     long,
	} {
		got, err := idempotencyKey(http.Header{"Idempotency-Key": {value}})
		if err != nil || got != want {
			t.Errorf("%q: %q, %v", value, got, err)
		}
	}
	for _, value := range []string{
		"", " ", `""`, `"`, `"abc`, `abc"`, `"a"b"`, `"a\b"`, `"a\`, `"a\"`, "a b", "a,b", "a;b", `"a";p=1`, `"a", "b"`,
		"a\x00b", "\"a\x7fb\"", "\"a\nb\"", "\u00e9", "\"\u00e9\"", long + "k", `"` + long + `k"`,
	} {
		got, err := idempotencyKey(http.Header{"Idempotency-Key": {value}})
		if !fault.Is(err, fault.Invalid) || fault.FieldOf(err) != "Idempotency-Key" || got != "" {
			t.Errorf("%q was taken as %q: %v", value, got, err)
		}
	}
	if key, err := idempotencyKey(http.Header{}); key != "" || err != nil {
		t.Errorf("no header: %q, %v", key, err)
	}
}

func TestPreferWaitGrammar(t *testing.T) {
	for value, want := range map[string]time.Duration{
		"wait=10":                         10 * time.Second,
		"Wait = 10":                       10 * time.Second,
		`wait="10"`:                       10 * time.Second,
		"respond-async, wait=3":           3 * time.Second,
		"wait=3; x=y, wait=4":             3 * time.Second,
		`note="a, wait=9", wait=4`:        4 * time.Second,
		`note="\", wait=9", wait=5`:       5 * time.Second,
		"wait=0":                          0,
		"wait=99999999999999999999999999": 24 * time.Hour,
	} {
		if got, found := preferWait(http.Header{"Prefer": {value}}); !found || got != want {
			t.Errorf("%q: %v, %t", value, got, found)
		}
	}
	if got, _ := preferWait(http.Header{"Prefer": {"respond-async", "wait=7", "wait=8"}}); got != 7*time.Second {
		t.Errorf("several fields: %v", got)
	}
	for _, value := range []string{"", "respond-async", "wait", "wait=", "wait=-1", "wait=1.5", "wait=+1", "wait=1s", "waiting=3", `"wait=3"`, "wait=\u0663"} {
		if got, found := preferWait(http.Header{"Prefer": {value}}); found {
			t.Errorf("%q was taken as %v", value, got)
		}
	}
}

// An id from outside is repeated only if it can do no harm in a log or header.
func TestRequestIDIsPlainOrOurs(t *testing.T) {
	for _, id := range []string{"a", "A-b_c.9", strings.Repeat("x", maxRequestID)} {
		if got := requestID(http.Header{"X-Request-Id": {id}}); got != id {
			t.Errorf("%q became %q", id, got)
		}
	}
	seen := map[string]bool{}
	for _, values := range [][]string{
		nil, {""}, {"a b"}, {"a\nlevel=ERROR"}, {"\x1b[31m"}, {`"quoted"`}, {"\u00fc"}, {strings.Repeat("x", maxRequestID+1)}, {"a", "a"},
	} {
		got := requestID(http.Header{"X-Request-Id": values})
		if !plainToken(got, maxRequestID) || len(values) == 1 && got == values[0] || seen[got] {
			t.Errorf("%q became %q", values, got)
		}
		seen[got] = true
	}
}

func TestRetryAfterIsWholeSeconds(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "1", -time.Hour: "1", time.Millisecond: "1", time.Second: "1", time.Second + 1: "2", 90 * time.Second: "90",
	} {
		if got := retryAfter(d); got != want {
			t.Errorf("%v: %q, want %q", d, got, want)
		}
	}
}

func FuzzIdempotencyKey(f *testing.F) {
	for _, seed := range []string{`"a \" b"`, "abc", `"`, `"\`, "a,b", `""`, "\"\u00e9\""} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, value string) {
		key, err := idempotencyKey(http.Header{"Idempotency-Key": {value}})
		if err != nil {
			if !fault.Is(err, fault.Invalid) || key != "" || !utf8.ValidString(err.Error()) {
				t.Fatalf("%q: %q, %v", value, key, err)
			}
			return
		}
		if key == "" || len(key) > MaxIdempotencyKey || strings.IndexFunc(key, func(c rune) bool { return c < ' ' || c > '~' }) >= 0 {
			t.Fatalf("%q was taken as %q", value, key)
		}
		quoted := `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(key) + `"`
		if again, err := idempotencyKey(http.Header{"Idempotency-Key": {quoted}}); err != nil || again != key {
			t.Fatalf("%q quoted is %q, read as %q, %v", key, quoted, again, err)
		}
	})
}

func FuzzPrefer(f *testing.F) {
	for _, seed := range []string{"wait=10", `a="b, wait=3", wait=4`, "wait=99999999999999999999", ",;=\"\\", `wait="1"`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, value string) {
		wait, found := preferWait(http.Header{"Prefer": {value}})
		if wait < 0 || wait > 24*time.Hour || wait%time.Second != 0 || !found && wait != 0 {
			t.Fatalf("%q: %v, %t", value, wait, found)
		}
		// What is put behind it does not change the first answer, what is put
		// before it wins.
		if first, found := preferWait(http.Header{"Prefer": {"wait=5", value}}); !found || first != 5*time.Second {
			t.Fatalf("%q behind wait=5: %v", value, first)
		}
	})
}
