package pebblex

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"sort"
	"strconv"
	"strings"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/batchrepr"
	"github.com/cockroachdb/pebble/v2/record"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// logBlock is the length of the blocks that a log is written in, in bytes. A
// reader can begin anew at each. The low half of the log's number is at logNumber
// in the header of a chunk.
const (
	logBlock  = 32 << 10
	logNumber = 7
	logHeader = 19
)

// salvagedLog is what a log holds.
type salvagedLog struct {
	path    string
	entries []keyValue // by key; a key may be there with several values
}

// openLog reads the batches of a log. Behind a chunk that is damaged it goes on
// with the next block in which a batch begins.
//
// A log is written over an older one, so that its end is what the older one left
// there, or zeros, or a batch whose writing was cut. None of it is damage: only
// batches that follow prove that something was there.
func (s *Salvage) openLog(path string) {
	base := strings.TrimSuffix(s.fs.PathBase(path), ".log")
	number, err := strconv.ParseUint(base, 10, 64)
	if err != nil {
		s.damage(path, -1, "not the name of a log")
		return
	}
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
	l := &salvagedLog{path: path}
	var stopped error // why the batches ended
	var stoppedAt int64
	for begin := int64(0); begin < info.Size(); {
		if begin > 0 && !begins(f, begin, uint32(number)) {
			begin += logBlock
			continue
		}
		end, batches, err := s.readLog(l, f, begin, info.Size(), number)
		if batches > 0 && stopped != nil {
			s.damage(path, stoppedAt, "batches are missing before %d: %v", begin, stopped)
			stopped = nil
		}
		if err == nil {
			break
		}
		if stopped == nil {
			stopped, stoppedAt = err, end
		}
		begin = (end/logBlock + 1) * logBlock
	}
	if stopped != nil && len(l.entries) == 0 && begins(f, 0, uint32(number)) {
		s.damage(path, stoppedAt, "no batch can be read: %v", stopped)
	}
	slices.SortStableFunc(l.entries, func(a, b keyValue) int { return bytes.Compare(a.key, b.key) })
	if len(l.entries) > 0 {
		s.logs = append(s.logs, l)
	}
}

// begins reports whether a block may be one of the log with a number.
func begins(f io.ReaderAt, at int64, number uint32) bool {
	var head [logHeader]byte
	if n, _ := f.ReadAt(head[:], at); n < len(head) {
		return false
	}
	return binary.LittleEndian.Uint32(head[logNumber:]) == number
}

// newLogReader calls record.NewReader, whose second argument has a type that only
// Pebble can name.
func newLogReader[T ~uint64](open func(io.Reader, T) *record.Reader, r io.Reader, number uint64) *record.Reader {
	return open(r, T(number))
}

// readLog reads batches from the block at begin on, until one can not be read.
// end is where that one begins.
func (s *Salvage) readLog(l *salvagedLog, f vfs.File, begin, size int64, number uint64) (end int64, batches int, err error) {
	r := newLogReader(record.NewReader, io.NewSectionReader(f, begin, size-begin), number)
	for {
		end = begin + r.Offset()
		one, err := r.Next()
		if errors.Is(err, io.EOF) {
			return end, batches, nil
		}
		var repr []byte
		if err == nil {
			repr, err = io.ReadAll(one)
		}
		if err != nil {
			return end, batches, err
		}
		batches++
		if err := l.add(repr); err != nil {
			s.damage(l.path, end, "a batch of %d bytes: %v", len(repr), err)
		}
	}
}

// add takes in the keys of a batch.
func (l *salvagedLog) add(repr []byte) error {
	h, ok := batchrepr.ReadHeader(repr)
	if !ok {
		return errors.New("it has no header")
	}
	keys := uint32(0)
	for r := batchrepr.Read(repr); ; keys++ {
		kind, key, value, ok, err := r.Next()
		switch {
		case err != nil:
			return err
		case !ok && keys != h.Count:
			return fmt.Errorf("%d keys, its header says %d", keys, h.Count)
		case !ok:
			return nil
		case kind == pebble.InternalKeyKindLogData:
			keys-- // is not counted
		case kind != pebble.InternalKeyKindSet:
			return fmt.Errorf("%s of key %x", kind, key)
		default:
			l.entries = append(l.entries, keyValue{key, value})
		}
	}
}

// logCursor goes over a range of the entries of a log.
type logCursor struct {
	log     *salvagedLog
	entries []keyValue
}

func (l *salvagedLog) cursor(lower, upper []byte) source {
	at := func(key []byte) int {
		return sort.Search(len(l.entries), func(i int) bool { return bytes.Compare(l.entries[i].key, key) >= 0 })
	}
	if i, j := at(lower), at(upper); i < j {
		return &logCursor{l, l.entries[i:j]}
	}
	return nil
}

func (c *logCursor) key() []byte         { return c.entries[0].key }
func (c *logCursor) value() []byte       { return c.entries[0].value }
func (c *logCursor) path() string        { return c.log.path }
func (c *logCursor) loaded() bool        { return true }
func (c *logCursor) load() (bool, error) { return true, nil }
func (c *logCursor) close() error        { return nil }

func (c *logCursor) next() (bool, error) {
	c.entries = c.entries[1:]
	return len(c.entries) > 0, nil
}
