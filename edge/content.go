package edge

import (
	"cmp"
	"net/http"
	"strconv"

	"github.com/verae/archive/blob"
	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/jobs"
	"github.com/verae/archive/wire"
)

// cacheForEver is for records, which their id fixes. Never public: a shared cache
// would give one tenant's to another (RFC 9111, section 3.5).
const cacheForEver = "private, max-age=31536000, immutable"

// getRecord answers with the exact bytes of a record.
func (s *Server) getRecord(x *exchange) error {
	id, err := recordAsked(x)
	if err != nil {
		return err
	}
	q, err := x.query()
	if err != nil {
		return err
	}
	sealed, err := q.flag("sealed")
	if err != nil {
		return err
	}
	body, err := s.Contents.Record(x.r.Context(), x.tenant(), id, sealed != nil && *sealed)
	if err != nil {
		return err
	}
	h := x.Header()
	if body.Kind != wire.KindPrivateMetadata { // what was opened for this answer is kept nowhere
		h.Set("Cache-Control", cacheForEver)
	}
	if x.unchanged(`"` + body.SHA256.String() + `"`) {
		return nil
	}
	describe(h, recordType(body.ContentType), id.String(), body.SHA256, int64(len(body.Bytes)))
	x.WriteHeader(http.StatusOK)
	x.Write(body.Bytes) // a failure is the connection's end; the exchange keeps it
	return nil
}

// getFile answers with the bytes of a file.
func (s *Server) getFile(x *exchange) error {
	id, err := recordAsked(x)
	if err != nil {
		return err
	}
	f, tenant, err := s.findFile(x, func(tenant wire.TenantID) (jobs.File, error) {
		return s.Contents.File(x.r.Context(), tenant, id)
	})
	if err != nil {
		return err
	}
	file := s.fileOf(x, f, tenant)
	file.ContentType, file.Name = blob.ContentType(f.ContentType), cmp.Or(f.Name, f.SHA256.String())
	return s.gateway.Send(x, x.r, blob.Entity{File: file, ETag: `"` + f.SHA256.String() + `"`})
}

// recordAsked reads the record id of the path.
func recordAsked(x *exchange) (wire.RecordID, error) {
	id, err := wire.ParseRecordID(x.r.PathValue("id"))
	if err != nil {
		return id, badParameter("id", "%w", err)
	}
	return id, nil
}

// findFile looks for a file for each of the viewers of an exchange; see forViewers.
func (s *Server) findFile(x *exchange, find func(wire.TenantID) (jobs.File, error)) (f jobs.File, tenant wire.TenantID, err error) {
	return forViewers(x, find)
}

// forViewers looks for something for each tenant whose files the key may fetch, or
// for everybody where there is no key. The tenant returned is the one who may read
// it. A tenant for whom it can not be said now counts only if no other has it.
func forViewers[T any](x *exchange, find func(wire.TenantID) (T, error)) (found T, tenant wire.TenantID, err error) {
	for _, tenant = range x.viewers() {
		found, findErr := find(tenant)
		if findErr == nil {
			return found, tenant, nil
		}
		if err == nil || fault.Is(err, fault.NotFound) {
			err = findErr
		}
	}
	var none T
	return none, "", err
}

// viewers are those in whose name the exchange may read files.
func (x *exchange) viewers() []wire.TenantID {
	switch {
	case x.signed != "":
		return []wire.TenantID{x.signed}
	case x.key == nil:
		return []wire.TenantID{wire.Public}
	}
	return x.key.FileTenants()
}

// describe sets the headers of a record's bytes. They are somebody's bytes on our
// origin: nothing about them may run or be guessed.
func describe(h http.Header, contentType, name string, digest wire.Digest, size int64) {
	h.Set("Content-Type", contentType)
	h.Set("Content-Disposition", blob.Disposition(name))
	h.Set("Content-Length", strconv.FormatInt(size, 10))
	h.Set("Content-Security-Policy", "sandbox; default-src 'none'")
	h.Set("Accept-Ranges", "none")
	h.Set("Repr-Digest", reprDigest(digest))
}

// recordType is the content type of a record's bytes. JSON can not run, unlike
// most of what a sender may state.
func recordType(stated string) string {
	if stated == typeJSON {
		return typeJSON
	}
	return blob.ContentType(stated)
}
