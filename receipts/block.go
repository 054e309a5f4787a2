package receipts

import (
	"context"

	"github.com/verae/archive/wire"
)

// GatherBlock is Gather of the file records under the digest of a block that
// tenant may see. That a file has the block can not be told from its record: an
// archive's word for it is taken here, and proved by the bytes that it delivers.
func (g *Gatherer) GatherBlock(ctx context.Context, digest wire.Digest, tenant wire.TenantID) (Gathered, error) {
	var f fanout
	defer f.end()
	return g.timed(ctx, question{digest: digest, tenant: tenant, kinds: []wire.Kind{wire.KindFile}, block: true}, &f)
}
