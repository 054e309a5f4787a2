package splitter

import (
	"bytes"
	"io"
)

// lineStart looks whether a delimiter begins here, at the start of a line of
// content. The content of a part may be empty: its delimiter then follows the
// headers at once.
func (f *framer) lineStart() ([]byte, error) {
	ahead, err := f.src.Peek(len(f.dash) + 2)
	if !f.isDelimiter(ahead) {
		f.state = inContent
		return nil, nil // a cut shows when the content is read
	}
	if err != nil && err != io.EOF {
		return nil, err
	}
	return f.delimiter(f.src.ReadSlice('\n'))
}

// isDelimiter reports whether b, which follows a line end, ends the part. Like
// mime/multipart it takes a longer word for content.
func (f *framer) isDelimiter(b []byte) bool {
	rest, found := bytes.CutPrefix(b, f.dash)
	return found && (len(rest) == 0 || bytes.HasPrefix(rest, []byte("--")) || bytes.IndexByte([]byte(" \t\r\n"), rest[0]) >= 0)
}

// content hands out what is surely content, up to the next place where a
// delimiter may begin.
func (f *framer) content() ([]byte, error) {
	for {
		if _, err := f.src.Peek(1); err != nil {
			return nil, f.cutBy(err)
		}
		buf, _ := f.src.Peek(f.src.Buffered()) // no error: it is all there
		n := len(buf)
		if i := bytes.Index(buf, f.needle); i >= 0 {
			f.state, n = atLine, i+len(crlf)
		} else {
			n -= f.begun(buf)
		}
		if n == 0 {
			if _, err := f.src.Peek(len(buf) + 1); err != nil {
				return nil, f.cutBy(err)
			}
			continue
		}
		_, err := f.src.Discard(n) // only what is buffered: buf stays valid
		return buf[:n], err
	}
}

// begun returns how many bytes at the end of buf may be the beginning of a
// delimiter, of which CR is the first byte and no other.
func (f *framer) begun(buf []byte) int {
	tail := buf[max(0, len(buf)-len(f.needle)+1):]
	if i := bytes.LastIndexByte(tail, '\r'); i >= 0 && bytes.HasPrefix(f.needle, tail[i:]) {
		return len(tail) - i
	}
	return 0
}

// rest reads what follows the closing delimiter to the end of the body. Only
// line ends and blanks may stand there.
func (f *framer) rest() error {
	for {
		c, err := f.src.ReadByte()
		switch {
		case err == io.EOF:
			return nil
		case err != nil:
			return err
		case bytes.IndexByte([]byte("\r\n \t"), c) < 0:
			return refuse(CodeMalformedMultipart, "", "bytes follow the closing delimiter %q; end the body there, with every part before it", f.closing())
		}
	}
}
