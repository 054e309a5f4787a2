package archive

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/verae/archive/wire"
)

// role says why a record is indexed under a digest. One digest can have several:
// a small file is its own only block.
type role byte

const (
	roleSubject role = 1 << iota // the digest that the record is about
	roleRecord                   // the record's own id
	roleFile                     // SHA-256 of the file
	roleBlock                    // multihash digest of a block of the file
	roleEnd
)

const (
	rowVersion = 1
	rowShared  = 1 // flag: the record has shares
	rowFixed   = 1 + 1 + 1 + 8 + digestLen + 1
	rowRoles   = 1 // where the roles are
)

// row is the value of an index key: enough to tell most callers that the record
// is not for them without reading it.
type row struct {
	roles    role
	shared   bool
	storedAt int64 // nanoseconds since 1970
	id       wire.RecordID
	kind     wire.Kind
	tenant   wire.TenantID
}

func (r row) encode() []byte {
	return r.append(make([]byte, 0, rowFixed+len(r.kind)+len(r.tenant)))
}

func (r row) append(b []byte) []byte {
	flags := byte(0)
	if r.shared {
		flags = rowShared
	}
	b = append(b, rowVersion, byte(r.roles), flags)
	b = binary.BigEndian.AppendUint64(b, uint64(r.storedAt))
	b = append(b, r.id[:]...)
	b = append(b, byte(len(r.kind)))
	b = append(b, r.kind...)
	return append(b, r.tenant...)
}

var errRow = errors.New("not an index row")

// decodeRow reads an index row. The result shares nothing with b.
func decodeRow(b []byte) (row, error) {
	if len(b) < rowFixed {
		return row{}, fmt.Errorf("%w: %d bytes", errRow, len(b))
	}
	kindLen := int(b[rowFixed-1])
	switch {
	case b[0] != rowVersion:
		return row{}, fmt.Errorf("%w: version %d", errRow, b[0])
	case role(b[1]) == 0 || role(b[1]) >= roleEnd:
		return row{}, fmt.Errorf("%w: roles %#x", errRow, b[1])
	case b[2] > rowShared:
		return row{}, fmt.Errorf("%w: flags %#x", errRow, b[2])
	case len(b) < rowFixed+kindLen:
		return row{}, fmt.Errorf("%w: a kind of %d bytes in %d", errRow, kindLen, len(b))
	}
	return row{
		roles:    role(b[1]),
		shared:   b[2]&rowShared != 0,
		storedAt: int64(binary.BigEndian.Uint64(b[3:])),
		id:       wire.RecordID(b[11 : 11+digestLen]),
		kind:     wire.Kind(b[rowFixed : rowFixed+kindLen]),
		tenant:   wire.TenantID(b[rowFixed+kindLen:]),
	}, nil
}

// mayShow reports whether viewer might see the record behind the row. False is
// final; true has to be confirmed by the record itself.
func (r row) mayShow(viewer wire.TenantID) bool {
	if r.kind.Control() {
		return false
	}
	return r.tenant == viewer || r.shared && r.kind != wire.KindPrivateMetadata
}

// place is a digest under which a record is indexed, with the reasons.
type place struct {
	digest [digestLen]byte
	roles  role
}

// placesOf lists the digests under which a record is indexed, each once. blocks
// are the multihash digests of its file's blocks.
func placesOf(r *wire.PutRecord, id wire.RecordID, blocks [][digestLen]byte) []place {
	return appendPlaces(make([]place, 0, 3+len(blocks)), r, id, blocks)
}

// fewBlocks is up to how many blocks their digests are compared one by one.
const fewBlocks = 8

// appendPlaces appends what placesOf returns to places, which is empty.
func appendPlaces(places []place, r *wire.PutRecord, id wire.RecordID, blocks [][digestLen]byte) []place {
	var at map[[digestLen]byte]int // of places; nil for few
	if len(blocks) > fewBlocks {
		at = make(map[[digestLen]byte]int, 3+len(blocks))
	}
	add := func(digest [digestLen]byte, why role) {
		i, ok := at[digest]
		if at == nil {
			i = slices.IndexFunc(places, func(p place) bool { return p.digest == digest })
			ok = i >= 0
		}
		if ok {
			places[i].roles |= why
			return
		}
		if at != nil {
			at[digest] = len(places)
		}
		places = append(places, place{digest, why})
	}
	add(r.SHA256, roleSubject)
	add(id, roleRecord)
	if r.File != nil {
		add(r.File.SHA256, roleFile)
	}
	for _, b := range blocks {
		add(b, roleBlock)
	}
	return places
}
