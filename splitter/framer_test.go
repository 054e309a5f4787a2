package splitter

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"mime/multipart"
	"os"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/verae/archive/internal/fault"
)

// sample has everything that a body can be cut in: several files, an empty part,
// line ends and near-delimiters in content.
func sample() string {
	return body(
		upload("files", "one.txt", "first\r\n--Xb not a delimiter\r\n--XbXyz neither\r\n"),
		value("sha256", digestOf("something").String()),
		upload("files", "empty.txt", ""),
		value("publicMetadata", `{"a":1}`),
		upload("files", "three.txt", strings.Repeat("third ", 3)),
	)
}

// TestMP05EveryCutIsRefused cuts a body after every byte, in three ways.
func TestMP05EveryCutIsRefused(t *testing.T) {
	whole := strings.TrimSuffix(sample(), "\r\n")
	if _, _, err := readForm(t, strings.NewReader(whole), Config{}); err != nil {
		t.Fatalf("the whole body is refused: %v", err)
	}
	for name, reader := range map[string]func(cut string) io.Reader{
		"end": func(cut string) io.Reader { return strings.NewReader(cut) },
		"broken": func(cut string) io.Reader {
			return io.MultiReader(strings.NewReader(cut), iotest.ErrReader(io.ErrUnexpectedEOF))
		},
		"stalled": func(cut string) io.Reader {
			return io.MultiReader(strings.NewReader(cut), iotest.ErrReader(os.ErrDeadlineExceeded))
		},
		"dataErr": func(cut string) io.Reader { return iotest.DataErrReader(strings.NewReader(cut)) },
		"bytes":   func(cut string) io.Reader { return iotest.OneByteReader(strings.NewReader(cut)) },
	} {
		t.Run(name, func(t *testing.T) {
			for n := range len(whole) {
				_, _, err := readForm(t, reader(whole[:n]), Config{})
				refused(t, err, CodeIncompleteBody)
			}
		})
	}
	t.Run("after the closing delimiter", func(t *testing.T) {
		for _, end := range []string{"", "\r", "\r\n", "\r\n\r\n", " \t\r\n"} {
			if _, _, err := readForm(t, strings.NewReader(whole+end), Config{}); err != nil {
				t.Errorf("ending %q: %v", end, err)
			}
			_, _, err := readForm(t, io.MultiReader(strings.NewReader(whole+end), iotest.ErrReader(io.ErrUnexpectedEOF)), Config{})
			refused(t, err, CodeIncompleteBody)
		}
	})
}

// TestMP05CutSaysWhere checks that the message helps to find the cut.
func TestMP05CutSaysWhere(t *testing.T) {
	whole := sample()
	second := strings.Index(whole, "--XbX\r\nContent-Disposition: form-data; name=\"sha256\"")
	for _, c := range []struct {
		name, body, says string
	}{
		{"nothing", "", "the body is empty"},
		{"inside the delimiter", "--Xb", "before its first part"},
		{"after the delimiter", whole[:len("--XbX\r\n")], "part 1"},
		{"after the second delimiter", whole[:second+len("--XbX\r\n")], "part 2"},
		{"in the second headers", whole[:second+30], "part 2"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, _, err := readForm(t, strings.NewReader(c.body), Config{})
			refused(t, err, CodeIncompleteBody, c.says)
		})
	}
}

// TestBytesOutsidePartsAreRefused: what is neither part nor delimiter would be
// lost without a word.
func TestBytesOutsidePartsAreRefused(t *testing.T) {
	whole := body(value("data", "x"))
	lf := strings.ReplaceAll(whole, "\r\n", "\n")
	for _, c := range []struct {
		name, body, says string
	}{
		{"preamble", "hello\r\n" + whole, "begins with"},
		{"preamble without a line end", "hello" + whole, "begins with"},
		{"endless preamble", strings.Repeat("x", 2*readBuffer), "begins with"},
		{"two line ends before", "\r\n\r\n" + whole, "begins with"},
		{"another boundary", strings.ReplaceAll(whole, boundary, "other"), "the boundary in Content-Type"},
		{"a second body", whole + whole, "follow the closing delimiter"},
		{"one byte after", whole + "x", "follow the closing delimiter"},
		{"text on the closing line", strings.TrimSuffix(whole, "\r\n") + "x\r\n", "stands alone in its line"},
		{"text on a delimiter line", strings.Replace(whole, "--XbX\r\n", "--XbX x\r\n", 1), "stands alone in its line"},
		{"endless blanks on a delimiter line", strings.Replace(whole, "--XbX\r\n", "--XbX"+strings.Repeat(" ", 2*readBuffer)+"\r\n", 1), "stands alone in its line"},
		{"blanks over the limit", strings.Replace(whole, "--XbX\r\n", "--XbX"+strings.Repeat(" ", maxDelimiterLine-len("--XbX\r\n")+1)+"\r\n", 1), "stands alone in its line"},
		{"LF alone after one header line", strings.Replace(whole, "\"data\"\r\n", "\"data\"\n", 1), "ends in LF alone"},
		{"LF alone instead of the empty line", strings.Replace(whole, "\"data\"\r\n\r\n", "\"data\"\r\n\n", 1), "ends in LF alone"},
		{"LF alone", lf, "CR LF"},
		{"LF alone after the first delimiter", "--XbX\r\n" + strings.TrimPrefix(lf, "--XbX\n"), "CR LF"},
		{"LF alone after a part's delimiter", strings.Replace(body(value("data", "x"), value("public", "true")), "x\r\n--XbX\r\n", "x\r\n--XbX\n", 1), "CR LF"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, _, err := readForm(t, strings.NewReader(c.body), Config{})
			refused(t, err, CodeMalformedMultipart, c.says)
		})
	}
	for name, ok := range map[string]string{
		"a line end before":         "\r\n" + whole,
		"blanks after delimiters":   strings.ReplaceAll(strings.ReplaceAll(whole, "--XbX\r\n", "--XbX \t\r\n"), "--XbX--", "--XbX-- "),
		"blanks up to the limit":    strings.Replace(whole, "--XbX\r\n", "--XbX"+strings.Repeat(" ", maxDelimiterLine-len("--XbX\r\n"))+"\r\n", 1),
		"line ends after the last":  whole + "\r\n\r\n",
		"no line end after closing": strings.TrimSuffix(whole, "\r\n"),
	} {
		if _, _, err := readForm(t, strings.NewReader(ok), Config{}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// contentOf reads the content of the only part of a body through a framer.
func contentOf(r io.Reader) (string, error) {
	f := newFramer(r, boundary, 1<<10)
	m := multipart.NewReader(f, boundary)
	p, err := m.NextRawPart()
	if err != nil {
		return "", err
	}
	content, err := io.ReadAll(p)
	if err != nil {
		return "", err
	}
	if _, err := m.NextRawPart(); err != io.EOF || f.state != closed {
		return "", fmt.Errorf("after the part: %v in state %d", err, f.state)
	}
	if n, err := f.Read(make([]byte, 1)); n != 0 || err != io.EOF {
		return "", fmt.Errorf("past the end: %d bytes, %v", n, err)
	}
	return string(content), f.rest()
}

// TestContentIsExact: whatever is no delimiter passes unchanged, in any pieces.
func TestContentIsExact(t *testing.T) {
	words := []string{"\r", "\n", "\r\n", "-", "--", "XbX", "Xb", "--XbX", "\r\n--XbX", "a", " ", "\t"}
	random := rand.New(rand.NewPCG(1, 2))
	tried := 0
	for range 3_000 {
		var content strings.Builder
		for range random.IntN(7) {
			content.WriteString(words[random.IntN(len(words))])
		}
		text := content.String()
		if holdsDelimiter(text + "\r\n--XbX--") {
			continue
		}
		tried++
		whole := body("X: y\r\n\r\n" + text)
		for name, r := range map[string]io.Reader{
			"whole": strings.NewReader(whole), "bytes": iotest.OneByteReader(strings.NewReader(whole)),
			"half": iotest.HalfReader(strings.NewReader(whole)), "dataErr": iotest.DataErrReader(strings.NewReader(whole)),
		} {
			if got, err := contentOf(r); got != text || err != nil {
				t.Fatalf("%s: %q came out as %q, %v", name, text, got, err)
			}
		}
	}
	if tried < 1_000 {
		t.Errorf("only %d contents without a delimiter; the words are badly chosen", tried)
	}
}

// holdsDelimiter says whether a delimiter comes before the last one in text, by
// the letter of the grammar.
func holdsDelimiter(text string) bool {
	text = "\r\n" + text
	for i := 0; ; {
		j := strings.Index(text[i:], "\r\n--XbX")
		if j < 0 {
			return false
		}
		rest := text[i+j+len("\r\n--XbX"):]
		if rest == "--" {
			return false
		}
		if strings.HasPrefix(rest, "--") || strings.ContainsAny(rest[:1], " \t\r\n") {
			return true
		}
		i += j + 1
	}
}

// TestContentAcrossBuffers puts a delimiter and near-delimiters at every offset
// around the end of the read buffer.
func TestContentAcrossBuffers(t *testing.T) {
	for shift := range 40 {
		text := strings.Repeat("x", readBuffer-60+shift) + "\r\n--Xb\r\n--XbXX" + strings.Repeat("y", 100)
		got, err := contentOf(strings.NewReader(body("X: y\r\n\r\n" + text)))
		if got != text || err != nil {
			t.Fatalf("shift %d: %d bytes came out as %d, %v", shift, len(text), len(got), err)
		}
	}
}

// TestReaderErrorsKeepTheirKind: only the sender's connection is the sender's.
func TestReaderErrorsKeepTheirKind(t *testing.T) {
	mine := fault.New(fault.Transient, "BUSY", "too many requests in flight")
	half := sample()[:200]
	for name, begin := range map[string]string{"nothing": "", "a bad beginning": "hello", "half a delimiter": "--Xb", "a delimiter": "--XbX\r\n"} {
		_, _, err := readForm(t, io.MultiReader(strings.NewReader(begin), iotest.ErrReader(mine)), Config{})
		if !errors.Is(err, mine) || !fault.Is(err, fault.Transient) {
			t.Errorf("after %s: %v", name, err)
		}
	}
	for _, c := range []struct {
		name string
		err  error
		kind fault.Kind
		code string
	}{
		{"reset", errBroken, fault.Invalid, CodeIncompleteBody},
		{"a fault of the door", mine, fault.Transient, "BUSY"},
		{"the caller left", fmt.Errorf("http: %w", context.Canceled), fault.Transient, ""},
		{"the caller's time is over", context.DeadlineExceeded, fault.Transient, ""},
		{"a wrapped end of file", fmt.Errorf("tls: %w", io.EOF), fault.Invalid, CodeIncompleteBody},
	} {
		t.Run(c.name, func(t *testing.T) {
			for form, read := range map[string]func(io.Reader) error{
				"multipart": func(r io.Reader) error { _, _, err := readForm(t, r, Config{}); return err },
				"json":      func(r io.Reader) error { _, _, err := readJSON(t, r, Config{}); return err },
			} {
				err := read(io.MultiReader(strings.NewReader(half), iotest.ErrReader(c.err)))
				if fault.KindOf(err) != c.kind || fault.CodeOf(err) != c.code || !errors.Is(err, c.err) {
					t.Errorf("%s: %v %s: %v", form, fault.KindOf(err), fault.CodeOf(err), err)
				}
			}
		})
	}
}
