package archive

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/wire"
)

// filePage is how many files are collected under one iterator, which keeps old
// tables from being removed.
const filePage = 1000

// namedFile is a file and the first record of those that name it.
type namedFile struct {
	sha256 [digestLen]byte
	seq    uint64
	id     wire.RecordID
}

// lookForFiles makes sure that the files are there that records up to last name:
// both stores of an archive are written in turn, and an older copy of the files,
// or one whose end was lost, contradicts nothing but the records. What is missing
// is damage, and so is what the disk refuses to tell of. Any other failure is
// tried again every minute until ctx ends.
//
// A file costs a look at two rows and at the length of a file: some ten
// microseconds, or a few reads of a disk that has not read them lately.
func (n *Node) lookForFiles(ctx context.Context, last uint64) {
	if n.cfg.Files == nil {
		return
	}
	n.background.Go(func() { n.watchLostFiles(ctx) })
	began, looked, missing := time.Now(), 0, 0
	for from, _ := prefixBounds(prefixIndex); from != nil; {
		files, next, err := n.filesFrom(from, last)
		lacking := 0
		for i := 0; i < len(files) && err == nil; i++ {
			var there bool
			if there, err = n.holdsFile(ctx, files[i]); err == nil && !there {
				lacking++
			}
		}
		switch {
		case ctx.Err() != nil:
			return // closing
		case fault.Is(err, fault.Corrupt):
			return // noted
		case err != nil:
			n.cfg.Log.Error("the files that records name can not be looked for; it is tried again", "err", err)
			if !sleep(ctx, scrubRetry) {
				return
			}
			continue
		}
		looked, missing, from = looked+len(files), missing+lacking, next
	}
	if missing > 0 {
		n.cfg.Log.Error("files that records name are missing", "files", missing, "of", looked, "dur", time.Since(began))
		return
	}
	n.cfg.Log.Info("the files that records name are there, but for those known to be lost", "files", looked, "lost", len(n.stillLost()), "dur", time.Since(began))
}

// holdsFile reports whether a file is there, or known to be lost, and quarantines
// the archive if not.
func (n *Node) holdsFile(ctx context.Context, f namedFile) (there bool, err error) {
	if n.FileLost(f.sha256) {
		return true, nil
	}
	there, err = n.cfg.Files.Holds(ctx, f.sha256)
	switch {
	case fault.Is(err, fault.Corrupt):
		return false, n.damaged("seq %d: file %x of record %s: %w", f.seq, f.sha256, f.id, err)
	case err != nil:
		return false, n.readError(fmt.Errorf("file %x of record %s: %w", f.sha256, f.id, err))
	case !there:
		// The error is noted; the look goes on, to tell how many there are.
		_ = n.damaged("seq %d: record %s names file %x, which is not in the file store, or not in full length", f.seq, f.id, f.sha256)
	}
	return there, nil
}

// filesFrom returns files that records up to last name, from an index key on,
// and the key at which to go on, or nil. It leaves out records that are lost. A
// digest that is only the subject of records is no file.
func (n *Node) filesFrom(from []byte, last uint64) (files []namedFile, next []byte, err error) {
	_, end := prefixBounds(prefixIndex)
	it, err := n.iterate(from, end)
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, it.Close()) }()
	for valid := it.First(); valid; valid = it.Next() {
		digest, seq, ok := indexKeyParts(it.Key())
		if !ok {
			return nil, nil, n.damaged("index key %x", it.Key())
		}
		r, err := decodeRow(it.Value())
		if err != nil {
			return nil, nil, n.damaged("index row of %x at seq %d: %w", digest, seq, err)
		}
		known := len(files) > 0 && files[len(files)-1].sha256 == digest
		switch {
		case r.roles&roleFile == 0 || known || seq > last || n.lost.has(seq):
		case len(files) == filePage:
			return files, bytes.Clone(it.Key()), nil
		default:
			files = append(files, namedFile{digest, seq, r.id})
		}
	}
	return files, nil, n.readError(it.Error())
}
