package archive

import (
	"crypto/ed25519"
	"crypto/sha256"
	"strings"
	"testing"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/internal/tlogx"
	"github.com/verae/archive/wire"
)

// signedBy returns a checkpoint of an origin.
func signedBy(t testing.TB, key note.Signer, origin string, size int64, root tlog.Hash) string {
	t.Helper()
	signed, err := tlogx.Checkpoint{Origin: origin, Size: size, Root: root}.Sign(key)
	if err != nil {
		t.Fatal(err)
	}
	return string(signed)
}

// Law 8: an older copy of the whole directory agrees with itself. What another
// archive heard this one sign proves that there was more, or something else; what
// nobody signed proves nothing.
func TestLaw8WhatOthersRememberProvesALoss(t *testing.T) {
	now, _ := marked(t, 5)
	old := copyOf(t, now)
	n := mustOpen(t, testConfig(now, "archive-a"))
	before := hears(n)
	for _, s := range []string{"x", "y", "z"} {
		mustMark(t, n, metadata(alice, digest(s), `{}`))
	}
	later := hears(n)
	mustClose(t, n)

	stranger, err := tlogx.NewSigner("archive-a/g1", ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize)))
	if err != nil {
		t.Fatal(err)
	}
	with := func(r wire.Remembered, change func(r *wire.Remembered)) wire.Remembered {
		change(&r)
		return r
	}
	own := n.identity.signer
	for name, tc := range map[string]struct {
		list []wire.Remembered
		code string
		says []string
	}{
		"nobody remembers":     {nil, "", nil},
		"the same":             {[]wire.Remembered{before}, "", nil},
		"shorter":              {[]wire.Remembered{with(before, func(r *wire.Remembered) { r.Checkpoint = signedBy(t, own, "archive-a/g1", 0, sha256.Sum256(nil)) })}, "", nil},
		"longer":               {[]wire.Remembered{before, later}, "ROLLED_BACK", []string{"archive-b", "ends at seq 5", "up to seq 8", "restore", "archived repair"}},
		"another root":         {[]wire.Remembered{with(before, func(r *wire.Remembered) { r.Checkpoint = signedBy(t, own, "archive-a/g1", 5, tlog.Hash{1}) })}, "LOG_FORKED", []string{"archive-b", "first 5 leaves", "restore"}},
		"another shorter root": {[]wire.Remembered{with(before, func(r *wire.Remembered) { r.Checkpoint = signedBy(t, own, "archive-a/g1", 2, tlog.Hash{1}) })}, "LOG_FORKED", nil},
		"a number alone":       {[]wire.Remembered{with(later, func(r *wire.Remembered) { r.Checkpoint = "" })}, "", nil},
		"another key":          {[]wire.Remembered{with(later, func(r *wire.Remembered) { r.Checkpoint = signedBy(t, stranger, "archive-a/g1", 8, tlog.Hash{1}) })}, "", nil},
		"another generation":   {[]wire.Remembered{with(later, func(r *wire.Remembered) { r.Generation = 2 })}, "", nil},
		"the note of another": {[]wire.Remembered{with(later, func(r *wire.Remembered) {
			r.Generation, r.Checkpoint = 1, signedBy(t, own, "archive-a/g1", 8, tlog.Hash{1})+"x"
		})}, "", nil},
		"of another archive":     {[]wire.Remembered{with(later, func(r *wire.Remembered) { r.ArchiveID = "archive-c" })}, "", nil},
		"no note":                {[]wire.Remembered{with(later, func(r *wire.Remembered) { r.Checkpoint = "garbage" })}, "", nil},
		"too long":               {[]wire.Remembered{with(later, func(r *wire.Remembered) { r.Checkpoint = strings.Repeat("x", maxCheckpoint+1) })}, "", nil},
		"garbage beside a proof": {[]wire.Remembered{with(later, func(r *wire.Remembered) { r.Checkpoint = "garbage" }), later}, "ROLLED_BACK", nil},
	} {
		t.Run(name, func(t *testing.T) {
			n := mustOpen(t, testConfig(copyOf(t, old), "archive-a"))
			defer mustClose(t, n)
			err := n.Heard(tc.list)
			if fault.CodeOf(err) != tc.code || (err != nil) != (tc.code != "") || err != nil && !fault.Is(err, fault.Corrupt) {
				t.Fatalf("%v, want %q", err, tc.code)
			}
			if tc.code == "" {
				wantState(t, n, wire.StateUp, "")
				mustPut(t, n, metadata(alice, digest("new"), `{}`))
				return
			}
			wantState(t, n, wire.StateReadonly, tc.code)
			for _, s := range tc.says {
				if !strings.Contains(err.Error(), s) || !strings.Contains(n.Ready().Error(), s) {
					t.Errorf("it does not say %q: %v", s, err)
				}
			}
			if _, err := n.Put(t.Context(), wire.Put{PutID: wire.NewPutID(), Record: metadata(alice, digest("new"), `{}`)}); !fault.Is(err, fault.Transient) {
				t.Errorf("a put: %v", err) // it may go elsewhere
			}
			if got := ask(t, n, alice, digest("0")); len(got) != 1 {
				t.Errorf("what it has is answered: %v", got)
			}
			if err := n.Heard(nil); err != nil {
				t.Error(err)
			}
			wantState(t, n, wire.StateReadonly, tc.code) // silence takes nothing back
		})
	}
}

// A restored archive is another log: what was heard of the one before, which was
// longer, does not concern it.
func TestARestoredArchiveMayBeShorterThanItWas(t *testing.T) {
	fs, _ := marked(t, 5)
	c := testConfig(fs, "archive-a")
	b := &backedUp{t: t, c: c, n: mustOpen(t, c)}
	if err := b.backup("backup"); err != nil {
		t.Fatal(err)
	}
	mustMark(t, b.n, metadata(alice, digest("later"), `{}`))
	heard := hears(b.n)
	mustClose(t, b.n)
	restored, _, err := restore(c, "backup", "restored", func(rc *RestoreConfig) { rc.Remembered = []wire.Remembered{heard} })
	if err != nil {
		t.Fatal(err)
	}
	n := mustOpen(t, restored)
	defer mustClose(t, n)
	if err := n.Heard([]wire.Remembered{heard, hears(n)}); err != nil {
		t.Error(err)
	}
	wantState(t, n, wire.StateUp, "")
	mustClose(t, n)
	if err := n.Heard([]wire.Remembered{hears(n)}); fault.CodeOf(err) != "CLOSED" {
		t.Errorf("after its close: %v", err)
	}
}
