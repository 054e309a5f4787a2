// Package chain is the contract "seal a digest once".
//
// A chain gives a SHA-256 one leaf in an append-only log, for ever, and an
// offline proof of it. What implements [Ledger] is interchangeable: package
// chain/ledger is the embedded transparency ledger, and every implementation
// passes the suite in chain/chaintest. [SealOnce] is the gate in front of them
// all and the only caller of Register in the system.
//
// The ids in an [Entry] are kept beside the seal, never in the leaf: what is
// public about a seal is the digest and its time.
package chain

import (
	"context"
	"fmt"
	"time"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/wire"
)

// Entry asks for a digest to be sealed. The ids are those of the submission
// that asks; if the digest has a seal already they are dropped, and the answer
// carries the ids of whoever came first.
type Entry struct {
	Digest       wire.Digest       // what is sealed
	JobID        wire.JobID        // the job that is the digest's from now on
	SubmissionID wire.SubmissionID // the submission that asks; empty if there is none
	FileID       wire.RecordID     // id of the file record with this digest; zero if it is no file
}

// Seal is where and when a digest was sealed. It never changes: two answers
// about one digest are equal in every field.
type Seal struct {
	Digest     wire.Digest
	LeafIndex  int64     // of the leaf in the log, from 0
	BlockIndex int64     // of the block that brought the leaf, from 0
	TreeSize   int64     // leaves in the log when that block was done; proofs are against this size
	Time       time.Time // in the leaf; UTC, and never earlier than that of the leaf before

	JobID        wire.JobID        // of the entry that was first
	SubmissionID wire.SubmissionID // of the entry that was first; empty if it had none
	FileID       wire.RecordID     // of the entry that was first; zero if it had none

	Origin string // names the log
}

// MaxEntries is how many entries one call of Register takes.
const MaxEntries = 1024

// Ledger seals digests. All methods may be called from many goroutines.
//
// The law: a digest has one leaf for ever. It holds for entries of one call,
// of concurrent calls, of calls after a restart, and for a repetition of a call
// whose answer was lost.
type Ledger interface {
	// Register seals the digests that have no seal yet and returns the seals of
	// all, in the order of entries. It returns only when every one of them is
	// durable and provable: a Certificate can be had at once, and after a crash.
	// Entries may repeat a digest; the first of them is the one that counts.
	//
	// It refuses with fault.Invalid an entry that fails Check, and more than
	// MaxEntries. After any other error, or when ctx ends, the digests may or may
	// not have been sealed: look up before trying again, as SealOnce does. A
	// failure that can pass is fault.Transient.
	Register(ctx context.Context, entries []Entry) ([]Seal, error)

	// Lookup returns the seal of a digest; ok is false if it has none. It never
	// shows a seal that a crash could take back.
	Lookup(ctx context.Context, digest wire.Digest) (seal Seal, ok bool, err error)

	// Certificate returns the offline proof of a seal as a C2SP tlog-proof text,
	// with the leaf as its extra data and the log's checkpoint at s.TreeSize.
	// It is byte-identical on every call, for ever. A seal that is not this
	// ledger's is fault.NotFound.
	Certificate(ctx context.Context, s Seal) (string, error)
}

// Check reports what makes e unfit to be sealed, as fault.Invalid.
func (e Entry) Check() error {
	if e.Digest.IsZero() {
		return invalid("sha256", "the digest is missing")
	}
	if id, err := wire.ParseJobID(string(e.JobID)); err != nil || id != e.JobID {
		return invalid("jobId", "%q is not a UUID in lower case", e.JobID)
	}
	if e.SubmissionID == "" {
		return nil
	}
	if id, err := wire.ParseSubmissionID(string(e.SubmissionID)); err != nil || id != e.SubmissionID || id == nilUUID {
		return invalid("submissionId", "%q is not a UUID in lower case", e.SubmissionID)
	}
	return nil
}

// nilUUID is no id: stores use its bytes for "none".
const nilUUID = "00000000-0000-0000-0000-000000000000"

func invalid(field, format string, args ...any) error {
	return fault.New(fault.Invalid, "BAD_ENTRY", "chain: %s: %s", field, fmt.Sprintf(format, args...)).InField(field)
}
