// Package archive is one WORM archive: it appends records to a log on disk,
// acknowledges each when it is durable, and answers queries for the records of a
// digest, or is silent.
//
// # Promises
//
// Each is a law of docs/architecture.md with a test of its name.
//
//   - Acknowledged means on disk: [Node.Put] returns after the fsync of the batch
//     that holds the record, and nothing can be read before that. Pebble shows a
//     record before it is synced, so readers stop at the durable sequence number.
//   - Append only: a [Node] has no method that changes or removes a record, and
//     every batch passes a guard that lets nothing through but new keys.
//   - No false negative: a record is in both filters, under its digests and under
//     the pairs of its viewers and its digests, before it can be seen, and a filter
//     that is not complete says perhaps. A stored filter is used only if it is of
//     this log, as far as it says, and what came later is added to it from the log.
//   - Silence is honest: a filter decides that there is nothing, or nothing for the
//     caller; that there is something is decided by the tenant check. A miss, a foreign record and a
//     kind that was not asked for are the same silence.
//   - Loss is loud: a gap in the log, an index that disagrees with it, a frame
//     whose checksum or content hash is wrong are errors of kind fault.Corrupt
//     and make the archive read-only; they are never a silent miss.
//   - Loss of the end is loud, too: every record is a leaf of a Merkle log, and a
//     signed checkpoint of it, the mark, rests outside the store, at most a second
//     behind it. [Open] refuses a store that has less than the mark, or another
//     history; what was lost in that second is known to whoever remembers what was
//     acknowledged to him, and [Node.Put] can be asked to wait for the mark.
//   - Nobody denies what was acknowledged: who has a copy of the filter views and a
//     lease is waited for before a record is acknowledged, and told of every pair
//     before the record is durable. After an end that may have left leases out, no
//     record is taken before they are over.
//   - Bytes are exact: a body is stored and answered as it came.
//
// # Files
//
// An archive has a directory of its own:
//
//	key.pem      its Ed25519 private key, PKCS #8 in PEM, mode 0600
//	records/     the Pebble store, nothing else
//	highwater    the mark: the newest signed checkpoint of the log
//	leaves       the skeleton: what each leaf of the log is made of
//	generations  the generation rows once more
//	filter.key   what positions in the filters are derived under
//	filters/     snapshots of the filters; they are built anew without them
//	leases       there while leases on the filter views may be out
//	grace        there until a restored archive has been served
//
// # Keys of the store, layout 2
//
// Numbers are big-endian and of fixed width. Every key holds a sequence number
// that is used once, or is set once, so no write ever meets an existing key.
//
//	m name                                text or raw key      identity, written once by Init
//	g generation(4)                       generation row       where a log begins, and what it continues
//	s seq(8)                              frame                the log; seq counts from 1
//	h digest(32) seq(8)                   index row            who may see what under a digest
//	t tenantTag(16) storedAt(8) seq(8)    empty                what a tenant has, in order of time
//	i putId(16)                           seq(8) recordId(32)  makes a repeated put harmless
//	c seq(8)                              commit row           the tree hashes of a commit that ended with seq
//	l seq(8)                              recordId(32)         the record with seq is lost, a stub stands for it
//
// The log is the truth; h, t, i and c can be computed from it (and from the files
// that its file records name) and [Node.Check] does so. A record is indexed under
// its subject and its own id, a file record also under the SHA-256 of the file and
// of every block of its DAG. tenantTag is the first 16 bytes of SHA-256 of the
// tenant id.
//
// Sequence numbers have no gap inside a generation, and between two the
// generation row of the second explains it. They are never used again.
//
// # Frame, version 1
//
//	offset  length
//	0       2       magic "VR"
//	2       1       version 1
//	3       1       flags: 0 a record, 1 a lost stub
//	4       4       length of the header, H
//	8       4       length of the body, B
//	12      H       header
//	12+H    B       body, verbatim
//	12+H+B  4       CRC-32C of all bytes before
//
// The header is a CBOR map in core deterministic encoding (RFC 8949, section
// 4.2.1). Absent fields are left out.
//
//	 1 version, 1        2 archiveId      3 generation     4 seq
//	 5 storedAt, ns      6 putId (16)     7 recordId (32)
//	10 kind             11 sha256 (32)   12 tenantId      13 submissionId
//	14 part             15 attachedAt    16 contentType   17 bodySha256 (32)
//	18 file: {1 name, 2 size, 3 sha256, 4 cid, 5 contentType}
//	19 shareWith: [[tenantId, mode], ...]
//
// A lost stub has the keys 1 to 5 and 7, 6 if it is known, and no body: it proves
// the leaf of a record of which no copy was found.
//
// Keys 10 to 19 are the portable part that the recordId is computed over; 1 to 6
// are this archive's envelope. storedAt is in nanoseconds since 1970 and rises
// with every record, whatever the clock does.
//
// # Merkle log
//
// Every record is a leaf of a tree as in RFC 6962, one tree a generation. The leaf
// of a record, version 1, is the deterministic CBOR map of the keys 1 to 5 and 7
// above, with 1 for the version. In the first generation the index of a leaf is
// seq-1. In a later one leaf 0 is the map of its generation row, in the place of
// the sequence number before firstSeq, and that of a record seq-firstSeq+1.
//
// A checkpoint is a C2SP signed note under the archive's key with the origin
// <archiveId>/g<generation>.
//
// # Generation row, version 1
//
// A CBOR map, and CRC-32C of key and map (4 bytes).
//
//	1 version, 1      2 archiveId   3 generation   4 public key (32)
//	5 firstSeq        6 createdAt, ns since 1970
//	7 prevSize: the last seq kept of the generations before
//	8 prevRoot (32): of the tree before, over what was kept of it
//	9 remembered: the newest checkpoint that a peer knew, a signed note
//	10 rememberedSeq
//
// The last four are absent in generation 1. firstSeq of a later one is two above
// the higher of prevSize and rememberedSeq.
//
// # Commit row, version 1
//
//	offset  length
//	0       1       version 1
//	1       8       first: where the leaves of the commit begin; the key says where they end
//	9       32 n    the stored hashes that they added, numbered as in x/mod/sumdb/tlog
//	9+32n   4       CRC-32C of key and the bytes before
//
// # Skeleton, version 1
//
// 16 bytes of header: "VRLV", version 1, zeros. Then 68 bytes a record, in the
// order of seq:
//
//	offset  length
//	0       8       seq
//	8       8       storedAt
//	16      32      recordId
//	48      16      putId, zeros if there is none
//	64      4       CRC-32C of the bytes before
//
// # Generations, version 1
//
// The generation rows beside the store. 16 bytes of header: "VRGN", version 1,
// zeros. Then of each, oldest first:
//
//	offset  length
//	0       4       generation
//	4       4       length of the row, R
//	8       R       the generation row, as in the store
//
// # Index row, version 1
//
//	offset  length
//	0       1       version 1
//	1       1       roles: 1 subject, 2 record id, 4 file, 8 block of the file
//	2       1       flags: 1 the record has shares
//	3       8       storedAt
//	11      32      recordId
//	43      1       length of the kind, K
//	44      K       kind
//	44+K    rest    tenantId
//
// All layouts are frozen by files in testdata. A change is a new version
// beside the old one; no stored byte is ever rewritten.
package archive
