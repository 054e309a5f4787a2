package splitter

import (
	"fmt"
	"mime"
	"slices"
	"strings"
)

// maxBoundary is the longest boundary of RFC 2046, section 5.1.1, in bytes.
const maxBoundary = 70

// boundaryChars are the characters RFC 2046 allows in a boundary. A blank may
// not be the last one.
const boundaryChars = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz'()+_,-./:=? "

// boundaryOf returns the boundary that a request's Content-Type names; taken are
// the media types that a refusal offers.
func boundaryOf(contentType, taken string) (string, error) {
	bad := func(format string, args ...any) (string, error) {
		return "", refuse(CodeBadContentType, "Content-Type", `%s %w; send multipart/form-data; boundary="..."`, clip(contentType), fmt.Errorf(format, args...))
	}
	media, params, err := mime.ParseMediaType(contentType)
	if err != nil {
		return bad("does not parse (%w)", err)
	}
	if media != "multipart/form-data" {
		return "", refuse(CodeUnsupportedMediaType, "Content-Type", "%s is not read here; send %s", clip(media), taken)
	}
	boundary, found := params["boundary"]
	names := paramNames(contentType)
	switch {
	case ambiguous(names, "boundary"):
		return bad("has more than one boundary, or one in an extended spelling")
	case !found:
		return bad("has no boundary")
	case boundary == "":
		return bad("has an empty boundary")
	case len(boundary) > maxBoundary:
		return bad("has a boundary of %d bytes, more than %d", len(boundary), maxBoundary)
	case strings.Trim(boundary, boundaryChars) != "" || strings.HasSuffix(boundary, " "):
		return bad("has a boundary with a character that RFC 2046 does not allow there")
	}
	return boundary, nil
}

// paramNames lists the parameter names of a header value that
// mime.ParseMediaType has accepted, in lower case and with every repetition,
// which that function hides when the values are equal.
func paramNames(value string) []string {
	var names []string
	_, rest, _ := strings.Cut(value, ";")
	for rest != "" {
		name, after, found := strings.Cut(rest, "=")
		if !found {
			break
		}
		names = append(names, strings.ToLower(strings.Trim(name, "; \t\r\n")))
		rest = afterParam(strings.TrimLeft(after, " \t\r\n"))
	}
	return names
}

// afterParam returns what follows the parameter value at the start of s: a word,
// or a quoted string in which a backslash takes the next character's meaning.
func afterParam(s string) string {
	if !strings.HasPrefix(s, `"`) {
		_, rest, _ := strings.Cut(s, ";")
		return rest
	}
	for i := 1; i < len(s); i++ {
		switch s[i] {
		case '\\':
			if i+1 < len(s) && strings.IndexByte(`()<>@,;:\"/[]?=`, s[i+1]) >= 0 {
				i++
			}
		case '"':
			return s[i+1:]
		}
	}
	return ""
}

// ambiguous reports whether readers may take different values for a parameter:
// it is given more than once, or in one of the extended spellings of RFC 2231
// (name*, name*0*) that are not in also.
func ambiguous(names []string, name string, also ...string) bool {
	seen := make(map[string]bool)
	for _, s := range names {
		if base, _, _ := strings.Cut(s, "*"); base != name {
			continue
		}
		if seen[s] || s != name && !slices.Contains(also, s) {
			return true
		}
		seen[s] = true
	}
	return false
}
