package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/verae/archive/wire"
)

// A server may leave out what is optional on the wire: what it did say is shown.
func TestSealIsShownAsFarAsItIsTold(t *testing.T) {
	for want, r := range map[string]wire.Receipt{
		"block 3 leaf 7 of verae.test/ledger": {BlockIndex: new(int64(3)), LeafIndex: new(int64(7)), Chain: "verae.test/ledger"},
		"leaf 0 of verae.test/ledger":         {LeafIndex: new(int64(0)), Chain: "verae.test/ledger"},
		"block 3":                             {BlockIndex: new(int64(3))},
		"2026-01-02T03:04:05Z":                {},
	} {
		r.Kind, r.Timestamp = wire.ReceiptSeal, "2026-01-02T03:04:05Z"
		var out bytes.Buffer
		s := &session{stdout: &out}
		s.job("name", &wire.Job{Status: wire.StatusCompleted, Receipts: []wire.Receipt{r}})
		if _, shown, _ := strings.Cut(out.String(), "sealed"); !strings.HasSuffix(strings.TrimSpace(shown), want) {
			t.Errorf("want %q at the end of\n%s", want, out.String())
		}
	}
}
