package pebblex

import (
	"bytes"
	"fmt"
	"sort"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// tableCursor goes over the keys of a table. It opens the file when it is its
// turn and holds one block.
type tableCursor struct {
	fs      vfs.FS
	table   *salvagedTable
	block   int // the next to read
	lower   []byte
	file    vfs.File
	entries []keyValue // of the block before
	at      int
}

type keyValue struct{ key, value []byte }

// cursor returns a cursor, or nil if no block can have a key in the range.
func (t *salvagedTable) cursor(fs vfs.FS, lower, upper []byte) source {
	// The last block that begins at or before lower may hold it.
	i := max(0, sort.Search(len(t.blocks), func(i int) bool { return bytes.Compare(t.blocks[i].first, lower) > 0 })-1)
	if bytes.Compare(t.blocks[i].first, upper) >= 0 {
		return nil
	}
	return &tableCursor{fs: fs, table: t, block: i, lower: lower}
}

func (c *tableCursor) path() string { return c.table.path }

// key is the key at hand or, as long as no block was read, one that is not
// greater than the first.
func (c *tableCursor) key() []byte {
	if c.at < len(c.entries) {
		return c.entries[c.at].key
	}
	if first := c.table.blocks[c.block].first; bytes.Compare(first, c.lower) > 0 {
		return first
	}
	return c.lower
}

func (c *tableCursor) value() []byte { return c.entries[c.at].value }

func (c *tableCursor) loaded() bool { return c.at < len(c.entries) }

func (c *tableCursor) next() (bool, error) {
	if c.at++; c.at < len(c.entries) {
		return true, nil
	}
	return c.block < len(c.table.blocks), nil
}

// load reads blocks until one has a key from lower on.
func (c *tableCursor) load() (more bool, err error) {
	c.entries, c.at = nil, 0
	for c.block < len(c.table.blocks) {
		if c.file == nil {
			if c.file, err = c.fs.Open(c.table.path); err != nil {
				return false, fmt.Errorf("pebblex: salvage: %w", err)
			}
		}
		b := &c.table.blocks[c.block]
		c.block++
		err := b.read(c.file, func(key, value []byte) error {
			if bytes.Compare(key, c.lower) >= 0 {
				c.entries = append(c.entries, keyValue{bytes.Clone(key), value})
			}
			return nil
		})
		if err != nil {
			return false, fmt.Errorf("pebblex: salvage %s at %d: it was readable before: %w", c.table.path, b.handle.Offset, err)
		}
		if len(c.entries) > 0 {
			return true, nil
		}
	}
	return false, nil
}

func (c *tableCursor) close() error {
	if c.file == nil {
		return nil
	}
	f := c.file
	c.file = nil
	return f.Close()
}
