package receipts

import (
	"context"
	"sync"
	"time"

	"github.com/verae/archive/wire"
)

// Soon is how long the other archives are waited for when one has what is looked
// for: those that are well answer within it.
const Soon = 50 * time.Millisecond

// GatherFiles is Gather of the file records under digest that tenant may see. If
// enough is not nil, it is true of the records that are looked for, and with one of
// them from an enrolled archive the others are waited for no longer than Soon: bytes
// that have a digest are the same wherever they come from. Who was not heard until
// then is missing, and the result is not complete.
func (g *Gatherer) GatherFiles(ctx context.Context, digest wire.Digest, tenant wire.TenantID, enough func(*wire.Record) bool) (Gathered, error) {
	return g.files(ctx, question{digest: digest, tenant: tenant, enough: enough})
}

// GatherBlock is GatherFiles under the digest of a block, where every record is
// enough if soon is set. That a file has the block can not be told from its record:
// an archive's word for it is taken here, and proved by the bytes that it delivers.
func (g *Gatherer) GatherBlock(ctx context.Context, digest wire.Digest, tenant wire.TenantID, soon bool) (Gathered, error) {
	q := question{digest: digest, tenant: tenant, block: true}
	if soon {
		q.enough = func(*wire.Record) bool { return true }
	}
	return g.files(ctx, q)
}

func (g *Gatherer) files(ctx context.Context, q question) (Gathered, error) {
	var f fanout
	defer f.end()
	q.kinds = []wire.Kind{wire.KindFile}
	return g.timed(ctx, q, &f)
}

// cutShort returns a context whose wait has passed Soon after found was called for
// the first time. stop must be called when it is not needed any more.
func cutShort(ctx context.Context) (cut context.Context, found, stop func()) {
	cut, cancel := context.WithCancelCause(ctx)
	var timer *time.Timer // of the gathering's goroutine
	found = sync.OnceFunc(func() { timer = time.AfterFunc(Soon, func() { cancel(errPassed) }) })
	return cut, found, func() {
		if timer != nil {
			timer.Stop()
		}
		cancel(nil)
	}
}
