package pebblex

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/sstable/block"
	"github.com/cockroachdb/pebble/v2/sstable/colblk"
)

// keySchema is the one that a Pebble with default options writes.
var keySchema = colblk.DefaultKeySchema(pebble.DefaultComparer, 16)

// read checks and decodes the block and calls f for each of its keys; the slices
// are valid during the call only.
func (b *salvagedBlock) read(r io.ReaderAt, f func(key, value []byte) error) error {
	data, err := b.load(r)
	if err != nil {
		return err
	}
	return eachIn(data, f)
}

func (b *salvagedBlock) load(r io.ReaderAt) (data []byte, err error) {
	defer func() {
		if r := recover(); r != nil { // of an unknown compression
			err = fmt.Errorf("%v", r)
		}
	}()
	if b.handle.Length > maxBlock {
		return nil, errors.New("its length can not be right")
	}
	raw := make([]byte, b.handle.Length+block.TrailerLen)
	if n, err := r.ReadAt(raw, int64(b.handle.Offset)); n < len(raw) {
		return nil, err
	}
	body, kind := raw[:b.handle.Length], raw[b.handle.Length]
	var sums block.Checksummer
	sums.Init(b.sums)
	if sums.Checksum(body, kind) != binary.LittleEndian.Uint32(raw[b.handle.Length+1:]) {
		return nil, errors.New("wrong checksum")
	}
	if kind == byte(block.NoCompressionIndicator) {
		return append(make([]byte, 0, len(body)), body...), nil // at an aligned address
	}
	n, err := block.DecompressedLen(block.CompressionIndicator(kind), body)
	if err != nil || n > maxBlock {
		return nil, fmt.Errorf("decompress to %d bytes: %w", n, err)
	}
	data = make([]byte, n)
	return data, block.DecompressInto(block.CompressionIndicator(kind), body, data)
}

// The columns of a data block: those of its keys and five more (trailer, prefix
// changed, value, value is elsewhere, obsolete). Before the columns are the
// length of the longest key and a header.
const (
	moreColumns  = 5
	beforeHeader = 4
	headerLen    = 7
	columnLen    = 5
)

// hasColumns reports whether data has the header of a data block; the decoder
// must not see less.
func hasColumns(data []byte) bool {
	columns := len(keySchema.ColumnTypes) + moreColumns
	if len(data) <= beforeHeader+headerLen+columns*columnLen {
		return false
	}
	h := colblk.DecodeHeader(data[beforeHeader:])
	return h.Version == colblk.Version1 && int(h.Columns) == columns && h.Rows > 0
}

// eachIn calls f for every key of a data block. Anything but the setting of a
// key is an error: an append-only store holds nothing else.
func eachIn(data []byte, f func(key, value []byte) error) (err error) {
	defer func() {
		if r := recover(); r != nil { // the decoder trusts what has a right checksum
			err = fmt.Errorf("not a block of data: %v", r)
		}
	}()
	if !hasColumns(data) {
		return errors.New("not a block of data")
	}
	var decoder colblk.DataBlockDecoder
	decoder.Init(&keySchema, data)
	var it colblk.DataBlockIter
	it.InitOnce(&keySchema, pebble.DefaultComparer, nil)
	if err := it.Init(&decoder, block.NoTransforms); err != nil {
		return err
	}
	for kv := it.First(); kv != nil; kv = it.Next() {
		if kind := kv.K.Kind(); kind != pebble.InternalKeyKindSet {
			return fmt.Errorf("%s of key %x", kind, kv.K.UserKey)
		}
		if err := f(kv.K.UserKey, kv.InPlaceValue()); err != nil {
			return err
		}
	}
	return nil
}
