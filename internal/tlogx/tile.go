package tlogx

import (
	"fmt"

	"golang.org/x/mod/sumdb/tlog"
)

// TileHeight is the height of the tiles of C2SP tlog-tiles, and TileWidth the
// number of hashes in a full one.
const (
	TileHeight = 8
	TileWidth  = 1 << TileHeight
)

// TileData returns the hashes of one tile (c2sp.org/tlog-tiles) of a log of the
// given size: width hashes of the tree's level 8·level, the first being number
// 256·n. A tile that the log does not have yet, or a width that is neither full
// nor partial, is an error.
func TileData(size int64, level int, n int64, width int, r tlog.HashReader) ([]byte, error) {
	if level < 0 || level*TileHeight > 62 || n < 0 || width < 1 || width > TileWidth {
		return nil, fmt.Errorf("tlogx: no tile with level %d, number %d, width %d", level, n, width)
	}
	have := size >> (level * TileHeight)
	if n > have/TileWidth || n*TileWidth+int64(width) > have {
		return nil, fmt.Errorf("tlogx: tile %d of level %d needs %d hashes, a log of size %d has fewer", n, level, width, size)
	}
	return tlog.ReadTileData(tlog.Tile{H: TileHeight, L: level, N: n, W: width}, r)
}
