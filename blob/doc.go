// Package blob keeps files by content: it computes the CID of a file, stores
// its bytes once, and reads them back only after checking them.
//
// # Addresses
//
// A file is imported as UnixFS in a [Profile], by default unixfs-v1-2025
// (IPIP-499): CIDv1, raw leaves, SHA-256, chunks of 1 MiB, a balanced tree of at
// most 1024 links a node. Every IPFS tool computes the same CID from the same
// bytes and profile. [Hasher] does it in one pass and constant memory. Every
// DAG is built here from the bytes; nodes made by others are never taken in.
//
// A CID is an address, not a capability: nothing in this package knows who may
// read what. Callers check that first, by the exact CID. A digest alone is not
// enough for it: somebody may store a file whose bytes are the root node of
// another file, and then both have the same digest under different codecs.
package blob
