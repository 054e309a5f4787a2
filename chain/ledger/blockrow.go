package ledger

import (
	"encoding/binary"
	"fmt"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/verae/archive/internal/tlogx"
)

// blockRow is one commit: the leaves first up to size, sealed at one time under
// one checkpoint.
type blockRow struct {
	index      int64
	first      int64
	count      int
	time       time.Time
	root       tlog.Hash // after the block
	before     *tlogx.Edge
	checkpoint []byte
}

// size returns the number of leaves in the log after the block.
func (b *blockRow) size() int64 { return b.first + int64(b.count) }

func (b *blockRow) encode() []byte {
	peaks := b.before.Peaks()
	row := make([]byte, 0, blockRowFixed+len(peaks)*tlog.HashSize+2+len(b.checkpoint)+crcSize)
	row = append(row, rowVersion)
	row = binary.BigEndian.AppendUint64(row, uint64(b.first))
	row = binary.BigEndian.AppendUint32(row, uint32(b.count))
	row = binary.BigEndian.AppendUint64(row, uint64(b.time.UnixNano()))
	row = append(row, b.root[:]...)
	for _, p := range peaks {
		row = append(row, p[:]...)
	}
	row = binary.BigEndian.AppendUint16(row, uint16(len(b.checkpoint)))
	row = append(row, b.checkpoint...)
	return appendCRC(row, numberKey(prefixBlock, b.index))
}

func decodeBlock(index int64, row []byte) (*blockRow, error) {
	b, err := openRow(row, numberKey(prefixBlock, index), blockRowFixed+2+crcSize)
	if err != nil {
		return nil, err
	}
	out := &blockRow{
		index: index,
		first: int64(binary.BigEndian.Uint64(b[1:])),
		count: int(binary.BigEndian.Uint32(b[9:])),
		time:  time.Unix(0, int64(binary.BigEndian.Uint64(b[13:]))).UTC(),
		root:  tlog.Hash(b[21:53]),
	}
	rest := b[blockRowFixed:]
	peaks := make([]tlog.Hash, tlogx.PeakCount(out.first))
	if out.first < 0 || out.count < 1 || out.size() < out.first || out.time.UnixNano() < 0 || len(rest) < len(peaks)*tlog.HashSize+2 {
		return nil, fmt.Errorf("%w: block %d", errRow, index)
	}
	for i := range peaks {
		peaks[i], rest = tlog.Hash(rest[:tlog.HashSize]), rest[tlog.HashSize:]
	}
	if out.before, err = tlogx.EdgeOf(out.first, peaks); err != nil {
		return nil, fmt.Errorf("%w: block %d: %w", errRow, index, err)
	}
	if int(binary.BigEndian.Uint16(rest)) != len(rest)-2 {
		return nil, fmt.Errorf("%w: length of the checkpoint of block %d", errRow, index)
	}
	out.checkpoint = append([]byte(nil), rest[2:]...)
	return out, nil
}
