package blob

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/verae/archive/internal/fault"
)

// File describes a file that is about to be sent.
type File struct {
	Size        int64  // bytes, as our own record says
	ContentType string // as stored; only those of a short list reach the client
	Name        string // as stored; may be empty
}

// Source finds files for the caller of a request, who is known from ctx.
type Source interface {
	// Open returns the file with the CID c, if the caller may see it. The check
	// must be for exactly this CID, codec included. What the caller may not see
	// is NotFound, as is what does not exist. The reader gives exactly Size
	// bytes, each checked, and then io.EOF; it may do nothing before the first
	// Read, since HEAD and 304 never read. The handler closes it.
	Open(ctx context.Context, c CID) (File, io.ReadCloser, error)
}

// StatusError is an error for which HTTP prescribes a status that its fault kind
// does not tell: 405, 406 or 412.
type StatusError struct {
	Status int
	Err    error
}

// Error returns the text of the wrapped error.
func (e *StatusError) Error() string { return e.Err.Error() }

// Unwrap returns the wrapped error.
func (e *StatusError) Unwrap() error { return e.Err }

// DefaultWriteTimeout is how long a client may take for one piece of a file.
const DefaultWriteTimeout = 30 * time.Second

// sendStep is the piece in which a file is sent, in bytes.
const sendStep = 128 << 10

// HandlerConfig is what a [Handler] needs.
type HandlerConfig struct {
	Source Source
	// Error answers a request that failed; the status is that of a StatusError,
	// else follows from the fault kind. Nil means a plain problem+json.
	Error func(w http.ResponseWriter, r *http.Request, err error)
	// WriteTimeout bounds the sending of every 128 KiB, however long the whole
	// takes; 0 means DefaultWriteTimeout, which asks for about 4 KiB/s.
	WriteTimeout time.Duration
	// Log is told of downloads that broke off; nil discards.
	Log *slog.Logger
}

// Handler serves GET and HEAD of /ipfs/{cid}: a whole file by its CID, in any
// spelling. Whoever wraps it authenticates the caller first.
//
// It follows the path gateway specification of IPFS for files, but for two
// things: answers may be cached by the caller alone, since they are a tenant's,
// and nothing is ever rendered, so every file is an attachment. Ranges are not
// served (a Range header is ignored, as HTTP allows), nor are other formats.
//
// Content-Length comes from our own record. If the bytes fail after the header
// was sent, the connection is broken, so that no client takes a part for the
// whole.
type Handler struct {
	cfg HandlerConfig
	buf sync.Pool // of *[]byte, sendStep long
}

// NewHandler returns a Handler.
func NewHandler(cfg HandlerConfig) *Handler {
	if cfg.Error == nil {
		cfg.Error = writeProblem
	}
	if cfg.WriteTimeout <= 0 {
		cfg.WriteTimeout = DefaultWriteTimeout
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	return &Handler{cfg: cfg, buf: sync.Pool{New: func() any { return new(make([]byte, sendStep)) }}}
}

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if err := h.serve(w, r); err != nil {
		w.Header().Set("Cache-Control", "no-store")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		h.cfg.Error(w, r, err)
	}
}

// serve answers, or returns an error while nothing has been sent yet. The order
// of the checks is part of the promise: nothing depends on whether a file is
// here before the source said that the caller may see it.
func (h *Handler) serve(w http.ResponseWriter, r *http.Request) error {
	req, err := parseRequest(r)
	if err != nil {
		if req.allow != "" {
			w.Header().Set("Allow", req.allow)
		}
		return err
	}
	if req.probe {
		sendProbe(w, req)
		return nil
	}
	file, body, err := h.cfg.Source.Open(r.Context(), req.cid)
	if fault.Is(err, fault.NotFound) || fault.Is(err, fault.Denied) {
		// The same words for all, whatever the source said.
		return fault.New(fault.NotFound, codeUnknownCID, "no file %s is here for you: check the CID, and that the file was shared with your tenant", req.cid)
	}
	if err != nil {
		return fmt.Errorf("blob: open %s: %w", req.cid, err)
	}
	defer func() {
		if err := body.Close(); err != nil {
			h.cfg.Log.WarnContext(r.Context(), "closing a file", "cid", req.cid.String(), "err", err)
		}
	}()
	return h.send(w, r, req, file, body)
}

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

func sendProbe(w http.ResponseWriter, req request) {
	h := w.Header()
	commonHeaders(h, probeCID)
	h.Set("Content-Type", typeOctetStream)
	if req.raw {
		h.Set("Content-Type", typeRaw)
		h.Set("ETag", `"`+probeCID+`.raw"`)
	}
	h.Set("Content-Length", "0")
	w.WriteHeader(http.StatusOK)
}

// send answers for a file that the caller may see.
func (h *Handler) send(w http.ResponseWriter, r *http.Request, req request, file File, body io.Reader) error {
	cid := req.cid.String()
	etag := `"` + cid + `"`
	if match := r.Header.Values("If-Match"); len(match) > 0 && !matchesETag(match, etag, true) {
		return refuse(http.StatusPreconditionFailed, "PRECONDITION_FAILED", "the file is %s and no other, which If-Match excludes", etag)
	}
	if matchesETag(r.Header.Values("If-None-Match"), etag, false) {
		commonHeaders(w.Header(), cid)
		w.WriteHeader(http.StatusNotModified)
		return nil
	}
	p := &pieces{left: file.Size, body: body}
	if r.Method != http.MethodHead {
		p.buf = h.buf.Get().(*[]byte)
		defer h.buf.Put(p.buf)
		// What fails at once can still be told in words.
		if err := p.next(); err != nil {
			return fmt.Errorf("blob: send %s: %w", cid, err)
		}
	}
	header := w.Header()
	commonHeaders(header, cid)
	header.Set("Content-Length", strconv.FormatInt(file.Size, 10))
	header.Set("Content-Type", contentType(file.ContentType))
	header.Set("Content-Disposition", disposition(firstOf(req.filename, file.Name, cid)))
	w.WriteHeader(http.StatusOK)
	if r.Method != http.MethodHead {
		if err := h.stream(w, p); err != nil {
			h.cfg.Log.WarnContext(r.Context(), "download broken off", "cid", cid, "err", err)
			panic(http.ErrAbortHandler) // a clean end would make the part a file
		}
	}
	return nil
}

// stream sends the piece at hand and all others.
func (h *Handler) stream(w http.ResponseWriter, p *pieces) error {
	rc := http.NewResponseController(w)
	deadline := func(t time.Time) error {
		if err := rc.SetWriteDeadline(t); !errors.Is(err, http.ErrNotSupported) {
			return err
		}
		return nil
	}
	for {
		if err := deadline(time.Now().Add(h.cfg.WriteTimeout)); err != nil {
			return err
		}
		if _, err := w.Write(p.piece); err != nil {
			return err
		}
		if p.left == 0 {
			break
		}
		if err := p.next(); err != nil {
			return err
		}
	}
	// The rest of the buffer goes under the last deadline; the connection's next
	// request must not find it.
	if err := rc.Flush(); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	return deadline(time.Time{})
}

// pieces cuts a body into pieces and holds it to its length: the last piece is
// given out only after the reader ended cleanly, at the right place.
type pieces struct {
	left  int64 // bytes behind piece
	body  io.Reader
	buf   *[]byte
	piece []byte
}

var errLength = errors.New("blob: the file has not the length of its record")

func (p *pieces) next() error {
	p.piece = (*p.buf)[:min(p.left, sendStep)]
	if _, err := io.ReadFull(p.body, p.piece); errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("%w: %d bytes are missing, or fewer", errLength, p.left)
	} else if err != nil {
		return err
	}
	if p.left -= int64(len(p.piece)); p.left > 0 {
		return nil
	}
	var more [1]byte
	switch n, err := io.ReadFull(p.body, more[:]); {
	case n > 0:
		return fmt.Errorf("%w: there are more bytes", errLength)
	case !errors.Is(err, io.EOF):
		return err
	}
	return nil
}

func firstOf(names ...string) string {
	for _, n := range names {
		if n != "" {
			return n
		}
	}
	return ""
}
