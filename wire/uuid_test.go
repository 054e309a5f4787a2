package wire

import (
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

var uuidV7 = regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)

// clockOf returns a generator whose clock shows *now.
func clockOf(now *time.Time) *uuids { return &uuids{now: func() time.Time { return *now }} }

// millisOf returns the timestamp of a UUIDv7.
func millisOf(t testing.TB, id string) int64 {
	t.Helper()
	ms, err := strconv.ParseInt(strings.ReplaceAll(id[:13], "-", ""), 16, 64)
	if err != nil {
		t.Fatal(err)
	}
	return ms
}

func TestNewIDsAreVersion7(t *testing.T) {
	before := time.Now().UnixMilli()
	for _, id := range []string{string(NewJobID()), string(NewSubmissionID()), string(NewPutID()), string(NewEventID()), string(NewCorrelationID())} {
		if !uuidV7.MatchString(id) {
			t.Errorf("%q is no UUIDv7", id)
		}
		// The timestamp may run ahead of the clock when ids are made faster
		// than the counter of a millisecond allows; a second of that is far off.
		if ms := millisOf(t, id); ms < before || ms > time.Now().UnixMilli()+1000 {
			t.Errorf("%q was made at %d, not since %d", id, ms, before)
		}
		if _, err := ParseCorrelationID(id); err != nil {
			t.Errorf("%q is no subject token: %v", id, err)
		}
	}
}

// The example of RFC 9562, appendix A.6, fixes where the timestamp lies.
func TestTimestampIsWhereRFC9562PutsIt(t *testing.T) {
	at := time.UnixMilli(0x017F22E279B0)
	if id := clockOf(&at).next(); !strings.HasPrefix(id, "017f22e2-79b0-7") {
		t.Errorf("got %s", id)
	}
}

func TestIDsRiseWithinAMillisecond(t *testing.T) {
	at := time.UnixMilli(1_764_000_000_000)
	u := clockOf(&at)
	last := ""
	for i := range 10_000 { // more than the 4096 values of the counter
		id := u.next()
		if id <= last || !uuidV7.MatchString(id) {
			t.Fatalf("id %d is %s after %s", i, id, last)
		}
		last = id
	}
	if ms := millisOf(t, last); ms > at.UnixMilli()+3 {
		t.Errorf("10,000 ids moved the timestamp from %d to %d", at.UnixMilli(), ms)
	}
}

func TestIDsRiseWhenTheClockStepsBack(t *testing.T) {
	at := time.UnixMilli(1_764_000_000_000)
	u := clockOf(&at)
	first := u.next()
	at = at.Add(-10 * time.Second)
	second := u.next()
	at = at.Add(20 * time.Second)
	third := u.next()
	if first >= second || second >= third {
		t.Errorf("order lost: %s, %s, %s", first, second, third)
	}
	if millisOf(t, third) != at.UnixMilli() {
		t.Errorf("the timestamp did not return to the clock: %s", third)
	}
}

func TestClockBefore1970MakesValidIDs(t *testing.T) {
	at := time.Time{}
	u := clockOf(&at)
	if a, b := u.next(), u.next(); !uuidV7.MatchString(a) || a >= b {
		t.Errorf("got %s, %s", a, b)
	}
}

func TestParallelIDsAreUnique(t *testing.T) {
	const workers, each = 8, 2000
	var mu sync.Mutex
	seen := make(map[SubmissionID]bool, workers*each)
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			last := SubmissionID("")
			for range each {
				id := NewSubmissionID()
				if id <= last {
					t.Errorf("%s after %s in one goroutine", id, last)
				}
				last = id
				mu.Lock()
				seen[id] = true
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if len(seen) != workers*each {
		t.Errorf("%d distinct ids of %d", len(seen), workers*each)
	}
}

// Job ids are shown to other tenants: two that were made one after the other
// must not be told by it.
func TestJobIDsTellNoOrder(t *testing.T) {
	const n = 10_000
	seen, consecutive := make(map[JobID]bool, n), 0
	counter := func(id JobID) int64 {
		v, err := strconv.ParseInt(string(id[15:18]), 16, 64)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	last := NewJobID()
	for range n {
		id := NewJobID()
		if got, err := ParseJobID(string(id)); err != nil || got != id || !uuidV7.MatchString(string(id)) {
			t.Fatalf("%s: %v", id, err)
		}
		if counter(id) == counter(last)+1 {
			consecutive++
		}
		seen[id], last = true, id
	}
	if len(seen) != n || consecutive > 30 { // chance gives 10000/4096 of them
		t.Errorf("%d distinct ids of %d, %d of them follow each other", len(seen), n, consecutive)
	}
}

func TestParseUUIDTakesEveryVersionInCanonicalForm(t *testing.T) {
	for _, in := range []string{
		"01928c2e-4b7e-7c3a-9f60-1a2b3c4d5e6f", // 7
		"f47ac10b-58cc-4372-a567-0e02b2c3d479", // 4
		"c232ab00-9414-11ec-b3c8-9f6bdeced846", // 1
		"00000000-0000-0000-0000-000000000000",
		"ffffffff-ffff-ffff-ffff-ffffffffffff",
	} {
		for _, form := range []string{in, strings.ToUpper(in), in[:18] + strings.ToUpper(in[18:])} {
			id, err := ParseJobID(form)
			if err != nil || string(id) != in {
				t.Errorf("ParseJobID(%q) = %q, %v", form, id, err)
			}
		}
	}
}

func TestParseUUIDRefusals(t *testing.T) {
	const id = "f47ac10b-58cc-4372-a567-0e02b2c3d479"
	tests := []struct {
		name, in string
		offset   int
		says     string
	}{
		{"empty", "", 0, "this has 0"},
		{"urn", "urn:uuid:" + id, 0, `'u'`},
		{"braces", "{" + id + "}", 0, `'{'`},
		{"wrapped", "x" + id[1:35] + "y", 0, `'x'`},
		{"x around", "x" + id + "y", 0, `'x'`},
		{"last", id[:35] + "g", 35, `'g'`},
		{"no dashes", strings.ReplaceAll(id, "-", ""), 8, `'5'`},
		{"dash moved", "f47ac10-b58cc-4372-a567-0e02b2c3d479", 7, `'-'`},
		{"short", id[:35], 35, "this has 35"},
		{"long", id + "0", 36, "this has 37"},
		{"newline", id + "\n", 36, "this has 37"},
		{"nul", id[:20] + "\x00" + id[21:], 20, `'\x00'`},
		{"blank", " " + id[1:], 0, `' '`},
		{"full-width", "ｆ" + id[1:], 0, `'ｆ'`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := ParseSubmissionID(tt.in)
			if e := wantError(t, err, "", tt.says, "a submission id"); e.Offset != tt.offset {
				t.Errorf("offset %d, want %d", e.Offset, tt.offset)
			}
			if got != "" {
				t.Errorf("a refused text gave %q", got)
			}
		})
	}
	for _, err := range []error{
		errOf(ParseJobID("")), errOf(ParsePutID("")), errOf(ParseEventID("")),
	} {
		wantError(t, err, "", "UUID")
	}
}

func errOf[T any](_ T, err error) error { return err }

// Ids of payloads arrive in lower case, so that one id is one key. Text that is
// no UUID stays as it is, for Check to refuse by the name of its field.
func TestDecodePutsIDsInLowerCase(t *testing.T) {
	type ids struct {
		Job  JobID        `json:"job"`
		Sub  SubmissionID `json:"sub"`
		Put  PutID        `json:"put"`
		Ev   EventID      `json:"ev"`
		Odd  JobID        `json:"odd"`
		None JobID        `json:"none"`
	}
	const upper, lower = "F47AC10B-58CC-4372-A567-0E02B2C3D479", "f47ac10b-58cc-4372-a567-0e02b2c3d479"
	got, err := Decode[ids]([]byte(`{"job":"` + upper + `","sub":"` + upper + `","put":"` + upper + `","ev":"` + upper + `","odd":"No UUID"}`))
	if want := (ids{lower, lower, lower, lower, "No UUID", ""}); err != nil || got != want {
		t.Errorf("got %+v, %v", got, err)
	}
	out, err := Encode(got)
	if err != nil || !strings.Contains(string(out), `"job":"`+lower+`"`) {
		t.Errorf("got %s, %v", out, err)
	}
}
