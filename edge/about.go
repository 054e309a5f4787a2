package edge

import (
	"net/http"

	"github.com/verae/archive/wire"
)

// me is what a key may know of itself.
type me struct {
	TenantID  wire.TenantID   `json:"tenantId"`
	Tenants   []wire.TenantID `json:"tenants,omitempty"` // further tenants whose files the key may fetch
	KeyID     string          `json:"keyId"`
	Name      string          `json:"name,omitzero"`
	Scopes    []Scope         `json:"scopes"`
	ExpiresAt wire.Time       `json:"expiresAt,omitzero"`
}

// getMe tells whose key it is.
func (s *Server) getMe(x *exchange) error {
	k := x.key
	return x.answer(http.StatusOK, me{
		TenantID: k.TenantID, Tenants: k.Tenants, KeyID: k.ID, Name: k.Name, Scopes: k.Scopes, ExpiresAt: k.Expires,
	})
}

// roster is the answer of /zapier/v1/archives.
type roster struct {
	Archives []ArchiveInfo `json:"archives"`
}

// getArchives lists the enrolled archives.
func (s *Server) getArchives(x *exchange) error {
	return x.answer(http.StatusOK, roster{s.Roster.Archives()})
}

// getLive says that the process answers.
func (s *Server) getLive(x *exchange) error {
	s.Health.Livez(x, x.r)
	return nil
}

// getReady says whether requests should be sent here.
func (s *Server) getReady(x *exchange) error {
	s.Health.OpenReadyz(x, x.r)
	return nil
}
