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

// Proof shows offline that a leaf is in a log (c2sp.org/tlog-proof). Its text is
// what a user keeps beside his file.
type Proof struct {
	Extra      []byte      // opaque and unauthenticated; nil leaves the line out
	Index      int64       // of the leaf, from 0
	Hashes     []tlog.Hash // inclusion proof, from the leaf's sibling up
	Checkpoint []byte      // signed note, with any cosignatures
}

const (
	proofHeader = "c2sp.org/tlog-proof@v1"

	// MaxProofSize bounds the text of a proof, in bytes. Ours take about 3 KiB
	// at most; the rest is room for cosignatures.
	MaxProofSize = 64 << 10

	// maxProofHashes is the height of the highest tree with an int64 size.
	maxProofHashes = 63
)

// Text returns the proof in its text form.
func (p Proof) Text() string {
	enc := base64.StdEncoding
	size := len(proofHeader) + enc.EncodedLen(len(p.Extra)) + len(p.Hashes)*(enc.EncodedLen(tlog.HashSize)+1) + len(p.Checkpoint) + 64
	b := make([]byte, 0, size)
	b = append(b, proofHeader...)
	if p.Extra != nil {
		b = append(b, "\nextra "...)
		b = enc.AppendEncode(b, p.Extra)
	}
	b = append(b, "\nindex "...)
	b = strconv.AppendInt(b, p.Index, 10)
	for _, h := range p.Hashes {
		b = append(b, '\n')
		b = enc.AppendEncode(b, h[:])
	}
	b = append(b, "\n\n"...)
	return string(append(b, p.Checkpoint...))
}

var errProof = errors.New("tlogx: not a " + proofHeader + " text")

// ParseProof reads the text form of a proof. It accepts only what Text writes,
// so that a proof has one spelling. The checkpoint is not looked into.
func ParseProof(text string) (Proof, error) {
	if len(text) > MaxProofSize {
		return Proof{}, fmt.Errorf("%w: %d bytes, at most %d are read", errProof, len(text), MaxProofSize)
	}
	head, checkpoint, ok := strings.Cut(text, "\n\n")
	lines := strings.Split(head, "\n")
	if !ok || checkpoint == "" || lines[0] != proofHeader || len(lines) < 2 {
		return Proof{}, errProof
	}
	p := Proof{Checkpoint: []byte(checkpoint)}
	lines = lines[1:]
	if extra, ok := strings.CutPrefix(lines[0], "extra "); ok {
		raw, err := base64.StdEncoding.DecodeString(extra)
		if err != nil || base64.StdEncoding.EncodeToString(raw) != extra {
			return Proof{}, fmt.Errorf("%w: extra line is not standard base64", errProof)
		}
		p.Extra, lines = raw, lines[1:]
	}
	if len(lines) == 0 || len(lines)-1 > maxProofHashes {
		return Proof{}, errProof
	}
	number, ok := strings.CutPrefix(lines[0], "index ")
	index, err := parseDecimal(number)
	if !ok || err != nil {
		return Proof{}, fmt.Errorf("%w: no valid index line", errProof)
	}
	p.Index = index
	for i, line := range lines[1:] {
		h, err := parseHash(line)
		if err != nil {
			return Proof{}, fmt.Errorf("%w: hash %d: %w", errProof, i+1, err)
		}
		p.Hashes = append(p.Hashes, h)
	}
	return p, nil
}

// Verify checks that leaf is in the log that signed the proof's checkpoint with
// the given key, and returns the checkpoint. The leaf comes from the caller, who
// builds it from what he has in hand; Extra is not consulted.
func (p Proof) Verify(leaf []byte, log note.Verifier) (Checkpoint, error) {
	c, err := OpenCheckpoint(p.Checkpoint, log)
	if err != nil {
		return Checkpoint{}, err
	}
	if err := tlog.CheckRecord(p.Hashes, c.Size, c.Root, p.Index, tlog.RecordHash(leaf)); err != nil {
		return Checkpoint{}, fmt.Errorf("tlogx: leaf %d is not under the checkpoint of size %d: %w", p.Index, c.Size, err)
	}
	return c, nil
}
