package tlogx_test

import (
	"crypto/ed25519"
	"testing"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/verae/archive/internal/tlogx"
)

// A checkpoint signed with a plain Ed25519 key is opened by its public half, and
// by no other key or origin.
func TestVerifierIsOfOneKeyAndOneOrigin(t *testing.T) {
	seed := make([]byte, ed25519.SeedSize)
	key := ed25519.NewKeyFromSeed(seed)
	public := key.Public().(ed25519.PublicKey)
	const origin = "archive-a/g1"
	v, err := tlogx.NewVerifier(origin, public)
	if err != nil {
		t.Fatal(err)
	}
	signed, err := tlogx.Checkpoint{Origin: origin, Size: 3, Root: leaf(3)}.Sign(signer{v, key})
	if err != nil {
		t.Fatal(err)
	}
	if c, err := tlogx.OpenCheckpoint(signed, v); err != nil || c.Size != 3 {
		t.Fatalf("%+v, %v", c, err)
	}
	seed[0] = 1
	other := ed25519.NewKeyFromSeed(seed).Public().(ed25519.PublicKey)
	for _, bad := range []struct {
		origin string
		key    ed25519.PublicKey
	}{{origin, other}, {"archive-a/g2", public}} {
		v, err := tlogx.NewVerifier(bad.origin, bad.key)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tlogx.OpenCheckpoint(signed, v); err == nil {
			t.Errorf("opened as %s with another key or origin", bad.origin)
		}
	}
	if _, err := tlogx.NewVerifier("no origin", public); err == nil {
		t.Error("an origin with a blank is taken")
	}
	if _, err := tlogx.NewVerifier(origin, public[:31]); err == nil {
		t.Error("a short key is taken")
	}
}

// signer signs as the note format wants it with a plain key.
type signer struct {
	note.Verifier
	key ed25519.PrivateKey
}

func (s signer) Sign(msg []byte) ([]byte, error) { return ed25519.Sign(s.key, msg), nil }

// Every pair of sizes is proved with its own proof, and with no other.
func TestConsistencyIsProvedOrRefused(t *testing.T) {
	const n = 20
	m, roots := build(t, n)
	at := func(size int64) tlogx.Checkpoint {
		return tlogx.Checkpoint{Origin: origin, Size: size, Root: roots[size]}
	}
	for from := range int64(n + 1) {
		for to := from; to <= n; to++ {
			var proof [][]byte
			if from > 0 && from < to {
				p, err := tlog.ProveTree(to, from, m.reader())
				if err != nil {
					t.Fatal(err)
				}
				for _, h := range p {
					proof = append(proof, h[:])
				}
			}
			if err := tlogx.CheckConsistency(at(from), at(to), proof); err != nil {
				t.Errorf("%d to %d: %v", from, to, err)
			}
			forked := at(from)
			forked.Root[0] ^= 1
			if err := tlogx.CheckConsistency(forked, at(to), proof); err == nil && from > 0 {
				t.Errorf("%d to %d: another root before is continued", from, to)
			}
			if from > 0 && from < to {
				if err := tlogx.CheckConsistency(at(from), at(to), proof[1:]); err == nil {
					t.Errorf("%d to %d: a cut proof is taken", from, to)
				}
				if err := tlogx.CheckConsistency(at(to), at(from), proof); err == nil {
					t.Errorf("%d to %d is taken for growth", to, from)
				}
			}
		}
	}
	elsewhere := at(5)
	elsewhere.Origin = "example.com/other"
	if err := tlogx.CheckConsistency(at(3), elsewhere, nil); err == nil {
		t.Error("two logs are compared")
	}
	if err := tlogx.CheckConsistency(at(3), at(5), [][]byte{{1}}); err == nil {
		t.Error("a hash of one byte is taken")
	}
}
