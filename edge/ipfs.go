package edge

import (
	"context"
	"io"
	"net/http"

	"github.com/verae/archive/blob"
	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/jobs"
	"github.com/verae/archive/wire"
)

// newGateway returns the handler of /ipfs/{cid}, which sends the files of other
// routes too. It answers exchanges only.
func newGateway(s *Server) *blob.Handler {
	return blob.NewHandler(blob.HandlerConfig{
		Source:       source{s},
		Error:        func(w http.ResponseWriter, _ *http.Request, err error) { w.(*exchange).refuse(err) },
		WriteTimeout: s.Limits.WriteIdle,
		Log:          nil, // what breaks a download off is noted with its exchange
	})
}

// getIPFS answers with a file by its CID, or with a block.
func (s *Server) getIPFS(x *exchange) error {
	x.Header().Del("Vary") // the gateway sets its own
	s.gateway.ServeHTTP(x, x.r.WithContext(context.WithValue(x.r.Context(), exchangeKey{}, x)))
	return nil
}

type exchangeKey struct{} // of the exchange, in the context of a request to the gateway

// source finds the files of the gateway for the caller of an exchange.
type source struct{ s *Server }

// File implements blob.Source. The bytes are asked for at the first Read.
func (o source) File(ctx context.Context, c blob.CID) (blob.File, error) {
	x := ctx.Value(exchangeKey{}).(*exchange)
	if err := o.s.checkURL(x, c.Digest); err != nil {
		return blob.File{}, err
	}
	f, tenant, err := o.s.findFile(x, func(tenant wire.TenantID) (jobs.File, error) {
		return o.s.Contents.FileByCID(ctx, tenant, c.String(), c.Digest)
	})
	if err != nil {
		return blob.File{}, x.keyless(err)
	}
	return o.s.fileOf(x, f, tenant), nil
}

// Block implements blob.Source.
func (o source) Block(ctx context.Context, digest [32]byte) (blob.File, error) {
	x := ctx.Value(exchangeKey{}).(*exchange)
	if err := o.s.checkURL(x, digest); err != nil {
		return blob.File{}, err
	}
	var at blockAt
	b, tenant, err := forViewers(x, func(tenant wire.TenantID) (b wire.Block, err error) {
		if at.Block, err = o.s.Contents.Block(ctx, tenant, digest); err != nil {
			return b, err
		}
		return b, at.try(ctx, x, func() (err error) {
			b, err = o.s.Files.StatBlock(ctx, at.ArchiveIDs, tenant, digest)
			return err
		})
	})
	if err != nil {
		return blob.File{}, x.keyless(err)
	}
	f := blob.File{Size: b.Size, SHA256: digest, Public: b.Public}
	f.Open = x.opener(f, func(off, length int64) (in io.ReadCloser, err error) {
		err = at.try(ctx, x, func() (err error) {
			in, err = o.s.Files.ReadBlock(ctx, at.ArchiveIDs, tenant, digest, off, length)
			return err
		})
		if fault.Is(err, fault.NotFound) { // its size was told a moment ago
			err = x.undelivered(err, at.AllHeard)
		}
		return in, err
	})
	return f, nil
}

// blockAt is where a block is.
type blockAt struct{ jobs.Block }

// try does something at the archives that have the block, and once more with those
// that were not waited for. What they can not do is told as for a file, but that
// what none of them knows is not there: a record may be under the digest for
// another reason.
func (b *blockAt) try(ctx context.Context, x *exchange, do func() error) error {
	err := do()
	if err != nil && b.Again != nil {
		if all, lookErr := b.Again(ctx); lookErr == nil {
			b.Block = all
			err = do()
		}
	}
	switch {
	case err == nil:
		return nil
	case !fault.Is(err, fault.NotFound):
		return x.undelivered(err, b.AllHeard)
	case b.AllHeard:
		return errNoBlock
	}
	return fault.New(fault.Transient, codeArchivesMissing, "archives: not all answered, and one may have it: ask again").After(retryFile)
}

var errNoBlock = fault.New(fault.NotFound, "CID_NOT_FOUND", "cid: there is no such block for this key's tenant")

// keyless asks somebody without a key for one instead of telling him that nothing
// is there: he gets the same answer where something is that is not everybody's.
func (x *exchange) keyless(err error) error {
	if x.key != nil || x.signed != "" || !fault.Is(err, fault.NotFound) {
		return err
	}
	return &blob.StatusError{Status: http.StatusUnauthorized, Err: errKeyRequired}
}

var _ blob.Source = source{}
