package envelope

import (
	"bytes"

	"github.com/verae/archive/wire"
)

// space is what JSON takes for white space.
const space = " \t\r\n"

// member returns where the value of a member of the object raw begins and ends.
// raw has passed wire.Decode: its syntax is beyond doubt, and no key is twice.
func member(raw []byte, name string) (from, to int, ok bool) {
	c := cursor{raw: raw}
	c.blank()
	for c.pos++; ; c.pos++ { // behind the brace, then behind every comma
		if c.blank(); c.pos >= len(raw) || raw[c.pos] != '"' {
			return 0, 0, false
		}
		start := c.pos
		c.text()
		key, err := wire.Decode[string](raw[start:c.pos])
		c.blank()
		c.pos++ // the colon
		c.blank()
		from = c.pos
		c.value()
		if err == nil && key == name {
			return from, c.pos, true
		}
		if c.blank(); c.pos >= len(raw) || raw[c.pos] != ',' {
			return 0, 0, false
		}
	}
}

// cursor steps over JSON of good syntax. On anything else it stops at the end.
type cursor struct {
	raw []byte
	pos int
}

func (c *cursor) blank() {
	for c.pos < len(c.raw) && bytes.IndexByte([]byte(space), c.raw[c.pos]) >= 0 {
		c.pos++
	}
}

// text steps over a string.
func (c *cursor) text() {
	for c.pos++; c.pos < len(c.raw) && c.raw[c.pos] != '"'; c.pos++ {
		if c.raw[c.pos] == '\\' {
			c.pos++
		}
	}
	c.pos = min(c.pos+1, len(c.raw))
}

// value steps over any value.
func (c *cursor) value() {
	depth := 0
	for c.pos < len(c.raw) {
		switch b := c.raw[c.pos]; b {
		case '"':
			if c.text(); depth == 0 {
				return
			}
			continue
		case '{', '[':
			depth++
		case '}', ']':
			if depth == 0 {
				return // of what the value stands in
			}
			if depth--; depth == 0 {
				c.pos++
				return
			}
		case ',', ' ', '\t', '\r', '\n':
			if depth == 0 {
				return
			}
		}
		c.pos++
	}
}
