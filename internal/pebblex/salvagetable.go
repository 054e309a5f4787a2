package pebblex

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/sstable/block"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// maxBlock bounds a data block of a table, in bytes. A block is larger than
// blockSize only if one value is.
const maxBlock = 64 << 20

// salvagedTable is a table of which at least one block can be read.
type salvagedTable struct {
	path   string
	blocks []salvagedBlock // in the order of their keys
}

// salvagedBlock is a block that was read once, and its checksum found right.
type salvagedBlock struct {
	handle block.Handle
	sums   block.ChecksumType
	first  []byte // its least key
}

// openTable finds the blocks of a table that can be read. Where they are is
// written at the end of the file; if that is damaged they are found from the
// begin on by their checksums.
func (s *Salvage) openTable(path string) {
	f, err := s.fs.Open(path)
	if err != nil {
		s.damage(path, -1, "%v", err)
		return
	}
	defer f.Close() // it was only read
	info, err := f.Stat()
	if err != nil {
		s.damage(path, -1, "%v", err)
		return
	}
	if info.Size() == 0 {
		s.damage(path, -1, "empty: a table that a crash kept from being written, or that was cut off")
		return
	}
	handles, sums, err := layoutOf(f)
	if err != nil {
		s.damage(path, -1, "the index can not be read, the blocks are looked for one by one: %v", err)
		s.walkTable(path, f, info.Size())
		return
	}
	t := &salvagedTable{path: path}
	for _, h := range handles {
		s.addBlock(t, f, h, sums)
	}
	s.addTable(t)
}

func (s *Salvage) addTable(t *salvagedTable) {
	if len(t.blocks) > 0 {
		s.tables = append(s.tables, t)
	}
}

// addBlock reads a block and adds it to t if it is whole.
func (s *Salvage) addBlock(t *salvagedTable, f io.ReaderAt, h block.Handle, sums block.ChecksumType) {
	b := salvagedBlock{handle: h, sums: sums}
	var last []byte
	err := b.read(f, func(key, _ []byte) error {
		if b.first == nil {
			b.first = bytes.Clone(key)
		}
		last = append(last[:0], key...)
		return nil
	})
	if err != nil {
		s.damage(t.path, int64(h.Offset), "a block of %d bytes: %v", h.Length, err)
		return
	}
	if n := len(t.blocks); n > 0 && bytes.Compare(t.blocks[n-1].first, b.first) >= 0 {
		s.damage(t.path, int64(h.Offset), "a block of %d bytes is out of order", h.Length)
		return
	}
	if b.first != nil {
		t.blocks = append(t.blocks, b)
	}
}

// layoutOf returns the data blocks that the index of a table names.
func layoutOf(f vfs.File) (handles []block.Handle, sums block.ChecksumType, err error) {
	defer func() {
		if r := recover(); r != nil { // the reader panics on what it does not know
			err = fmt.Errorf("not a table of ours: %v", r)
		}
	}()
	readable, err := sstable.NewSimpleReadable(unclosed{f})
	if err != nil {
		return nil, 0, err
	}
	r, err := sstable.NewReader(context.Background(), readable, sstable.ReaderOptions{KeySchemas: sstable.MakeKeySchemas(&keySchema)})
	if err != nil {
		return nil, 0, err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	layout, err := r.Layout()
	if err != nil {
		return nil, 0, err
	}
	if !layout.Format.BlockColumnar() {
		return nil, 0, fmt.Errorf("a table of format %s", layout.Format)
	}
	for _, d := range layout.Data {
		handles = append(handles, d.Handle)
	}
	return handles, r.BlockReader().ChecksumType(), nil
}

// unclosed keeps a table reader from closing a file that is still needed.
type unclosed struct{ vfs.File }

// Close does nothing.
func (unclosed) Close() error { return nil }

// walkTable finds the data blocks of a table without its index. They come first
// and without gaps, and each ends in its checksum. Nothing tells where a damaged
// one ends, so the walk ends there.
func (s *Salvage) walkTable(path string, f io.ReaderAt, size int64) {
	t := &salvagedTable{path: path}
	at := int64(0)
	for at < size {
		length, err := findBlock(f, at, size)
		if err != nil {
			s.damage(path, at, "%v", err)
			break
		}
		b := salvagedBlock{handle: block.Handle{Offset: uint64(at), Length: uint64(length)}, sums: block.ChecksumTypeCRC32c}
		if length < 0 || b.read(f, func([]byte, []byte) error { return nil }) != nil {
			break // the index, a filter, or damage
		}
		s.addBlock(t, f, b.handle, b.sums)
		at += length + block.TrailerLen
	}
	s.damage(path, at, "nothing behind this place could be read as data (%d of %d bytes)", size-at, size)
	s.addTable(t)
}

// findBlock returns the length of the block that begins at an offset, or -1: it
// is followed by the kind of its compression (1 byte) and the checksum of both.
func findBlock(f io.ReaderAt, at, size int64) (length int64, err error) {
	most := min(size-at, maxBlock)
	for try := int64(4 * blockSize); ; try *= 2 {
		buf := make([]byte, min(try, most))
		if n, err := f.ReadAt(buf, at); n < len(buf) {
			return -1, err
		}
		if length = firstSum(buf); length >= 0 || try >= most {
			return length, nil
		}
	}
}

// firstSum returns the least n > 0 for which buf holds n bytes, one byte, and the
// checksum of both as Pebble writes it; -1 if there is none.
func firstSum(buf []byte) int64 {
	table := crc32.MakeTable(crc32.Castagnoli)
	sum := ^uint32(0)
	for i := 0; i+block.TrailerLen <= len(buf); i++ {
		sum = table[byte(sum)^buf[i]] ^ sum>>8
		crc := ^sum
		if i > 0 && (crc>>15|crc<<17)+0xa282ead8 == binary.LittleEndian.Uint32(buf[i+1:]) {
			return int64(i)
		}
	}
	return -1
}
