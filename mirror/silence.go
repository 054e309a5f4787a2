package mirror

import "github.com/verae/archive/wire"

// Silence is the word of a mirror that an archive has nothing for a question.
type Silence struct {
	ID   wire.ArchiveID
	Boot string // the process that is mirrored
	Seq  uint64 // up to which of its records that is known; later ones may be there
}
