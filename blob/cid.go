package blob

import (
	"fmt"
	"strings"

	cidlib "github.com/ipfs/go-cid"
	"github.com/multiformats/go-multihash"

	"github.com/verae/archive/internal/fault"
)

// maxCIDLen is the longest text that is decoded or quoted at all, in bytes. The
// canonical form has 59 characters, base 16 has 73.
const maxCIDLen = 128

// CID names a block by the SHA-256 of its bytes. Raw tells the two codecs apart:
// raw (a leaf, or a whole file of one chunk) and dag-pb (an inner node or the
// root of a larger file). CIDs are comparable; the zero value names nothing.
type CID struct {
	Digest [32]byte // SHA-256 of the block
	Raw    bool     // codec raw; otherwise dag-pb
}

// String returns the canonical form, CIDv1 in lower-case base32 without any
// prefix, as it stands in records, answers and logs.
func (c CID) String() string { return c.lib().String() }

func (c CID) codec() uint64 {
	if c.Raw {
		return cidlib.Raw
	}
	return cidlib.DagProtobuf
}

func (c CID) lib() cidlib.Cid {
	sum, err := multihash.Encode(c.Digest[:], multihash.SHA2_256)
	if err != nil {
		panic("blob: multihash of a SHA-256: " + err.Error()) // a known code of fitting length cannot fail
	}
	return cidlib.NewCidV1(c.codec(), sum)
}

// ParseCID parses the one form allowed in contracts: a bare CIDv1 in lower-case
// base32 of a SHA-256, codec raw or dag-pb, exactly as [CID.String] writes it.
// Everything else is refused for good: a fault of kind Invalid, code BAD_CID,
// that says what is wrong and how to write it.
func ParseCID(s string) (CID, error) {
	c, err := parse(s)
	if err != nil {
		return CID{}, err
	}
	if want := c.String(); s != want {
		return CID{}, badCID("%q is not in canonical form; write %s", s, want)
	}
	return c, nil
}

// ParseAnyCID parses what people and older tools hold in their hands when they
// read: CIDv0 (Qm...) and any multibase but the two that use a slash, each with
// or without a leading /ipfs/.
// The result is the same as for the canonical form, so that a block is found
// under every spelling. It refuses like [ParseCID].
func ParseAnyCID(s string) (CID, error) { return parse(strings.TrimPrefix(s, "/ipfs/")) }

// parse decodes s and then validates it: the library takes mixed case, trailing
// line ends, short digests and unknown hash functions.
func parse(s string) (CID, error) {
	if len(s) > maxCIDLen {
		return CID{}, badCID("a text of %d bytes is not a CID; at most %d are read", len(s), maxCIDLen)
	}
	if hint := misspelt(s); hint != "" {
		return CID{}, badCID("%q is not a bare CID: %s", s, hint)
	}
	c, err := cidlib.Decode(s)
	if err != nil {
		return CID{}, badCID("%q is not a CID: %w", s, err)
	}
	if !roundTrips(c, s) {
		return CID{}, badCID("%q is not spelt as its own encoding would be (mixed case or an odd prefix); write %s", s, c)
	}
	out, err := fromLib(c)
	if err != nil {
		return CID{}, badCID("%q %w", s, err)
	}
	return out, nil
}

// fromLib takes over a decoded CID if it is of the only sort that is kept here.
func fromLib(c cidlib.Cid) (CID, error) {
	codec := c.Type()
	if codec != cidlib.Raw && codec != cidlib.DagProtobuf {
		return CID{}, fmt.Errorf("has the codec 0x%x; only raw (0x55) and dag-pb (0x70) are kept here", codec)
	}
	sum, err := multihash.Decode(c.Hash())
	if err != nil {
		return CID{}, fmt.Errorf("holds no multihash: %w", err)
	}
	if sum.Code != multihash.SHA2_256 || sum.Length != 32 {
		return CID{}, fmt.Errorf("holds a digest of %d bytes of the hash function 0x%x; only a whole SHA-256 (0x12, 32 bytes) is kept here", sum.Length, sum.Code)
	}
	return CID{Digest: [32]byte(sum.Digest), Raw: codec == cidlib.Raw}, nil
}

// misspelt explains the common ways in which a text that contains a CID is not
// one. It returns "" when the decoder may try.
func misspelt(s string) string {
	switch {
	case s == "":
		return "it is empty"
	case strings.TrimSpace(s) != s:
		return "remove the white space around it"
	case strings.Contains(s, "://"):
		return "it is a URL; send only the part that starts with bafy or bafk"
	case strings.ContainsAny(s, "/?#"):
		return "remove the path or query around it"
	case strings.HasPrefix(s, "qm"):
		return "it looks like a CIDv0 in lower case, which cannot be restored; fetch the CID again from its source"
	}
	return ""
}

// roundTrips reports whether s is exactly how c is written in the base s uses.
func roundTrips(c cidlib.Cid, s string) bool {
	if c.Version() == 0 {
		return c.String() == s // without multibase; "z" before a CIDv0 is not a spelling
	}
	base, err := cidlib.ExtractEncoding(s)
	if err != nil {
		return false
	}
	text, err := c.StringOfBase(base)
	return err == nil && text == s
}

func badCID(format string, args ...any) error {
	return fault.New(fault.Invalid, CodeBadCID, "blob: "+format, args...).InField("cid")
}
