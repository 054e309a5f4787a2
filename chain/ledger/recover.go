package ledger

import (
	"bytes"
	"errors"
	"fmt"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/internal/tlogx"
)

// checkMeta refuses a key that is not the store's.
func checkMeta(db pebble.Reader, key signingKey) error {
	row, closer, err := db.Get(metaKey())
	if errors.Is(err, pebble.ErrNotFound) {
		return fault.New(fault.Corrupt, "LEDGER_DAMAGED", "ledger: the store has no meta row: it is not a ledger's, or it is damaged")
	}
	if err != nil {
		return fault.Wrap(kindOf(err), fmt.Errorf("ledger: meta row: %w", err))
	}
	m, err := decodeMeta(row)
	if err := errors.Join(err, closer.Close()); err != nil {
		return fault.Wrap(fault.Corrupt, fmt.Errorf("ledger: meta row: %w", err))
	}
	if m.vkey != key.vkey {
		return fault.New(fault.Conflict, "LEDGER_KEY", "ledger: the store was made with the key %s, ledger.key is %s; put the original key file back", m.vkey, key.vkey)
	}
	return nil
}

// recover reads where the log stands and checks that its newest block, its tree
// hashes and its leaves agree.
func (l *Ledger) recover() (*head, error) {
	b, err := l.lastBlock()
	if err != nil {
		return nil, err
	}
	if b == nil {
		l.edge = &tlogx.Edge{}
		empty := tlogx.Checkpoint{Origin: l.cfg.Origin, Root: l.edge.Root()}
		signed, err := empty.Sign(l.key.signer)
		if err != nil {
			return nil, fmt.Errorf("ledger: %w", err)
		}
		return &head{root: empty.Root, checkpoint: signed, time: time.Unix(0, 0).UTC()}, l.endsAt(0)
	}
	if l.edge, err = tlogx.LoadEdge(b.size(), hashReader(l.db)); err != nil {
		return nil, damaged("%w", err)
	}
	want := tlogx.Checkpoint{Origin: l.cfg.Origin, Size: b.size(), Root: l.edge.Root()}
	signed, err := tlogx.OpenCheckpoint(b.checkpoint, l.key.verifier)
	if err != nil {
		return nil, damaged("checkpoint of block %d: %w", b.index, err)
	}
	if signed != want || b.root != want.Root {
		return nil, damaged("block %d, the newest, is of size %d under a checkpoint of size %d, and the tree has another root", b.index, b.size(), signed.Size)
	}
	return &head{blocks: b.index + 1, size: b.size(), time: b.time, root: b.root, checkpoint: b.checkpoint}, l.endsAt(b.size())
}

// lastBlock returns the newest block, or nil if there is none.
func (l *Ledger) lastBlock() (_ *blockRow, err error) {
	it, err := l.db.NewIter(&pebble.IterOptions{LowerBound: []byte{prefixBlock}, UpperBound: []byte{prefixBlock + 1}})
	if err != nil {
		return nil, fmt.Errorf("ledger: newest block: %w", err)
	}
	defer func() { err = errors.Join(err, it.Close()) }()
	if !it.Last() {
		return nil, fault.Wrap(kindOf(it.Error()), it.Error())
	}
	index, err := numberOf(it.Key())
	if err != nil {
		return nil, damaged("%w", err)
	}
	return l.readBlock(l.db, index)
}

// endsAt checks that leaves and tree hashes end where the log of a size ends.
func (l *Ledger) endsAt(size int64) error {
	for prefix, count := range map[byte]int64{prefixLeaf: size, prefixHash: tlog.StoredHashCount(size)} {
		if err := endsAt(l.db, prefix, count); err != nil {
			return err
		}
	}
	return nil
}

func endsAt(db pebble.Reader, prefix byte, count int64) (err error) {
	it, err := db.NewIter(&pebble.IterOptions{LowerBound: []byte{prefix}, UpperBound: []byte{prefix + 1}})
	if err != nil {
		return fmt.Errorf("ledger: %w", err)
	}
	defer func() { err = errors.Join(err, it.Close()) }()
	ok := it.Last()
	if err := it.Error(); err != nil {
		return fault.Wrap(kindOf(err), fmt.Errorf("ledger: %w", err))
	}
	if ok != (count > 0) || ok && !bytes.Equal(it.Key(), numberKey(prefix, count-1)) {
		return damaged("the rows %q do not end at number %d", prefix, count-1)
	}
	return nil
}

// damaged reports a store that contradicts itself.
func damaged(format string, args ...any) error {
	return fault.New(fault.Corrupt, "LEDGER_DAMAGED", "ledger: the store is damaged: %w; restore it from a copy", fmt.Errorf(format, args...))
}

// kindOf is the kind of an error that came out of the store.
func kindOf(err error) fault.Kind {
	if pebble.IsCorruptionError(err) || errors.Is(err, errRow) {
		return fault.Corrupt
	}
	return fault.KindOf(err)
}
