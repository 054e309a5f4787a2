package edge

import (
	"context"
	"io"
	"net/http"

	"github.com/verae/archive/blob"
	"github.com/verae/archive/jobs"
	"github.com/verae/archive/wire"
)

// newGateway returns the handler of /ipfs/{cid}. It answers exchanges only.
func newGateway(s *Server) *blob.Handler {
	return blob.NewHandler(blob.HandlerConfig{
		Source:       source{s},
		Error:        func(w http.ResponseWriter, _ *http.Request, err error) { w.(*exchange).refuse(err) },
		WriteTimeout: s.Limits.WriteIdle,
		Log:          nil, // what breaks a download off is noted with its exchange
	})
}

// getIPFS answers with a file by its CID.
func (s *Server) getIPFS(x *exchange) error {
	x.Header().Del("Vary") // the gateway sets its own
	s.gateway.ServeHTTP(x, x.r.WithContext(context.WithValue(x.r.Context(), exchangeKey{}, x)))
	return nil
}

type exchangeKey struct{} // of the exchange, in the context of a request to the gateway

// source finds the files of the gateway for the caller of an exchange.
type source struct{ s *Server }

// Open implements blob.Source. The bytes are asked for at the first Read.
func (o source) Open(ctx context.Context, c blob.CID) (blob.File, io.ReadCloser, error) {
	x := ctx.Value(exchangeKey{}).(*exchange)
	f, tenant, err := o.s.findFile(x, func(tenant wire.TenantID) (jobs.File, error) {
		return o.s.Contents.FileByCID(ctx, tenant, c.String(), c.Digest)
	})
	if err != nil {
		return blob.File{}, nil, err
	}
	return blob.File{Size: f.Size, ContentType: f.ContentType, Name: f.Name}, o.s.open(x, f, tenant), nil
}

var _ blob.Source = source{}
