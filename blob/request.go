package blob

import (
	"net/http"
	"net/url"
	"strings"

	"github.com/verae/archive/internal/fault"
)

// request is what a client asked for.
type request struct {
	cid        CID
	filename   string // wanted, "" for the stored one
	probe      bool   // the empty identity block, by which clients look for a gateway
	raw        bool   // a block, not a file
	negotiated bool   // the Accept header had a part in that
	onlyCached bool   // Cache-Control: only-if-cached
	allow      string // with an error: the methods that are allowed
}

const (
	probeCID        = "bafkqaaa"
	maxFilename     = 255 // bytes
	typeOctetStream = "application/octet-stream"
)

func parseRequest(r *http.Request) (request, error) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		return request{allow: "GET, HEAD"}, refuse(http.StatusMethodNotAllowed, "METHOD_NOT_ALLOWED", "%s is not allowed here; use GET or HEAD", r.Method)
	}
	if r.Header.Get("Service-Worker") == "script" {
		return request{}, fault.New(fault.Invalid, "SERVICE_WORKER", "a file of a tenant is never a service worker")
	}
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return request{}, fault.New(fault.Invalid, codeBadQuery, "the query is malformed: %w", err)
	}
	req := request{filename: query.Get("filename"), onlyCached: onlyIfCached(r.Header.Values("Cache-Control"))}
	if len(req.filename) > maxFilename {
		return req, fault.New(fault.Invalid, codeBadQuery, "the filename has %d bytes, more than %d", len(req.filename), maxFilename).InField("filename")
	}
	name := strings.TrimPrefix(r.URL.Path, "/ipfs/")
	if req.probe = name == probeCID; !req.probe {
		if req.cid, err = ParseAnyCID(name); err != nil {
			return req, err
		}
	}
	req.raw, req.negotiated, err = formOf(query, r.Header.Values("Accept"))
	return req, err
}

// entity is the answer to the request, with cid in its canonical form.
func (q request) entity(cid string, f File) Entity {
	e := Entity{File: f, ETag: `"` + cid + `"`, Vary: "Accept", Header: http.Header{}}
	e.ContentType = ContentType(f.ContentType)
	e.Name = firstOf(q.filename, f.Name, cid)
	if q.raw {
		e.ETag, e.ContentType, e.Name = `"`+cid+`.raw"`, typeRaw, firstOf(q.filename, cid+".bin")
	}
	if q.negotiated {
		e.Header.Set("Content-Location", "/ipfs/"+cid+"?format=raw")
	}
	// Older clients read the one, newer ones the other.
	e.Header.Set("X-Ipfs-Path", "/ipfs/"+cid)
	e.Header.Set("Ipfs-Uri", "ipfs://"+cid)
	return e
}

func refuse(status int, code, format string, args ...any) error {
	return &StatusError{Status: status, Err: fault.New(fault.Invalid, code, format, args...)}
}

func onlyIfCached(lines []string) bool {
	for _, line := range lines {
		for directive := range strings.SplitSeq(line, ",") {
			if strings.EqualFold(strings.TrimSpace(directive), "only-if-cached") {
				return true
			}
		}
	}
	return false
}

func firstOf(names ...string) string {
	for _, n := range names {
		if n != "" {
			return n
		}
	}
	return ""
}
