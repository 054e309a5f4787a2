package bus

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/verae/archive/wire"
)

// Frozen: archives and aggregators of different versions must agree.
func TestScoreIsFrozen(t *testing.T) {
	for _, tc := range []struct {
		id   wire.ArchiveID
		key  [32]byte
		want uint64
	}{
		{"archive-a", [32]byte{}, 0x4f2297721aff3abf},
		{"archive-b", [32]byte{}, 0x8c870ee7bfb27fca},
		{"archive-a", digestOf("hello"), 0xaeaf5fd8f7b25dd6},
	} {
		if got := score(tc.id, tc.key); got != tc.want {
			t.Errorf("score(%s, %x) = %#x, want %#x", tc.id, tc.key[:4], got, tc.want)
		}
	}
}

func archiveIDs(n int) []wire.ArchiveID {
	ids := make([]wire.ArchiveID, n)
	for i := range ids {
		ids[i] = wire.ArchiveID(fmt.Sprintf("archive-%d", i))
	}
	return ids
}

func TestRankIsAPermutationWhateverTheOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ids := archiveIDs(rapid.IntRange(0, 20).Draw(t, "n"))
		key := [32]byte(rapid.SliceOfN(rapid.Byte(), 32, 32).Draw(t, "key"))
		order := rank(ids, key)
		shuffled := rapid.Permutation(ids).Draw(t, "shuffled")
		if !slices.Equal(order, rank(shuffled, key)) {
			t.Fatal("the order depends on the order of the input")
		}
		sorted := slices.Sorted(slices.Values(order))
		if !slices.Equal(sorted, slices.Sorted(slices.Values(ids))) {
			t.Fatalf("%v is no permutation of %v", order, ids)
		}
	})
}

// A new archive takes its share and moves nothing between the others; one that
// leaves gives its share away and moves nothing else.
func TestMembershipMovesOnlyTheShareOfTheOneConcerned(t *testing.T) {
	const keys = 20_000
	before, after := archiveIDs(9), archiveIDs(10)
	moved, firsts := 0, map[wire.ArchiveID]int{}
	for i := range keys {
		key := digestOf(fmt.Sprint(i))
		old, now := rank(before, key), rank(after, key)
		without := slices.DeleteFunc(slices.Clone(now), func(id wire.ArchiveID) bool { return id == "archive-9" })
		if !slices.Equal(old, without) {
			t.Fatalf("key %d: %v became %v", i, old, now)
		}
		if now[0] == "archive-9" {
			moved++
		}
		firsts[now[0]]++
	}
	for id, n := range firsts {
		share := float64(n) / keys * float64(len(after))
		if math.Abs(share-1) > 0.1 {
			t.Errorf("%s owns %.2f of a fair share", id, share)
		}
	}
	if moved == 0 {
		t.Error("the new archive owns nothing")
	}
}
