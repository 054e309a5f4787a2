package ledger

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/mod/sumdb/note"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/internal/pebblex"
)

// maxKeyFile bounds what is read of a key file, in bytes.
const maxKeyFile = 1 << 10

// signingKey is the identity of a log: its name and its Ed25519 key.
type signingKey struct {
	signer   note.Signer
	verifier note.Verifier
	vkey     string // name+hash+base64, for publication
	text     string // the key file
}

func generateKey(origin string) (signingKey, error) {
	skey, _, err := note.GenerateKey(rand.Reader, origin)
	if err != nil {
		return signingKey{}, fmt.Errorf("ledger: generate key: %w", err)
	}
	return parseKey(skey + "\n")
}

var errKeyFile = errors.New("ledger: not a signing key: want one line PRIVATE+KEY+<origin>+<hash>+<base64>")

// parseKey reads a key file. Errors do not repeat its content.
func parseKey(text string) (signingKey, error) {
	skey := strings.TrimSpace(text)
	signer, err := note.NewSigner(skey)
	if err != nil {
		return signingKey{}, errKeyFile
	}
	// NewSigner has checked the form: PRIVATE+KEY+name+hash+base64, where the last
	// part, which may hold a plus, is one byte for the type and the seed.
	raw, err := base64.StdEncoding.DecodeString(strings.SplitN(skey, "+", 5)[4])
	if err != nil || len(raw) != 1+ed25519.SeedSize {
		return signingKey{}, errKeyFile
	}
	public, ok := ed25519.NewKeyFromSeed(raw[1:]).Public().(ed25519.PublicKey)
	if !ok {
		return signingKey{}, errKeyFile
	}
	vkey, err := note.NewEd25519VerifierKey(signer.Name(), public)
	if err != nil {
		return signingKey{}, fmt.Errorf("ledger: %w", err)
	}
	verifier, err := note.NewVerifier(vkey)
	if err != nil {
		return signingKey{}, fmt.Errorf("ledger: %w", err)
	}
	return signingKey{signer: signer, verifier: verifier, vkey: vkey, text: text}, nil
}

func readKey(cfg Config, path string) (signingKey, error) {
	text, err := pebblex.ReadFile(cfg.FS, path, maxKeyFile)
	if err != nil {
		return signingKey{}, fmt.Errorf("ledger: %w", err)
	}
	key, err := parseKey(string(text))
	if err != nil {
		return signingKey{}, fault.New(fault.Corrupt, "LEDGER_KEY", "%w: %s; put the original file back", err, path)
	}
	return key, nil
}

// openKey reads the key of a ledger that is to be opened and says what to do if
// there is none.
func openKey(cfg Config) (signingKey, error) {
	key, err := readKey(cfg, cfg.keyFile())
	if !errors.Is(err, os.ErrNotExist) {
		return key, err
	}
	begun, err := cfg.exists(cfg.newKeyFile())
	if err != nil {
		return signingKey{}, err
	}
	store, err := cfg.exists(cfg.store())
	if err != nil {
		return signingKey{}, err
	}
	switch {
	case begun:
		return signingKey{}, fault.New(fault.NotFound, "LEDGER_MISSING", "ledger: making the ledger in %s was interrupted; initialise it again", cfg.Dir)
	case store:
		return signingKey{}, fault.New(fault.Corrupt, "LEDGER_KEY", "ledger: %s is missing beside its store; put the original file back, a new key can not continue this log", cfg.keyFile())
	}
	return signingKey{}, fault.New(fault.NotFound, "LEDGER_MISSING", "ledger: no ledger in %s; initialise one, or mount the right volume", cfg.Dir)
}
