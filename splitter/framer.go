package splitter

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
)

// readBuffer is the size of the buffer a multipart body is read with, in bytes.
const readBuffer = 64 << 10

// maxDelimiterLine bounds a delimiter with the blanks that may follow it, in
// bytes. The delimiter itself has at most 74.
const maxDelimiterLine = 1 << 10

var crlf = []byte("\r\n")

// framer follows the structure of a multipart body (RFC 2046, section 5.1.1)
// while mime/multipart reads through it. That package alone can not tell a body
// that was cut between parts or inside headers from one that ended, skips what
// stands before the first and after the last delimiter, and allows 10 MiB of
// headers. The framer allows nothing but parts, and sees exactly where each
// ends, because it hands out lines one by one and never reads past them:
//
//	body      = [CRLF] delimiter part *(delimiter part) closing *(CR | LF | blank)
//	part      = *(header line) CRLF content
//	delimiter = "--boundary"   *blank CRLF      after the first: preceded by CRLF,
//	closing   = "--boundary--" *blank [CRLF]    which belongs to the delimiter
//
// A reader that is past the closing delimiter gets io.EOF; all other ends are
// errors that say where the body was cut.
type framer struct {
	src       *bufio.Reader
	dash      []byte // "--boundary"
	needle    []byte // CRLF "--boundary"
	maxHeader int

	state  frameState
	part   int    // number of the part read, from 1
	header int    // bytes of its header block so far
	piece  []byte // read and not handed out; lies in src's buffer
	err    error  // follows piece; sticky
}

type frameState uint8

const (
	atBody    frameState = iota // before the first delimiter
	inHeader                    // in the header lines of a part
	atLine                      // in content, where a delimiter may begin
	inContent                   // in content elsewhere
	closed                      // after the closing delimiter
)

func newFramer(r io.Reader, boundary string, maxHeader int) *framer {
	return &framer{
		src:  bufio.NewReaderSize(r, readBuffer),
		dash: []byte("--" + boundary), needle: []byte("\r\n--" + boundary),
		maxHeader: maxHeader,
	}
}

// Read hands out the next bytes of the body, at most to the end of a line where
// the structure is made of lines.
func (f *framer) Read(p []byte) (int, error) {
	for len(f.piece) == 0 {
		if f.err != nil {
			return 0, f.err
		}
		f.piece, f.err = f.next()
	}
	n := copy(p, f.piece)
	f.piece = f.piece[n:]
	return n, nil
}

// next returns the next piece of the body, and the error that follows it. The
// piece may be empty.
func (f *framer) next() ([]byte, error) {
	switch f.state {
	case atBody:
		return f.first()
	case inHeader:
		return f.headerLine()
	case atLine:
		return f.lineStart()
	case inContent:
		return f.content()
	}
	return nil, io.EOF
}

// first reads the line that begins the body. One line end may stand before it.
func (f *framer) first() ([]byte, error) {
	line, err := f.src.ReadSlice('\n')
	if bytes.Equal(line, crlf) {
		line, err = f.src.ReadSlice('\n')
	}
	if len(line) == 0 && err == io.EOF {
		return nil, refuse(CodeIncompleteBody, "", "the body is empty; send at least one part and the closing delimiter %q", f.closing())
	}
	if bytes.HasPrefix(line, f.dash) || bytes.HasPrefix(f.dash, line) {
		return f.delimiter(line, err)
	}
	if err != nil && err != io.EOF && err != bufio.ErrBufferFull {
		return nil, err
	}
	return nil, refuse(CodeMalformedMultipart, "", "the body begins with %s and not with the delimiter %q; the boundary in Content-Type must be the one the body uses",
		clip(string(line)), f.dash)
}

// delimiter takes a line that begins with the delimiter, or with as much of it
// as came before err.
func (f *framer) delimiter(line []byte, err error) ([]byte, error) {
	if err != nil && err != io.EOF && err != bufio.ErrBufferFull {
		return nil, err
	}
	rest, whole := bytes.CutPrefix(line, f.dash)
	rest, closing := bytes.CutPrefix(rest, []byte("--"))
	closing = closing && whole
	rest = bytes.TrimLeft(rest, " \t")
	switch {
	case err == io.EOF && closing && (len(rest) == 0 || string(rest) == "\r"), closing && bytes.Equal(rest, crlf):
		f.state = closed
		return append([]byte(f.closing()), crlf...), nil
	case err == io.EOF:
		return nil, f.cut()
	case whole && bytes.Equal(rest, crlf) && len(line) <= maxDelimiterLine:
		f.state = inHeader
		f.part++
		f.header = 0
		return line, nil
	}
	return nil, refuse(CodeMalformedMultipart, "", "after part %d: %s begins like the delimiter %q and goes on with something else; a delimiter stands alone in its line, which ends in CR LF",
		f.part, clip(string(line)), f.dash)
}

// headerLine reads one header line, or the empty line that ends the headers.
func (f *framer) headerLine() ([]byte, error) {
	line, err := f.src.ReadSlice('\n')
	if f.header += len(line); f.header > f.maxHeader || err == bufio.ErrBufferFull {
		return nil, tooLarge(f.name(), "MAX_PART_HEADER", int64(f.maxHeader), "bytes of header lines", "shorten the part's headers")
	}
	switch {
	case err == io.EOF:
		return nil, f.cut()
	case err != nil:
		return nil, err
	case !bytes.HasSuffix(line, crlf):
		return nil, refuse(CodeMalformedMultipart, f.name(), "the header line %s ends in LF alone; end lines in CR LF", clip(string(line)))
	case len(line) == len(crlf):
		f.state = atLine
	}
	return line, nil
}

// cutBy is the error of a body that ends with err where it may not.
func (f *framer) cutBy(err error) error {
	if err == io.EOF {
		return f.cut()
	}
	return err
}

func (f *framer) cut() error {
	where := "before its first part"
	if f.part > 0 {
		where = "after the beginning of " + f.name()
	}
	return refuse(CodeIncompleteBody, "", "the body ends %s, without the closing delimiter %q; nothing was taken, send it again", where, f.closing())
}

func (f *framer) closing() string { return string(f.dash) + "--" }

func (f *framer) name() string { return fmt.Sprintf("part %d", f.part) }
