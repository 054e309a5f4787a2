package edge

import (
	"cmp"
	"crypto/ed25519"
	"net/http"
	"time"

	"github.com/verae/archive/blob"
	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/jobs"
	"github.com/verae/archive/wire"
)

// urlRequest is the body of /zapier/v1/urls.
type urlRequest struct {
	CID       string `json:"cid"`
	Method    string `json:"method,omitzero"`    // GET, which admits HEAD, or HEAD; empty means GET
	ExpiresIn int    `json:"expiresIn,omitzero"` // seconds; 0 means the longest
}

// signedURL is the answer of /zapier/v1/urls.
type signedURL struct {
	Path       string           `json:"path"`       // with its query; relative to this aggregator, or to an archive that serves HTTP
	ArchiveIDs []wire.ArchiveID `json:"archiveIds"` // archives that have the file
	ExpiresAt  wire.Time        `json:"expiresAt"`
}

// postURL signs a URL for a file that the caller may fetch.
func (s *Server) postURL(x *exchange) error {
	if s.URLKey == nil {
		return errNoRoute
	}
	in, err := readOrder[urlRequest](x)
	if err != nil {
		return err
	}
	cid, err := blob.ParseAnyCID(in.CID)
	if err != nil {
		return err
	}
	method := cmp.Or(in.Method, http.MethodGet)
	if method != http.MethodGet && method != http.MethodHead {
		return badParameter("method", "it is neither GET, which admits HEAD too, nor HEAD")
	}
	longest := int(blob.MaxURLLife / time.Second)
	life := cmp.Or(in.ExpiresIn, longest)
	if life < 1 || life > longest {
		return badParameter("expiresIn", "%d is out of range: a signed URL holds for 1 to %d seconds", in.ExpiresIn, longest)
	}
	f, tenant, err := s.findFile(x, func(tenant wire.TenantID) (jobs.File, error) {
		return s.Contents.FileByCID(x.r.Context(), tenant, cid.String(), cid.Digest)
	})
	if fault.Is(err, fault.NotFound) {
		return fault.New(fault.NotFound, blob.CodeUnknownCID, "no file %s is here for you: check the CID, and that the file was shared with your tenant", cid)
	}
	if err != nil {
		return err
	}
	grant := blob.Grant{Tenant: string(tenant), Digest: cid.Digest, Method: method, Expires: time.Now().Add(time.Duration(life) * time.Second).Truncate(time.Second)}
	return x.answer(http.StatusOK, signedURL{
		Path:       "/ipfs/" + cid.String() + "?" + blob.SignURL(s.URLKey, grant).Encode(),
		ArchiveIDs: f.ArchiveIDs, ExpiresAt: wire.At(grant.Expires),
	})
}

// checkURL reads a signed URL where no key was presented: a key says who asks, and
// a signature that is there beside it is not looked at.
func (s *Server) checkURL(x *exchange, digest [32]byte) error {
	q := x.r.URL.Query()
	if x.key != nil || s.URLKey == nil || !blob.SignedURL(q) {
		return nil
	}
	tenant, err := blob.CheckURL([]ed25519.PublicKey{s.URLKey.Public().(ed25519.PublicKey)}, x.r.Method, digest, q, time.Now())
	if err != nil {
		return &blob.StatusError{Status: http.StatusForbidden, Err: err}
	}
	x.signed = wire.TenantID(tenant) // it was one when it was signed
	return nil
}
