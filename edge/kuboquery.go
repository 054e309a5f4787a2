package edge

import (
	"slices"
	"strconv"
	"strings"

	"github.com/verae/archive/blob"
)

// addOptions is what a caller of add wants.
type addOptions struct {
	profile  blob.Profile
	onlyHash bool // nothing is kept
	progress bool // lines while the body arrives
	silent   bool // no lines at all
	seal     bool // ours: a submission as any other
}

// addOption is an option of add that is looked at. All others are ignored, as
// Kubo does, and so are those whose answer would be the same: pin, quiet, quieter
// and stream-channels.
type addOption struct {
	names []string // the first is the one that messages name
	take  func(o *addOptions, value string) error
}

// addOptionsOf reads the options of add. What would change the meaning of the
// answer and is not done here is refused: a caller must not take one CID for
// another.
func addOptionsOf(q params) (o addOptions, err error) {
	for _, option := range addOptionList {
		var given []string
		for _, name := range option.names {
			given = append(given, q[name]...)
		}
		switch {
		case len(given) > 1:
			return o, badParameter(option.names[0], "it is given more than once; give it once")
		case len(given) == 0:
			continue
		}
		if err := option.take(&o, given[0]); err != nil {
			return o, badParameter(option.names[0], "%w", err)
		}
	}
	o.complete()
	return o, nil
}

// complete fills in the profile. A chunker alone means as many links as Kubo
// makes, and none the profile of IPIP-499.
func (o *addOptions) complete() {
	if o.profile.MaxLinks == 0 {
		o.profile.MaxLinks = blob.Default.MaxLinks
		if o.profile.ChunkSize != 0 {
			o.profile.MaxLinks = blob.Legacy.MaxLinks
		}
	}
	if o.profile.ChunkSize == 0 {
		o.profile.ChunkSize = blob.Default.ChunkSize
	}
}

var addOptionList = []addOption{
	{[]string{"chunker", "s"}, takeChunker},
	{[]string{"max-file-links"}, takeLinks},
	{[]string{"only-hash", "n"}, flagFor(func(o *addOptions) *bool { return &o.onlyHash })},
	{[]string{"progress", "p"}, flagFor(func(o *addOptions) *bool { return &o.progress })},
	{[]string{"silent"}, flagFor(func(o *addOptions) *bool { return &o.silent })},
	{[]string{"seal"}, flagFor(func(o *addOptions) *bool { return &o.seal })},
	{[]string{"cid-version"}, only("1", "CIDs are always of version 1; leave it out, or send 1")},
	{[]string{"hash"}, only("sha2-256", "digests are always sha2-256; leave it out")},
	{[]string{"raw-leaves"}, always(true, "leaves are always raw blocks; leave it out, or send true")},
	{[]string{"trickle", "t"}, always(false, "the layout is always balanced; leave it out")},
	{[]string{"wrap-with-directory", "w"}, always(false, "directories are not kept; leave it out")},
	{[]string{"inline"}, always(false, "blocks are never put into CIDs; leave it out")},
	{[]string{"nocopy"}, always(false, "files are always copied; leave it out")},
	{[]string{"fscache"}, always(false, "files are always copied; leave it out")},
	{[]string{"preserve-mode"}, always(false, "modes of files are not kept; leave it out")},
	{[]string{"preserve-mtime"}, always(false, "times of files are not kept; leave it out")},
	{[]string{"mode"}, never("modes of files are not kept; leave it out")},
	{[]string{"mtime"}, never("times of files are not kept; leave it out")},
	{[]string{"mtime-nsecs"}, never("times of files are not kept; leave it out")},
	{[]string{"to-files"}, never("there is no tree of files here; leave it out")},
}

// textError is a message without an operand.
type textError string

func (e textError) Error() string { return string(e) }

// takeChunker reads size-N, N in bytes. An empty one is none.
func takeChunker(o *addOptions, value string) error {
	if value == "" {
		return nil
	}
	const why = textError("only size-N is cut here, with N from 65536 to 1048576 bytes, such as size-262144; leave it out for blocks of 1 MiB")
	digits, found := strings.CutPrefix(value, "size-")
	n, ok := smallNumber(digits)
	if !found || !ok || (blob.Profile{ChunkSize: n, MaxLinks: blob.MinLinks}).Check() != nil {
		return why
	}
	o.profile.ChunkSize = n
	return nil
}

// takeLinks reads how many links an inner node has.
func takeLinks(o *addOptions, value string) error {
	n, ok := smallNumber(value)
	if !ok || (blob.Profile{ChunkSize: blob.MinChunkSize, MaxLinks: n}).Check() != nil {
		return textError("it must be a number from 16 to 1024; leave it out for 1024, or 174 with a chunker")
	}
	o.profile.MaxLinks = n
	return nil
}

// smallNumber reads plain digits.
func smallNumber(s string) (int, bool) {
	n, err := strconv.ParseInt(s, 10, 32)
	return int(n), err == nil && strconv.FormatInt(n, 10) == s
}

// kuboFlag reads a flag as Kubo does: given without a value it is true.
func kuboFlag(value string) (bool, error) {
	switch {
	case value == "" || slices.Contains([]string{"1", "t", "T", "TRUE", "true", "True"}, value):
		return true, nil
	case slices.Contains([]string{"0", "f", "F", "FALSE", "false", "False"}, value):
		return false, nil
	}
	return false, textError("it is neither true nor false")
}

func flagFor(field func(*addOptions) *bool) func(*addOptions, string) error {
	return func(o *addOptions, value string) (err error) {
		*field(o), err = kuboFlag(value)
		return err
	}
}

// always refuses a flag that is not as it always is here.
func always(want bool, why textError) func(*addOptions, string) error {
	return func(_ *addOptions, value string) error {
		if got, err := kuboFlag(value); err != nil {
			return err
		} else if got != want {
			return why
		}
		return nil
	}
}

// only refuses all values but one.
func only(want string, why textError) func(*addOptions, string) error {
	return func(_ *addOptions, value string) error {
		if !strings.EqualFold(value, want) {
			return why
		}
		return nil
	}
}

// never refuses an option whatever its value.
func never(why textError) func(*addOptions, string) error {
	return func(*addOptions, string) error { return why }
}
