package archive

import (
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"github.com/verae/archive/bloom"
	"github.com/verae/archive/mirror"
	"github.com/verae/archive/wire"
)

// Bounds of what a viewing remembers.
const (
	maxViewerKeys    = 4096
	maxSharedRecords = 1024
)

// viewerKey is what the pairs of a viewer are hashed under.
type viewerKey = [16]byte

// viewing is the hashing of the filter views: a record gives a pair for each of its
// viewers and each digest that it is indexed under. Viewers are its owner and those
// of its shares that admit it, wire.Public among them, and nobody else: who has a
// pair is told by who is asked, and how long that takes. Control records, which are
// shown to nobody, give their owner's too. Of a lost record only the owner is told.
//
// It remembers keys and shares, if it has maps to do so, and is for one goroutine.
type viewing struct {
	n       *Node
	secret  [16]byte
	known   map[wire.TenantID]viewerKey
	shared  map[uint64][]viewerKey // by seq: who may see a record by its shares
	viewers []viewerKey            // used again
}

// newViewing returns a viewing that remembers.
func (n *Node) newViewing() *viewing {
	return &viewing{n: n, secret: n.secret.Key, known: map[wire.TenantID]viewerKey{}, shared: map[uint64][]viewerKey{}}
}

func (v *viewing) record(dst []bloom.Hash, rec *wire.PutRecord, places []place) []bloom.Hash {
	v.viewers = append(v.viewers[:0], v.key(rec.TenantID))
	for _, s := range rec.ShareWith {
		if s.Admits(rec.Kind) {
			v.viewers = append(v.viewers, v.key(s.TenantID))
		}
	}
	for _, viewer := range v.viewers {
		for _, at := range places {
			dst = append(dst, bloom.HashKey(viewer, at.digest))
		}
	}
	return dst
}

// row reads the record of a row that has shares: whom they name is not in the row.
// Its errors are errRow, errFrame and those of the store.
func (v *viewing) row(dst []bloom.Hash, digest [digestLen]byte, seq uint64, value []byte) ([]bloom.Hash, error) {
	r, err := decodeRow(value)
	if err != nil {
		return dst, fmt.Errorf("index row of %x at seq %d: %w", digest, seq, err)
	}
	dst = append(dst, bloom.HashKey(v.key(r.tenant), digest))
	if !r.shared || r.kind == wire.KindPrivateMetadata || v.n.lost.has(seq) {
		return dst, nil
	}
	shared, ok := v.shared[seq]
	if !ok {
		if shared, err = v.sharedWith(seq); err != nil {
			return dst, err
		}
	}
	for _, viewer := range shared {
		dst = append(dst, bloom.HashKey(viewer, digest))
	}
	return dst, nil
}

// sharedWith returns the keys of those who may see the record with a number by its
// shares, and remembers them.
func (v *viewing) sharedWith(seq uint64) (shared []viewerKey, err error) {
	data, closer, err := v.n.db.Get(logKey(seq))
	if errors.Is(err, pebble.ErrNotFound) {
		return nil, fmt.Errorf("%w: seq %d is indexed and not in the log", errFrame, seq)
	}
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, closer.Close()) }()
	f, err := decodeFrame(data)
	if err == nil && (f.lost || f.Seq != seq) {
		err = fmt.Errorf("%w: a stub, or of seq %d", errFrame, f.Seq)
	}
	if err != nil {
		return nil, fmt.Errorf("seq %d: %w", seq, err)
	}
	for _, s := range f.ShareWith {
		if (wire.Share{Mode: s.Mode}).Admits(wire.Kind(f.Kind)) {
			shared = append(shared, v.key(wire.TenantID(s.TenantID)))
		}
	}
	if len(v.shared) >= maxSharedRecords {
		clear(v.shared)
	}
	if v.shared != nil {
		v.shared[seq] = shared
	}
	return shared, nil
}

// key returns the key of a viewer.
func (v *viewing) key(viewer wire.TenantID) viewerKey {
	if key, ok := v.known[viewer]; ok {
		return key
	}
	key := mirror.ViewerKey(v.secret, viewer)
	if len(v.known) >= maxViewerKeys {
		clear(v.known)
	}
	if v.known != nil {
		v.known[viewer] = key
	}
	return key
}

// rowTrouble sorts the errors of hashing a row.
func (n *Node) rowTrouble(err error) error {
	if errors.Is(err, errRow) || errors.Is(err, errFrame) {
		return n.damaged("%w", err)
	}
	return n.readError(err)
}
