package wire

// OpBlock is an operation on an archive's blob subject, beside those of files:
// BlobRead, HeaderTenant, HeaderCID -> raw bytes of one block, with HeaderOffset,
// HeaderSize and, when everybody may read the block, HeaderPublic. The CID counts
// by its digest alone: a block is the same under every codec. A length of 0 asks
// for the size only.
//
// Who may see a file may see each of its blocks. To him a block that is lost is
// damage; to others, and of what is no block, it is not there.
const OpBlock = "block"

// HeaderPublic marks bytes that everybody may read; its value is "true".
const HeaderPublic = "Verae-Public"

// Block describes one block of a file as archives know it.
type Block struct {
	Size   int64 // bytes
	Public bool  // a file with this block is shared with everybody in ModeFiles
}

// ParseViewer reads the id of whoever looks: a tenant, or Public for somebody
// without a key, who sees what is shared with everybody and nothing else.
func ParseViewer(s string) (TenantID, error) {
	if TenantID(s) == Public {
		return Public, nil
	}
	return ParseTenantID(s)
}
