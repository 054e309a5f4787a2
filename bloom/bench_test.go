package bloom

import (
	"encoding/binary"
	"fmt"
	"testing"
)

// The target of BenchmarkMiss is 0 allocations and a small part of the 2 us in
// which an archive handles a query it has nothing for.
func BenchmarkMiss(b *testing.B) {
	for _, n := range []uint64{10_000, 1_000_000} {
		b.Run(fmt.Sprintf("keys=%d", n), func(b *testing.B) {
			s := filled(Params{Capacity: n}, n)
			b.ReportAllocs()
			b.ResetTimer()
			var k [32]byte
			i := uint64(0)
			for b.Loop() {
				i++
				binary.LittleEndian.PutUint64(k[:], i)
				s.Test(k)
			}
			b.ReportMetric(float64(s.Bytes())/float64(n), "bytes/key")
		})
	}
}

func BenchmarkAdd(b *testing.B) {
	s := New(Params{Capacity: 1 << 20})
	b.ReportAllocs()
	var k [32]byte
	i := uint64(0)
	for b.Loop() {
		i++
		binary.LittleEndian.PutUint64(k[:], i)
		s.Add(k)
	}
}
