package tlogx

import (
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

// Checkpoint is what a log says of itself: which log it is, how many leaves it
// has and the root over them (c2sp.org/tlog-checkpoint). Extension lines are
// neither written nor accepted: nobody audits them.
type Checkpoint struct {
	Origin string // names the log for ever; also the name of its key
	Size   int64
	Root   tlog.Hash
}

// maxOrigin bounds an origin, in bytes.
const maxOrigin = 128

// CheckOrigin reports why a text cannot be the origin of a log of ours. An
// origin is a host name and path without a scheme, such as
// example.com/ledger-1, in lower case: letters, digits, dots, hyphens,
// underscores and slashes, at most 128 bytes. C2SP permits more; what we name
// ourselves stays plain enough to type.
func CheckOrigin(origin string) error {
	if origin == "" || len(origin) > maxOrigin {
		return fmt.Errorf("an origin has 1 to %d characters, this one has %d", maxOrigin, len(origin))
	}
	for part := range strings.SplitSeq(origin, "/") {
		if part == "" {
			return fmt.Errorf("origin %q has an empty part: write it like example.com/ledger, without a scheme", origin)
		}
		for i, c := range []byte(part) {
			edge := i == 0 || i == len(part)-1
			switch {
			case c >= 'a' && c <= 'z', c >= '0' && c <= '9':
			case (c == '.' || c == '-' || c == '_') && !edge:
			default:
				return fmt.Errorf("origin %q: character %q is not allowed there: write it like example.com/ledger, in lower case", origin, c)
			}
		}
	}
	return nil
}

// Text returns the note text of c, which is what gets signed.
func (c Checkpoint) Text() string {
	return c.Origin + "\n" + strconv.FormatInt(c.Size, 10) + "\n" + c.Root.String() + "\n"
}

// Sign returns c as a signed note. Ed25519 makes equal signatures for equal
// checkpoints.
func (c Checkpoint) Sign(signers ...note.Signer) ([]byte, error) {
	signed, err := note.Sign(&note.Note{Text: c.Text()}, signers...)
	if err != nil {
		return nil, fmt.Errorf("tlogx: sign checkpoint of %s at size %d: %w", c.Origin, c.Size, err)
	}
	return signed, nil
}

var errCheckpoint = errors.New("tlogx: not a checkpoint: want the three lines origin, size, base64 root")

// ParseCheckpoint reads a note text. It accepts only what Text writes.
func ParseCheckpoint(text string) (Checkpoint, error) {
	lines := strings.Split(text, "\n")
	if len(lines) != 4 || lines[0] == "" || lines[3] != "" {
		return Checkpoint{}, errCheckpoint
	}
	size, err := parseDecimal(lines[1])
	if err != nil {
		return Checkpoint{}, errCheckpoint
	}
	root, err := parseHash(lines[2])
	if err != nil {
		return Checkpoint{}, errCheckpoint
	}
	return Checkpoint{Origin: lines[0], Size: size, Root: root}, nil
}

// OpenCheckpoint verifies the signature of a signed note by the log's key and
// reads its checkpoint. The origin must be the name of the key; signatures by
// unknown keys are ignored.
func OpenCheckpoint(signed []byte, log note.Verifier) (Checkpoint, error) {
	n, err := note.Open(signed, note.VerifierList(log))
	if err != nil {
		return Checkpoint{}, fmt.Errorf("tlogx: checkpoint: %w", err)
	}
	for _, s := range n.Sigs {
		if _, err := base64.StdEncoding.Strict().DecodeString(s.Base64); err != nil {
			return Checkpoint{}, fmt.Errorf("tlogx: checkpoint: signature of %s: %w", s.Name, err)
		}
	}
	c, err := ParseCheckpoint(n.Text)
	if err != nil {
		return Checkpoint{}, err
	}
	if c.Origin != log.Name() {
		return Checkpoint{}, fmt.Errorf("tlogx: checkpoint of %q is signed by the key of %q", c.Origin, log.Name())
	}
	return c, nil
}

// parseDecimal reads a non-negative number written without leading zeros.
func parseDecimal(s string) (int64, error) {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < 0 || strconv.FormatInt(n, 10) != s {
		return 0, fmt.Errorf("tlogx: %q is not a decimal number in canonical form", s)
	}
	return n, nil
}

// parseHash reads a hash in standard base64, refusing any second spelling.
func parseHash(s string) (tlog.Hash, error) {
	raw, err := base64.StdEncoding.Strict().DecodeString(s)
	if err != nil || len(raw) != tlog.HashSize || len(s) != base64.StdEncoding.EncodedLen(tlog.HashSize) {
		return tlog.Hash{}, fmt.Errorf("tlogx: %q is not a base64 SHA-256", s)
	}
	return tlog.Hash(raw), nil
}
