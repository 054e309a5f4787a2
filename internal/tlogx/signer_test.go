package tlogx

import (
	"crypto/ed25519"
	"testing"
)

func TestSignerAndVerifierAgree(t *testing.T) {
	public, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	s, err := NewSigner("archive-a/g1", key)
	if err != nil {
		t.Fatal(err)
	}
	v, err := NewVerifier("archive-a/g1", public)
	if err != nil {
		t.Fatal(err)
	}
	want := Checkpoint{Origin: "archive-a/g1", Root: new(Edge).Root()}
	signed, err := want.Sign(s)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := OpenCheckpoint(signed, v); err != nil || got != want {
		t.Errorf("%+v, %v, want %+v", got, err, want)
	}
	if _, err := NewSigner("Archive A", key); err == nil {
		t.Error("an origin that is none was taken")
	}
}
