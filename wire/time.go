package wire

import (
	"strings"
	"time"
)

// Time is an instant as text: RFC 3339, UTC, nine fractional digits and "Z"
// when we made it. A peer's text is kept as it is and never a reason to refuse.
// The zero value is the empty text. Texts do not sort like instants: compare
// with Compare.
type Time string

const timeLayout = "2006-01-02T15:04:05.000000000Z"

// At returns t as a Time. Years beyond 0 to 9999 have no such text.
func At(t time.Time) Time { return Time(t.UTC().Format(timeLayout)) }

// Compare orders by instant: negative when t is before u. A text that names no
// instant comes after all that do; two such are equal.
func (t Time) Compare(u Time) int {
	a, aok := t.Instant()
	b, bok := u.Instant()
	switch {
	case aok && bok:
		return a.Compare(b)
	case aok:
		return -1
	case bok:
		return 1
	}
	return 0
}

// Instant returns the instant that t names, in UTC; ok is false if it names
// none. It reads RFC 3339, section 5.6, to the letter and with what its notes
// allow: "t" and "z" in lower case, a blank for the "T", an offset of -00:00,
// and second 60 at the end of a UTC minute 23:59, which counts as the start of
// the next day. Fractions may have any number of digits; those beyond the ninth
// are cut. The reader of package time is neither wider nor narrower: it takes
// commas and one-digit hours, and refuses the forms above.
func (t Time) Instant() (at time.Time, ok bool) {
	r := timeReader{rest: string(t)}
	year := r.number(4)
	r.one("-")
	month := r.number(2)
	r.one("-")
	day := r.number(2)
	r.one("Tt ")
	hour := r.number(2)
	r.one(":")
	minute := r.number(2)
	r.one(":")
	second := r.number(2)
	nanos := r.fraction()
	offset := r.offset()
	if r.bad || r.rest != "" {
		return time.Time{}, false
	}
	if month < 1 || month > 12 || day < 1 || day > daysIn(year, month) || hour > 23 || minute > 59 || second > 60 {
		return time.Time{}, false
	}
	at = time.Date(year, time.Month(month), day, hour, minute, second, nanos, time.UTC).Add(-offset)
	if second == 60 && (at.Hour() != 0 || at.Minute() != 0) {
		return time.Time{}, false
	}
	return at, true
}

func daysIn(year, month int) int {
	return time.Date(year, time.Month(month+1), 0, 0, 0, 0, 0, time.UTC).Day()
}

// A timeReader takes fields off the front of a text; bad is sticky.
type timeReader struct {
	rest string
	bad  bool
}

// number takes exactly width digits.
func (r *timeReader) number(width int) (n int) {
	if len(r.rest) < width {
		r.bad = true
		return 0
	}
	for i := range width {
		c := r.rest[i]
		if c < '0' || c > '9' {
			r.bad = true
			return 0
		}
		n = 10*n + int(c-'0')
	}
	r.rest = r.rest[width:]
	return n
}

// one takes one character out of set and returns it.
func (r *timeReader) one(set string) byte {
	if r.rest == "" || strings.IndexByte(set, r.rest[0]) < 0 {
		r.bad = true
		return 0
	}
	c := r.rest[0]
	r.rest = r.rest[1:]
	return c
}

// fraction takes an optional fraction of a second and returns nanoseconds.
func (r *timeReader) fraction() (nanos int) {
	if !strings.HasPrefix(r.rest, ".") {
		return 0
	}
	digits := len(r.rest) - 1 - len(strings.TrimLeft(r.rest[1:], "0123456789"))
	if digits == 0 {
		r.bad = true
		return 0
	}
	for i := range 9 {
		nanos *= 10
		if i < digits {
			nanos += int(r.rest[1+i] - '0')
		}
	}
	r.rest = r.rest[1+digits:]
	return nanos
}

// offset takes the zone, which ends the text.
func (r *timeReader) offset() time.Duration {
	sign := r.one("Zz+-")
	if sign == 'Z' || sign == 'z' {
		return 0
	}
	hours := r.number(2)
	r.one(":")
	minutes := r.number(2)
	if hours > 23 || minutes > 59 {
		r.bad = true
	}
	d := time.Duration(hours)*time.Hour + time.Duration(minutes)*time.Minute
	if sign == '-' {
		return -d
	}
	return d
}
