package wire

import (
	"regexp"
	"slices"
	"testing"
	"time"
)

func TestOurTimesHaveNineDigitsAndZ(t *testing.T) {
	east := time.FixedZone("east", 5*3600+1800)
	tests := []struct {
		in   time.Time
		want Time
	}{
		{time.Date(2026, 11, 30, 14, 2, 11, 0, time.UTC), "2026-11-30T14:02:11.000000000Z"},
		{time.Date(2026, 11, 30, 14, 2, 11, 100, time.UTC), "2026-11-30T14:02:11.000000100Z"},
		{time.Date(2026, 11, 30, 19, 32, 11, 120_000_000, east), "2026-11-30T14:02:11.120000000Z"},
		{time.Date(1, 1, 1, 0, 0, 0, 0, time.UTC), "0001-01-01T00:00:00.000000000Z"},
	}
	for _, tt := range tests {
		got := At(tt.in)
		if got != tt.want {
			t.Errorf("At(%v) = %q, want %q", tt.in, got, tt.want)
		}
		if back, ok := got.Instant(); !ok || !back.Equal(tt.in) || back.Location() != time.UTC {
			t.Errorf("%q reads as %v, %v", got, back, ok)
		}
	}
}

func TestInstantReadsRFC3339(t *testing.T) {
	base := time.Date(2026, 11, 30, 14, 2, 11, 0, time.UTC)
	tests := []struct {
		in   Time
		want time.Time
	}{
		{"2026-11-30T14:02:11Z", base},
		{"2026-11-30t14:02:11z", base},
		{"2026-11-30 14:02:11Z", base},
		{"2026-11-30T14:02:11+00:00", base},
		{"2026-11-30T14:02:11-00:00", base},
		{"2026-11-30T19:32:11+05:30", base},
		{"2026-11-29T14:03:11-23:59", base},
		{"2026-12-01T14:01:11+23:59", base},
		{"2026-11-30T14:02:11.1Z", base.Add(100 * time.Millisecond)},
		{"2026-11-30T14:02:11.15Z", base.Add(150 * time.Millisecond)},
		{"2026-11-30T14:02:11.123456Z", base.Add(123456 * time.Microsecond)},
		{"2026-11-30T14:02:11.000000001Z", base.Add(1)},
		{"2026-11-30T14:02:11.0000000019Z", base.Add(1)},
		{"2026-11-30T14:02:11.123456789123456789123456789+00:00", base.Add(123456789)},
		{"0000-01-01T00:00:00Z", time.Date(0, 1, 1, 0, 0, 0, 0, time.UTC)},
		{"9999-12-31T23:59:59.999999999Z", time.Date(9999, 12, 31, 23, 59, 59, 999999999, time.UTC)},
		{"2024-02-29T00:00:00Z", time.Date(2024, 2, 29, 0, 0, 0, 0, time.UTC)},
		{"2000-02-29T00:00:00Z", time.Date(2000, 2, 29, 0, 0, 0, 0, time.UTC)},
		{"2016-12-31T23:59:60Z", time.Date(2017, 1, 1, 0, 0, 0, 0, time.UTC)},
		{"2016-12-31T15:59:60.25-08:00", time.Date(2017, 1, 1, 0, 0, 0, 250_000_000, time.UTC)},
	}
	for _, tt := range tests {
		if got, ok := tt.in.Instant(); !ok || !got.Equal(tt.want) {
			t.Errorf("%q reads as %v, %v; want %v", tt.in, got, ok, tt.want)
		}
	}
}

func TestInstantReadsNothingElse(t *testing.T) {
	for _, in := range []Time{
		"", "…", "2026-11-30", "14:02:11Z", "2026-11-30T14:02:11", "2026-11-30T14:02Z",
		"2026-11-30T14:02:11,5Z", "2026-11-30T14:02:11.Z", "2026-11-30T4:02:11Z", "2026-11-30T24:00:00Z",
		"2026-11-30T14:60:11Z", "2026-11-30T14:02:61Z", "2026-11-30T14:02:60Z", "2026-11-30T23:59:60+01:00",
		"2026-13-01T00:00:00Z", "2026-00-01T00:00:00Z", "2026-02-29T00:00:00Z", "1900-02-29T00:00:00Z", "2026-04-31T00:00:00Z", "2026-11-00T00:00:00Z",
		"2026-11-30T14:02:11+0000", "2026-11-30T14:02:11+24:00", "2026-11-30T14:02:11+05:60", "2026-11-30T14:02:11+05", "2026-11-30T14:02:11+5:30",
		"2026-11-30T14:02:11ZZ", "2026-11-30T14:02:11Z ", " 2026-11-30T14:02:11Z", "2026-11-30T14:02:11Z\n", "2026-11-30_14:02:11Z", "+2026-11-30T14:02:11Z",
		"02026-11-30T14:02:11Z", "2026-11-30T14:02:11.1e3Z", "2026-11-30T14:02:11.-1Z", "２026-11-30T14:02:11Z", "Mon, 30 Nov 2026 14:02:11 GMT", "1796047331",
	} {
		if got, ok := in.Instant(); ok || !got.IsZero() {
			t.Errorf("%q reads as %v", in, got)
		}
	}
}

// Texts are ordered by what they mean. As text, .1Z sorts after .15Z.
func TestCompareOrdersByInstant(t *testing.T) {
	want := []Time{
		"2026-11-30T13:59:59Z",
		"2026-11-30T14:00:00Z",
		"2026-11-30T14:00:00.1Z",
		"2026-11-30T14:00:00.15Z",
		"2026-11-30T19:30:01+05:30",
		"2026-11-30T14:00:02Z",
		"no time",
	}
	got := slices.Clone(want)
	slices.Reverse(got)
	slices.SortFunc(got, Time.Compare)
	if !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
	for _, equal := range [][2]Time{
		{"2026-11-30T14:00:01Z", "2026-11-30T19:30:01+05:30"},
		{"2026-11-30T14:00:01Z", "2026-11-30T14:00:01.000000000z"},
		{"no time", ""},
	} {
		if c := equal[0].Compare(equal[1]); c != 0 {
			t.Errorf("%q and %q compare as %d", equal[0], equal[1], c)
		}
	}
	if Time("x").Compare("2026-11-30T14:00:01Z") <= 0 {
		t.Error("a text without an instant comes before one with")
	}
}

// strict3339 are the texts on which package time is right, so that it can judge.
// It takes offsets of 24 hours or 60 minutes, and no second 60.
var strict3339 = regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:[0-5]\d(?:\.\d{1,9})?(?:Z|[+-](?:[01]\d|2[0-3]):[0-5]\d)$`)

func FuzzTime(f *testing.F) {
	for _, s := range []string{
		"", "…", "2026-11-30T14:02:11.123456789Z", "2026-04-28T20:00:00+00:00", "2016-12-31T23:59:60Z", "2026-11-30 14:02:11z",
		"2026-11-30T14:02:11,5Z", "2026-11-30T4:02:11Z", "0000-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59", "2025-05-19T09:11:00.000Z",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		at, ok := Time(s).Instant()
		if strict3339.MatchString(s) {
			want, err := time.Parse(time.RFC3339Nano, s)
			if (err == nil) != ok || ok && !at.Equal(want) {
				t.Fatalf("%q reads as %v, %v; package time says %v, %v", s, at, ok, want, err)
			}
		}
		if !ok {
			return
		}
		if at.Location() != time.UTC {
			t.Fatalf("%q reads as %v, not UTC", s, at)
		}
		if at.Year() < 0 || at.Year() > 9999 {
			return // an offset can move the ends of the range beyond four digits
		}
		if again, ok := At(at).Instant(); !ok || !again.Equal(at) {
			t.Fatalf("%q prints as %q, which reads as %v, %v", s, At(at), again, ok)
		}
	})
}
