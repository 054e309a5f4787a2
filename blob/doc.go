// Package blob keeps files by content: it computes the CID of a file, stores
// its bytes once, and gives them back only after checking them.
//
// # Addresses
//
// A file is imported as UnixFS in a [Profile], by default unixfs-v1-2025
// (IPIP-499): CIDv1, raw leaves, SHA-256, chunks of 1 MiB, a balanced tree of at
// most 1024 links a node. Every IPFS tool computes the same CID from the same
// bytes and profile. [Hasher] does it in one pass and constant memory. Every
// tree is built here from the bytes; nodes made by others are never taken in.
//
// A CID is an address, not a capability: nothing in this package knows who may
// read what. Callers check that first, by the exact CID. A digest alone is not
// enough for it: somebody may store a file whose bytes are the root node of
// another file, and then both have the same digest under different codecs.
//
// # Store
//
// [Store] takes uploads in fragments, rebuilds tree and digests from the bytes,
// and commits a file only if they are what the sender named. Its directory:
//
//	index/                        a Pebble store with the rows below
//	files/<aa>/<SHA-256 in hex>   the bytes of a file, once, whatever its roots;
//	                              aa is the begin of the name
//	tmp/<upload id>               uploads under way
//
// A commit syncs the file, renames it, syncs its directory and then syncs its
// rows in one batch, and only then is it acknowledged. After a crash in between
// there is a file without rows, which nobody was promised; the next upload of
// the same bytes adopts it. Nothing committed is ever deleted or changed, with
// one exception: a file that turned out damaged is replaced when its own bytes,
// verified, arrive again.
//
// Uploads are synced as they go, see [Store.Sync]. When the store opens, those that
// were under way wait for their senders, who tell with [Store.Resume] how much was
// acknowledged as durable; the rest of the temporary file is written over.
//
// Every read is checked: a leaf of the file against its digest in the tree, a
// node of the tree against its own digest, a row against its checksum. What does
// not fit is a fault of kind Corrupt and stays known in [Store.Damages]; it is
// never "not found".
//
// # Rows
//
// Integers are big-endian. Every key begins with the letter of its kind; c is a
// CID codec, 0x55 raw or 0x70 dag-pb.
//
//	key                              payload
//	'm' "layout"                     version of the directory (4): 1
//	'm' "owner"                      id of the archive whose files these are, if it was given
//	'n' digest (32)                  the dag-pb node with this SHA-256
//	'l' digest (32)                  leaf: SHA-256 of a file (32), offset (8), length (4)
//	'r' c digest (32)                root: SHA-256 of the file (32), size (8),
//	                                 chunk size (4), links (4)
//	'f' SHA-256 (32) c digest (32)   the file has this root: size of the file (8)
//
// Several files may have a leaf; the row names the first. The value of a row:
//
//	offset   length   what
//	0        1        version of the row: 1
//	1        n        payload
//	1+n      4        CRC-32C of the key, the version and the payload
//
// A change of any of these takes a new version beside the old one, and golden
// rows of its own in testdata.
package blob
