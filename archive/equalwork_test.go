package archive

import (
	"testing"

	"github.com/verae/archive/mirror"
)

// What keys denies is looked for in views all the same: a miss takes the work that
// it takes where others have something.
func TestLaw5EveryMissAsksBothFilters(t *testing.T) {
	n := newNode(t)
	nothing := digest("nothing")
	n.views.set.AddHash(mirror.Pair(n.secret.Key, alice, nothing))
	if _, ok, err := n.Answer(t.Context(), query(alice, nothing)); ok || err != nil {
		t.Fatal(ok, err)
	}
	if _, ok, err := n.FileOf(t.Context(), alice, "", nothing); ok || err != nil {
		t.Fatal(ok, err)
	}
	if wrong := n.views.set.Stats().FalsePositives; wrong != 2 {
		t.Errorf("views was found wrong %d times; want twice", wrong)
	}
}
