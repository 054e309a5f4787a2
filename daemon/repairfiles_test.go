package daemon

import (
	"context"
	"errors"
	"testing"

	"github.com/verae/archive/archive"
	"github.com/verae/archive/blob"
	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/wire"
)

// onePeer is an archive that answers every question for a file alike.
type onePeer struct {
	archive.Peers
	data []byte
	size int64
	err  error
}

func (p onePeer) Alive() []wire.ArchiveID { return []wire.ArchiveID{"archive-b"} }

func (p onePeer) File(context.Context, wire.ArchiveID, wire.Digest, string, int64, int) ([]byte, int64, error) {
	return p.data, p.size, p.err
}

// A file is lost only if whoever was asked has told that he has none, or has
// sent what is none: not if he could not tell, nor if this disk did not take it.
func TestRepairGivesUpNoFileThatAPeerMayHave(t *testing.T) {
	full := errors.New("input/output error")
	for name, tc := range map[string]struct {
		peer  onePeer
		write error
		kind  fault.Kind // of what the source says
		lost  bool       // if nobody else has it
	}{
		"has none":          {onePeer{err: fault.New(fault.NotFound, archive.CodeNoFile, "no")}, nil, fault.NotFound, true},
		"has a damaged one": {onePeer{err: fault.New(fault.Corrupt, "BLOB_CORRUPT", "no")}, nil, fault.NotFound, true},
		"another length":    {onePeer{data: []byte("abcd"), size: 4}, nil, fault.NotFound, true},
		"other bytes":       {onePeer{data: []byte("abc"), size: 3}, fault.New(fault.Invalid, blob.CodeSizeMismatch, "no"), fault.Invalid, true},
		"is silent":         {onePeer{err: fault.New(fault.Transient, "TIMEOUT", "no")}, nil, fault.Transient, false},
		"fails":             {onePeer{err: errors.New("input/output error")}, nil, fault.Internal, false},
		"this disk fails":   {onePeer{data: []byte("abc"), size: 3}, full, fault.Internal, false},
	} {
		t.Run(name, func(t *testing.T) {
			var silent error
			sources := (&archiveRepair{peers: tc.peer}).sources(&silent)
			err := sources[0](t.Context(), blob.FileRef{Size: 3}, func([]byte) error { return tc.write })
			if err == nil || fault.KindOf(err) != tc.kind || (silent == nil) != tc.lost {
				t.Errorf("%v, silent: %v", err, silent)
			}
		})
	}
}
