package bloom

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"flag"
	"fmt"
	"math/bits"
	"os"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the golden files that are missing")

// golden compares got with a file that is never edited, and makes it with
// -update if it is not there.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	name = "testdata/" + name
	want, err := os.ReadFile(name)
	if os.IsNotExist(err) && *update {
		if err = os.WriteFile(name, got, 0o644); err == nil {
			return
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s is frozen and has\n%.2000s\nnow it would be\n%.2000s", name, want, got)
	}
}

// reference is the key of the SipHash paper's vectors: 00 01 ... 0f.
var reference = [16]byte{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}

// TestHashIsFrozen holds the hash and the positions to a file. Its hashes were
// checked with another implementation of SipHash:
//
//	openssl mac -macopt hexkey:SECRET -macopt size:16 -in KEY SIPHASH
func TestHashIsFrozen(t *testing.T) {
	var counting, ones [32]byte
	for i := range counting {
		counting[i], ones[i] = byte(i), 0xff
	}
	sizes := []struct {
		m uint64
		k int
	}{{512, 2}, {15_919_616, 10}, {1 << 38, 11}}
	var out bytes.Buffer
	w := bufio.NewWriter(&out)
	fmt.Fprintln(w, "# secret key A B, then a line for each m k: positions")
	for _, secret := range [][16]byte{reference, {}, {15: 1}} {
		for _, k := range [][32]byte{counting, {}, {31: 1}, {0: 1}, ones} {
			h := HashKey(secret, k)
			fmt.Fprintf(w, "%x %x %016x %016x\n", secret, k, h.A, h.B)
			for _, s := range sizes {
				fmt.Fprintf(w, "  %d %d: %d\n", s.m, s.k, h.Positions(nil, s.m, s.k))
			}
		}
	}
	w.Flush()
	golden(t, "positions.v1.txt", out.Bytes())
}

// The vector of the SipHash authors for 32 bytes (vectors_sip128), but for the
// lowest bit of the second word.
func TestHashIsSipHash(t *testing.T) {
	var k [32]byte
	for i := range k {
		k[i] = byte(i)
	}
	h := HashKey(reference, k)
	if got, want := fmt.Sprintf("%016x %016x", h.A, h.B), "3efcea5eca56397c 68eb4665559d3e37"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestPositionsFollowTheirRule(t *testing.T) {
	for _, tc := range []struct {
		a, b uint64
		want []uint64
	}{
		{0, 1, []uint64{0, 0, 0, 0, 0, 0, 0}},
		{1 << 63, 1<<60 + 1, []uint64{500, 562, 625, 687, 750, 812, 875}},
		{0xffffffffffffffff, 0x123456789abcdef1, []uint64{999, 71, 142, 213, 284, 355, 426}},
	} {
		if got := (Hash{tc.a, tc.b}).Positions(nil, 1000, 7); !slices.Equal(got, tc.want) {
			t.Errorf("a=%x b=%x: %v, want %v", tc.a, tc.b, got, tc.want)
		}
	}
	if got := (Hash{1, 1}).Positions(nil, 1000, -1); len(got) != 0 {
		t.Errorf("%v of no positions", got)
	}
}

// Two filters under one secret agree on a hash; a set of the process's own secret
// has another one at each start.
func TestOneHashServesEveryFilterOfAFleet(t *testing.T) {
	secret := Secret{ID: 1, Key: reference}
	a, b := New(Params{Secret: secret}), New(Params{Secret: secret, Capacity: MinCapacity})
	k := key(1)
	h := a.Hash(k)
	if h != b.Hash(k) || h != HashKey(reference, k) || a.SecretID() != 1 {
		t.Error("two filters under one secret disagree on a key")
	}
	own, other := New(Params{}), New(Params{Secret: Secret{Key: reference}})
	if x := own.Hash(k); x == h || x == other.Hash(k) || other.Hash(k) == h {
		t.Error("a set without a secret of the fleet has no secret of its own")
	}
	b.Complete()
	b.AddHash(h)
	if b.Test(k) != Maybe || b.TestHash(h) != Maybe {
		t.Error("a key that was added by its hash is denied")
	}
}

// A hash that came from elsewhere may have lost the bit that makes B odd. It is
// looked for, and added, as if it had it: here the second position depends on it.
func TestLowestBitOfAHashIsAlwaysSet(t *testing.T) {
	for _, addOdd := range []bool{true, false} {
		s := New(Params{Capacity: MinCapacity})
		s.Complete()
		m := s.state.Load().gens[0].m
		border, _ := bits.Div64(m/3, 0, m)
		border++ // the first product with m that reaches position m/3
		const b = 0x2545f4914f6cdd1d
		odd := Hash{border - b, b}
		even := Hash{odd.A, odd.B - 1}
		if slices.Equal(odd.Positions(nil, m, 3), even.Positions(nil, m, 3)) {
			t.Fatal("the bit does not matter")
		}
		if addOdd {
			s.AddHash(odd)
		} else {
			s.AddHash(even)
		}
		if s.TestHash(odd) != Maybe || s.TestHash(even) != Maybe {
			t.Errorf("added odd %v: denied", addOdd)
		}
	}
}

func TestSecretsAreNotPrinted(t *testing.T) {
	s := Secret{ID: 7, Key: reference}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%x", "%d"} {
		for _, v := range []any{s, Params{Secret: s}} {
			if got := fmt.Sprintf(verb, v); strings.Contains(got, hex.EncodeToString(s.Key[:])) || strings.Contains(got, "0 1 2 3") || strings.Contains(got, "0x1, 0x2") {
				t.Errorf("%s: %s", verb, got)
			}
		}
	}
}
