package wire

// Operations on an archive's blob subject, carried in HeaderOp. Every request
// gets a reply: a BlobAck (for read: the bytes themselves, with HeaderOffset),
// or a Problem marked by HeaderProblem.
const (
	OpOpen   = "open"   // BlobOpen -> BlobAck; HeaderUpload names the upload
	OpData   = "data"   // raw bytes at HeaderOffset -> BlobAck
	OpCommit = "commit" // BlobCommit -> BlobAck
	OpAbort  = "abort"  // nothing -> BlobAck
	OpRead   = "read"   // BlobRead, HeaderTenant, HeaderCID -> raw bytes
	OpHas    = "has"    // BlobCommit -> BlobAck
)

// HeaderSync on a data frame asks that all bytes received be made durable; its
// value is "1". The frame is answered at once, and when they are another BlobAck
// follows on the same subject.
const HeaderSync = "Verae-Sync"

// HeaderProblem marks a reply whose payload is a Problem; its value is the code.
const HeaderProblem = "Verae-Problem"

// FragmentSize is the largest payload of a data frame, in bytes.
const FragmentSize = 256 << 10

// BlobOpen starts an upload. ChunkSize and MaxLinks are the UnixFS profile by
// which the archive builds the file's DAG for itself. With Resume it goes on with
// one that the archive has, open or left from before its restart: at least its
// first Offset bytes, all that were ever acknowledged as durable. The answer says
// at which byte, Offset or a later one.
type BlobOpen struct {
	ChunkSize int   `json:"chunkSize"`
	MaxLinks  int   `json:"maxLinks"`
	Resume    bool  `json:"resume,omitzero"`
	Offset    int64 `json:"offset,omitzero"`
}

// BlobCommit names the file that an upload must turn out to be. ChunkSize and
// MaxLinks are the profile in which it has the CID, for whoever has to upload it
// anew, or for the archive if it was restarted since the BlobOpen; zero means the
// default profile.
type BlobCommit struct {
	Size      int64  `json:"size"`
	SHA256    Digest `json:"sha256"`
	CID       string `json:"cid"`
	ChunkSize int    `json:"chunkSize,omitzero"`
	MaxLinks  int    `json:"maxLinks,omitzero"`
}

// BlobRead asks for a range of a file, at most FragmentSize bytes.
type BlobRead struct {
	Offset int64 `json:"offset"`
	Length int64 `json:"length"`
}

// BlobAck answers a blob frame. Received counts the contiguous bytes written;
// Credit is how many bytes beyond Received the sender may have under way. Durable
// counts those that survive a power cut, at most Received: the sender keeps all
// others, to send them again. Has answers OpHas. Duplicate says that a committed file was there before.
type BlobAck struct {
	Received  int64 `json:"received"`
	Credit    int64 `json:"credit"`
	Durable   int64 `json:"durable,omitzero"`
	Has       bool  `json:"has,omitzero"`
	Duplicate bool  `json:"duplicate,omitzero"`
}
