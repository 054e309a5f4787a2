// Package bloom answers one question about a 32-byte key: is it surely absent
// from a set, or perhaps in it?
//
// An archive asks it before every query it hears. "Surely absent" is silence at
// the price of a few memory reads; "perhaps" is checked in the store. So a wrong
// "perhaps" costs a read, and a wrong "absent" would deny a record that is there.
// There is none, because
//
//   - a key is in the filter before its record can be seen: [Set.Add] comes
//     before the commit, not only before the acknowledgement;
//   - bits are only ever set. Generations are dropped only for a base that has
//     every key of the store ([Rebuild]);
//   - a [Set] that has not been told that it is complete answers [Maybe] to
//     everything, one that was found to deny a stored key does so until it has a
//     new base, and so does a verdict that nobody decided.
//
// The filter is the one of github.com/bits-and-blooms/bloom, which chooses the
// number of positions and against whose TestLocations it is tested. Its own Add
// and Test are not used: they are not safe beside each other. Here words are read
// and set with atomic operations, so that any number of goroutines may test and
// add at the same time without a lock.
//
// Positions come from SipHash-2-4 with 128 bits under a secret that all archives
// and aggregators of a fleet share ([Secret]): keys come from clients, who could
// otherwise choose the bits that they set. One [Hash] of a key serves the filter
// of every archive.
//
// A filter has a size, and beyond it it answers "perhaps" to everything. So a Set
// is a list of generations. One is full when half of its bits are ones, however
// many keys it took: that is what holds the error rate against keys that were
// chosen to set many. Then the next one takes the keys. The first generation, the
// base, has half of the wanted error rate, the next a quarter, and so on: all of
// them together stay below it, and the largest is the least demanding. An owner
// with a store rebuilds one base of the right size behind the Set and swaps it in
// ([Set.StartRebuild]).
package bloom
