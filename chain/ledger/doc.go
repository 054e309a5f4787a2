// Package ledger is the embedded chain: a transparency ledger on one disk.
//
// It is a Merkle log (RFC 6962) over Pebble whose leaves are chain.Leaf, with
// checkpoints as C2SP signed notes and certificates as C2SP tlog-proof texts, so
// that verifiers written by others accept what it gives out. It promises what
// chain.Ledger says; the single thing that makes the promise true is that a
// block is one Pebble batch, synced before anybody is answered: leaf, tree
// hashes, the index row with the original ids, and the signed checkpoint are
// all there or none is.
//
// One goroutine makes the blocks. Whoever asks while a block is on its way to
// the disk is in the next one; there is no timer. A certificate proves a leaf
// against the checkpoint of its own block, hence it never changes.
//
// # Files
//
// A ledger is a directory:
//
//	ledger.key         private key (note signer format), mode 0600; its presence says that Init was completed
//	ledger.db/         the Pebble store
//	ledger.checkpoint  the fork guard: the newest checkpoint that was signed, or one at most GuardEvery older
//	ledger.restored    while it is there nothing new is sealed: it was restored, and no witness has cosigned that
//
// Trust: whoever can read ledger.key can sign as this log. Whoever can write
// ledger.db can destroy it, and can change it only in ways that Check, or any
// holder of a certificate, can show. The guard must not be restored together
// with the store; Config.Guard can put it on another disk.
//
// # The fork guard
//
// A log must never sign two checkpoints of which neither continues the other. A
// store restored from a backup would do just that. So the newest checkpoint is
// also kept outside the store, and Open refuses a store that is behind it or
// does not contain it. The guard file is written in the background, at once
// after a quiet time, at most every GuardEvery under load, and on Close: a
// second sync in front of every answer would halve the rate, and what it would
// add is small, because a crash can not take back a synced block. The guard
// therefore finds every rollback but those of less than GuardEvery.
//
// # The start
//
// A copy of everything, guard included, looks whole. Only the witnesses know
// more. So a ledger that has some seals nothing new at its start, and denies no
// seal, until those that are heard have cosigned what it holds: after a restore
// for as long as it takes, else for StartWait and what two questions take. Calls
// wait for it; what has a seal is answered at once.
//
// # Layout of the store, version 1
//
// Keys are one letter and big-endian numbers. Rows are written once and never
// changed (pebblex.AppendOnly stands before every commit). All integers are
// big-endian; crc is CRC-32C over the key followed by the row up to the crc, so
// that a row at the wrong key is noticed.
//
//	m          meta row, written by Init
//	e leaf(8)  leaf bytes, exactly as hashed (chain.Leaf)
//	t index(8) 32 bytes: the tree hash with this stored hash index (x/mod/sumdb/tlog)
//	h sha(32)  seal row
//	b block(8) block row
//
// Meta row:
//
//	offset  size  field
//	0       1     version, 1
//	1       8     time of Init, ns since 1970
//	9       2     n, length of the verifier key
//	11      n     verifier key, name+hash+base64; the name is the origin
//	11+n    4     crc
//
// Seal row, 101 bytes. The ids can not be rebuilt from leaves: a backup of the
// ledger needs these rows.
//
//	0       1     version, 1
//	1       8     leaf index
//	9       8     block index
//	17      8     tree size at the end of the block
//	25      8     time, ns since 1970, as in the leaf
//	33      16    job id (UUID)
//	49      16    submission id (UUID), zero if none
//	65      32    id of the file record, zero if none
//	97      4     crc
//
// Block row. The peaks are the roots of the perfect subtrees left of the block,
// as many as first has bits set, largest first: with them the proof of a leaf
// needs no hash that is older than its block.
//
//	0       1     version, 1
//	1       8     first, index of the block's first leaf
//	9       4     number of leaves, at least 1
//	13      8     time of all its leaves, ns since 1970
//	21      32    root of the tree after the block
//	53      32*p  peaks before the block
//	..      2     n, length of the checkpoint
//	..      n     checkpoint, a signed note (c2sp.org/tlog-checkpoint)
//	..      4     crc
package ledger
