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
//   - No false negative: a key is in the filter before its record can be seen,
//     and while the filter is being built every query is answered from the store.
//   - Silence is honest: the filter decides that there is nothing; that there is
//     something is decided by the tenant check. A miss, a foreign record and a
//     kind that was not asked for are the same silence.
//   - Loss is loud: a gap in the log, an index that disagrees with it, a frame
//     whose checksum or content hash is wrong are errors of kind fault.Corrupt
//     and make the archive read-only; they are never a silent miss.
//   - Bytes are exact: a body is stored and answered as it came.
//
// # Files
//
// An archive has a directory of its own:
//
//	key.pem    its Ed25519 private key, PKCS #8 in PEM, mode 0600
//	records/   the Pebble store, nothing else
//
// # Keys of the store
//
// Numbers are big-endian and of fixed width. Every key holds a sequence number
// that is used once, or is set once, so no write ever meets an existing key.
//
//	m name                   text or raw key     identity, written once by Init
//	s seq(8)                 frame               the log; seq counts from 1 without a gap
//	h digest(32) seq(8)      index row           who may see what under a digest
//	i putId(16)              seq(8) recordId(32) makes a repeated put harmless
//
// The log is the truth; h and i can be computed from it (and from the files that
// its file records name) and [Node.Check] does so. A record is indexed under its
// subject and its own id, a file record also under the SHA-256 of the file and of
// every block of its DAG.
//
// # Frame, version 1
//
//	offset  length
//	0       2       magic "VR"
//	2       1       version 1
//	3       1       flags, 0
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
// Keys 10 to 19 are the portable part that the recordId is computed over; 1 to 6
// are this archive's envelope. storedAt is in nanoseconds since 1970 and rises
// with every record, whatever the clock does.
//
// # Leaf, version 1
//
// The leaf of a record in the archive's Merkle log is SHA-256(0x00 || leaf)
// (RFC 6962, section 2.1) over the deterministic CBOR map of the keys 1 to 5 and
// 7 above, with 1 for the version. Its index is seq-1.
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
// All three layouts are frozen by files in testdata. A change is a new version
// beside the old one; no stored byte is ever rewritten.
package archive
