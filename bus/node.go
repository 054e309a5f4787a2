package bus

import (
	"context"

	"github.com/verae/archive/blob"
	"github.com/verae/archive/wire"
)

// Node is the archive behind the service.
type Node interface {
	// Put stores a record durably before it returns.
	Put(ctx context.Context, put wire.Put) (wire.PutAck, error)
	// Answer returns what the archive has for the caller of q; false means
	// silence: nothing, or nothing for him.
	Answer(ctx context.Context, q wire.Query) (wire.Reply, bool, error)
	// FileOf returns a file in whose DAG is the block with the multihash digest
	// of the canonical CID, if viewer may read one; that CID's own is preferred,
	// an empty one takes any. The viewer is a tenant, or wire.Public.
	FileOf(ctx context.Context, viewer wire.TenantID, cid string, digest [32]byte) (wire.File, bool, error)
	// FileLost reports whether the bytes of a file are known to be lost here.
	FileLost(sha256 [32]byte) bool
	// Hello describes the archive as it is now.
	Hello() wire.Hello
	// SetState changes the state that Hello tells.
	SetState(state string)
}

// Prober is implemented by nodes that can tell from memory that they surely have
// nothing under a key. Queries about such keys cost no more than the look.
type Prober interface {
	// AbsentBatch appends to absent, for each digest, whether the archive surely
	// has nothing under it, and returns that. It must not block.
	AbsentBatch(digests [][32]byte, absent []bool) []bool
}

// Blobs keeps the files of an archive. An error that says the upload is not known
// is of kind NotFound.
type Blobs interface {
	Open(id string, profile blob.Profile) error
	// Resume goes on with an upload, also after a restart: see blob.Store.
	Resume(id string, profile blob.Profile, offset int64) (received int64, err error)
	Write(id string, offset int64, data []byte) (received int64, err error)
	// Sync makes durable what was received, beside Write; Durable tells how much is.
	Sync(id string) (durable int64, err error)
	Durable(id string) int64
	CommitFile(ctx context.Context, id string, file blob.FileRef) (duplicate bool, err error)
	Abort(id string) error
	Has(ctx context.Context, sha256 [32]byte, cid string) (bool, error)
	// Profile returns the profile in which a file has its CID.
	Profile(ctx context.Context, sha256 [32]byte, cid string) (blob.Profile, error)
	// Read returns up to length verified bytes from off, and the file's size.
	Read(ctx context.Context, cid string, off int64, length int) (data []byte, size int64, err error)
	// ReadBlock does so of a block of the file: its bytes, and its size.
	ReadBlock(ctx context.Context, cid string, digest [32]byte, off int64, length int) (data []byte, size int64, err error)
}

var _ Blobs = (*blob.Store)(nil)
