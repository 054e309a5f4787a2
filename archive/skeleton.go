package archive

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	"github.com/verae/archive/wire"
)

// The skeleton of the log is a file outside the store: the envelope and id of
// every record, so that after the loss of the store's tail it is known what is
// missing, can be asked of others by id, and proves its leaves.
const (
	skeletonMagic   = "VRLV"
	skeletonVersion = 1
	skeletonHeader  = 16 // bytes: magic, version, zeros
	boneLen         = 8 + 8 + digestLen + 4
)

// bone is an entry of the skeleton.
type bone struct {
	seq      uint64
	storedAt int64
	id       wire.RecordID
}

func skeletonHead() []byte {
	head := make([]byte, skeletonHeader)
	copy(head, skeletonMagic)
	head[len(skeletonMagic)] = skeletonVersion
	return head
}

func (e bone) append(b []byte) []byte {
	from := len(b)
	b = binary.BigEndian.AppendUint64(b, e.seq)
	b = binary.BigEndian.AppendUint64(b, uint64(e.storedAt))
	b = append(b, e.id[:]...)
	return binary.BigEndian.AppendUint32(b, crc32.Checksum(b[from:], castagnoli))
}

var errSkeleton = errors.New("damaged skeleton")

func checkSkeletonHead(b []byte) error {
	if string(b) != string(skeletonHead()) {
		return fmt.Errorf("%w: header %x", errSkeleton, b)
	}
	return nil
}

// decodeBone reads an entry of boneLen bytes.
func decodeBone(b []byte) (bone, error) {
	if len(b) != boneLen {
		return bone{}, fmt.Errorf("%w: an entry of %d bytes", errSkeleton, len(b))
	}
	if crc32.Checksum(b[:boneLen-4], castagnoli) != binary.BigEndian.Uint32(b[boneLen-4:]) {
		return bone{}, fmt.Errorf("%w: wrong checksum", errSkeleton)
	}
	e := bone{
		seq: binary.BigEndian.Uint64(b), storedAt: int64(binary.BigEndian.Uint64(b[8:])),
		id: wire.RecordID(b[16 : 16+digestLen]),
	}
	if e.seq == 0 {
		return bone{}, fmt.Errorf("%w: seq 0", errSkeleton)
	}
	return e, nil
}
