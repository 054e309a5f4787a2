package vault

import (
	"bytes"
	"testing"

	"github.com/verae/archive/wire"
)

// Archives tell sealed bodies by how they start.
func TestSealedBytesStartAsWireSays(t *testing.T) {
	v, err := Open(Config{Dir: t.TempDir(), Create: true})
	if err != nil {
		t.Fatal(err)
	}
	defer v.Close()
	sealed, err := v.Seal(t.Context(), Context{TenantID: "acme"}, []byte("{}"))
	if err != nil || !bytes.HasPrefix(sealed, []byte(wire.SealedMagic)) {
		t.Errorf("%q, %v", sealed, err)
	}
}
