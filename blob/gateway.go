package blob

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
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
		return fault.New(fault.NotFound, CodeUnknownCID, "no file %s is here for you: check the CID, and that the file was shared with your tenant", req.cid)
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
