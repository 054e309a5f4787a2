package archive

import (
	"context"

	"github.com/verae/archive/wire"
)

// Peers are the other archives, as far as they can be reached. Nothing they say
// is believed: a record is taken if its id is that of its bytes, a file if its
// digest and CID are. Package bus has the implementation over NATS; the methods
// may be called from many goroutines.
//
// A peer that does not answer in time is an error of kind fault.Transient. An
// answer that contradicts itself or the question is fault.Corrupt.
type Peers interface {
	// Has reports which records the archive can read now, in the order of ids;
	// at most wire.MaxSyncIDs.
	Has(ctx context.Context, archive wire.ArchiveID, ids []wire.RecordID) ([]bool, error)
	// Record returns a record whose id is id: it has been computed from what is
	// returned. fault.NotFound with code NO_RECORD says that it is not there.
	Record(ctx context.Context, archive wire.ArchiveID, id wire.RecordID) (wire.PutRecord, error)
	// File returns up to n bytes at off, at most wire.FragmentSize, of a file,
	// and the size that the peer says it has. The bytes are not verified: only
	// all of them together can be.
	File(ctx context.Context, archive wire.ArchiveID, sha256 wire.Digest, cid string, off int64, n int) (data []byte, size int64, err error)
	// Alive returns the other archives that were heard lately and answer
	// questions, whatever their state, sorted.
	Alive() []wire.ArchiveID
	// Remembered asks all live peers what they have heard archive say of itself,
	// and returns their answers, at most wire.MaxGenerations of each. It fails
	// only when no peer answered; with no live peer it returns nothing.
	Remembered(ctx context.Context, archive wire.ArchiveID) ([]wire.Remembered, error)
}

// Fleet is Peers with what it takes to move copies between them.
type Fleet interface {
	Peers
	// IDs returns a page of an archive's records after a sequence number.
	IDs(ctx context.Context, archive wire.ArchiveID, after uint64, limit int) (wire.SyncPage, error)
	// Enrolled returns the ids of all enrolled archives, this one included, alive
	// or not, as an aggregator tells them. If none answers it returns those that
	// have been heard, and an error.
	Enrolled(ctx context.Context) ([]wire.ArchiveID, error)
	// Writable returns those of Alive that take records now, sorted.
	Writable() []wire.ArchiveID
	// Pull tells an archive to fetch records from others; at most
	// wire.MaxSyncIDs. The results are in the order of ids; those with the code
	// CodePullPending are still under way.
	Pull(ctx context.Context, archive wire.ArchiveID, ids []wire.RecordID, from []wire.ArchiveID) ([]wire.PullResult, error)
}

// Codes of refusals between archives.
const (
	CodeNoRecord    = "NO_RECORD"    // the archive has no such record, or can not read it
	CodeNoFile      = "NO_FILE"      // nor such a file
	CodePullPending = "PULL_PENDING" // the pull goes on: ask again
)
