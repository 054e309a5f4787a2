package blob

import (
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
)

// section is a part of a representation.
type section struct {
	off, length int64
	part        bool // it was asked for by a range, and is told as 206
}

// sectionOf reads the Range header of a request (RFC 9110, section 14.2) for a
// representation of a size, in bytes. What is malformed, in another unit, of more
// than one range, or for another version by If-Range, gets the whole, as the RFC
// allows; so does HEAD, and a representation without bytes, which has no ranges:
// clients that ask for the begin of everything mean that. ok is false for a range
// that begins behind the end.
func sectionOf(r *http.Request, etag string, size int64) (s section, ok bool) {
	whole := section{length: size}
	lines := r.Header.Values("Range")
	if r.Method != http.MethodGet || len(lines) != 1 || size == 0 {
		return whole, true
	}
	// A date never fits: nothing here is told to have one.
	if cond := r.Header.Values("If-Range"); len(cond) > 0 && (len(cond) > 1 || strings.TrimSpace(cond[0]) != etag) {
		return whole, true
	}
	unit, spec, found := strings.Cut(lines[0], "=")
	if !found || !strings.EqualFold(strings.TrimSpace(unit), "bytes") {
		return whole, true
	}
	first, last, found := strings.Cut(strings.Trim(spec, " \t"), "-")
	if !found || first == "" && last == "" {
		return whole, true
	}
	if first == "" {
		n, valid := position(last)
		n = min(n, size)
		return choose(valid, section{size - n, n, true}, n > 0, whole)
	}
	from, valid := position(first)
	to := int64(math.MaxInt64)
	if last != "" {
		var lastValid bool
		to, lastValid = position(last)
		valid = valid && lastValid && to >= from
	}
	to = min(to, size-1)
	return choose(valid, section{from, to - from + 1, true}, from < size, whole)
}

func choose(valid bool, s section, satisfiable bool, whole section) (section, bool) {
	if !valid {
		return whole, true
	}
	return s, satisfiable
}

// position reads digits and nothing else. What no int64 holds is the largest.
func position(s string) (n int64, ok bool) {
	if s == "" || strings.Trim(s, "0123456789") != "" {
		return 0, false
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return math.MaxInt64, true
	}
	return n, true
}

// contentRange describes a section of a representation of a size.
func (s section) contentRange(size int64) string {
	return fmt.Sprintf("bytes %d-%d/%d", s.off, s.off+s.length-1, size)
}
