package archive

import (
	"context"

	"github.com/verae/archive/internal/fault"
)

// knownFiles are the files of an archive some of which are known to be lost: of
// those it is said that they are, whatever is left of them.
type knownFiles struct {
	Files
	n *Node
}

func (k knownFiles) lost(err error, sha256 [32]byte) error {
	if (fault.Is(err, fault.NotFound) || fault.Is(err, fault.Corrupt)) && k.n.FileLost(sha256) {
		return fault.New(fault.Corrupt, CodeFileLost, "archive: the bytes of file %x are lost: no archive that was asked had them; what is known of it is kept: %w", sha256, err)
	}
	return err
}

// Blocks is Files.Blocks. Whoever puts a record of the file asks for them: it is
// not lost any more before the record is acknowledged.
func (k knownFiles) Blocks(ctx context.Context, sha256 [32]byte, cid string) ([][32]byte, error) {
	blocks, err := k.Files.Blocks(ctx, sha256, cid)
	if err == nil {
		k.n.regainedFile(ctx, sha256)
	}
	return blocks, k.lost(err, sha256)
}

// Size is Files.Size.
func (k knownFiles) Size(ctx context.Context, sha256 [32]byte, cid string) (int64, error) {
	size, err := k.Files.Size(ctx, sha256, cid)
	return size, k.lost(err, sha256)
}

// Has is what a store may know of damage: see Node.hasFile.
func (k knownFiles) Has(ctx context.Context, sha256 [32]byte, cid string) (bool, error) {
	if s, ok := k.Files.(interface {
		Has(ctx context.Context, sha256 [32]byte, cid string) (bool, error)
	}); ok {
		return s.Has(ctx, sha256, cid)
	}
	return true, nil // its length was right
}
