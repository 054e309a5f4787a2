package blob

import (
	"net/http"
	"net/url"
	"strings"

	"github.com/verae/archive/internal/fault"
)

// request is what a client asked for.
type request struct {
	cid      CID
	filename string // wanted, "" for the stored one
	probe    bool   // the empty identity block, by which clients look for a gateway
	raw      bool   // format=raw, only for the probe
	allow    string // with an error: the methods that are allowed
}

const (
	probeCID        = "bafkqaaa"
	maxFilename     = 255 // bytes
	typeRaw         = "application/vnd.ipld.raw"
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
		return request{}, fault.New(fault.Invalid, "BAD_QUERY", "the query is malformed: %w", err)
	}
	req := request{filename: query.Get("filename")}
	if len(req.filename) > maxFilename {
		return req, fault.New(fault.Invalid, "BAD_QUERY", "the filename has %d bytes, more than %d", len(req.filename), maxFilename).InField("filename")
	}
	name := strings.TrimPrefix(r.URL.Path, "/ipfs/")
	format := query.Get("format")
	if name == probeCID && (format == "" || format == "raw") {
		req.probe, req.raw = true, format == "raw"
		return req, nil
	}
	if req.cid, err = ParseAnyCID(name); err != nil {
		return req, err
	}
	// A client that asks for a block or an archive must not get a file.
	if query.Has("format") {
		return req, refuse(http.StatusNotAcceptable, "NOT_ACCEPTABLE", "the format %.32q is not served; leave the parameter out for the file", format)
	}
	if !acceptsFile(r.Header.Values("Accept")) {
		return req, refuse(http.StatusNotAcceptable, "NOT_ACCEPTABLE", "only the file is served, and the Accept header excludes it")
	}
	return req, nil
}

func refuse(status int, code, format string, args ...any) error {
	return &StatusError{Status: status, Err: fault.New(fault.Invalid, code, format, args...)}
}

// acceptsFile is false if an Accept header asks for blocks or archives of IPLD
// only. Other media types are no reason to withhold a file.
func acceptsFile(accept []string) bool {
	ipld := false
	for _, line := range accept {
		for part := range strings.SplitSeq(line, ",") {
			media, _, _ := strings.Cut(part, ";")
			media = strings.ToLower(strings.TrimSpace(media))
			if strings.HasPrefix(media, "application/vnd.ipld.") {
				ipld = true
			} else if media != "" {
				return true
			}
		}
	}
	return !ipld
}
