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

// health is the answer of the health routes. It names what fails, not why: the
// routes are open.
type health struct {
	Status string        `json:"status"`
	Checks []checkResult `json:"checks,omitempty"`
}

type checkResult struct {
	Name string `json:"name"`
	OK   bool   `json:"ok"`
}

// getLive says that the process answers.
func (s *Server) getLive(x *exchange) error {
	return x.answer(http.StatusOK, health{Status: "ok"})
}

// getReady says whether requests should be sent here.
func (s *Server) getReady(x *exchange) error {
	h, status := health{Status: "ready"}, http.StatusOK
	for _, c := range s.Checks {
		err := c.Ready(x.r.Context())
		h.Checks = append(h.Checks, checkResult{c.Name, err == nil})
		if err != nil {
			h.Status, status = "not ready", http.StatusServiceUnavailable
			s.Log.WarnContext(x.r.Context(), "not ready", "check", c.Name, "err", err)
		}
	}
	if s.running.Err() != nil {
		h.Status, status = "draining", http.StatusServiceUnavailable
	}
	if status != http.StatusOK {
		x.Header().Set("Retry-After", retryAfter(0))
	}
	return x.answer(status, h)
}
