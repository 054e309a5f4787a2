module github.com/verae/archive/bench

go 1.26.0

replace github.com/verae/archive => ../

require (
	github.com/FastFilter/xorfilter v0.4.2-0.20260120015552-4e5a4d9df65a
	github.com/bits-and-blooms/bloom/v3 v3.7.1
	github.com/greatroar/blobloom v0.8.0
	github.com/verae/archive v0.0.0-00010101000000-000000000000
)

require (
	github.com/bits-and-blooms/bitset v1.24.2 // indirect
	github.com/dchest/siphash v1.2.3 // indirect
)
