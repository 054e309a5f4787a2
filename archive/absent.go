package archive

import "github.com/verae/archive/bloom"

// verdicts is how many digests are looked for in the filter at once.
const verdicts = 64

// AbsentBatch appends to absent, for each digest, whether the archive surely has
// nothing under it, and returns that. It counts those digests as Absent does, and
// costs about half of as many calls of it where the filter is large. It allocates
// nothing if absent has room.
func (n *Node) AbsentBatch(digests [][32]byte, absent []bool) []bool {
	misses := 0
	for len(digests) > 0 {
		some := digests[:min(len(digests), verdicts)]
		digests = digests[len(some):]
		var room [verdicts]bloom.Verdict
		for _, v := range n.keys.set.TestBatch(room[:0], some) {
			absent = append(absent, v == bloom.Absent)
			if v == bloom.Absent {
				misses++
			}
		}
	}
	n.metrics.miss.Add(float64(misses))
	return absent
}
