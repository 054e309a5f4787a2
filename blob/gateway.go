package blob

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/verae/archive/internal/fault"
)

// File describes bytes that are about to be sent: a file, or one block of one.
type File struct {
	Size        int64    // bytes, as our own record says
	SHA256      [32]byte // of all of them
	ContentType string   // as stored; only those of a short list reach the client
	Name        string   // as stored; may be empty
	Public      bool     // everybody may read it, with a key or without

	// Open returns length bytes from off, which lie in the file, each of them
	// checked, and then io.EOF. It may leave the work to the first Read. It is not
	// called where no bytes are sent: for HEAD, and for a copy that is still good.
	// The handler closes what it returns.
	Open func(off, length int64) (io.ReadCloser, error)
}

// Source finds files for the caller of a request, who is known from ctx. What he
// may not see is NotFound, as is what does not exist; what can not be said now is
// another error.
type Source interface {
	// File returns the file with the CID c, if the caller may see it. The check
	// must be for exactly this CID, codec included.
	File(ctx context.Context, c CID) (File, error)
	// Block returns the block with a digest, if the caller may see a file that has
	// it. Its content type and name are not used.
	Block(ctx context.Context, digest [32]byte) (File, error)
}

// StatusError is an error for which HTTP prescribes a status that its fault kind
// does not tell, such as 405 or 412.
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
	// else follows from the fault kind. Content-Range is set with 416 and is to be
	// kept. Nil means a plain problem+json.
	Error func(w http.ResponseWriter, r *http.Request, err error)
	// WriteTimeout bounds the sending of every 128 KiB, however long the whole
	// takes; 0 means DefaultWriteTimeout, which asks for about 4 KiB/s.
	WriteTimeout time.Duration
	// Log is told of downloads that broke off; nil discards.
	Log *slog.Logger
}

// Handler serves GET and HEAD of /ipfs/{cid}: a file by its CID, or with
// format=raw any of its blocks, in any spelling; whole, or one range of bytes.
// Whoever wraps it authenticates the caller first.
//
// It follows the path and trustless gateway specifications of IPFS for files, but
// for two things: what is a tenant's may be cached by the caller alone, and
// nothing is ever rendered, so every file is an attachment.
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
		return h.Send(w, r, req.entity(probeCID, emptyFile))
	}
	file, err := h.find(r.Context(), req)
	if err != nil {
		return err
	}
	return h.Send(w, r, req.entity(req.cid.String(), file))
}

// find asks the source. What is not there and what is not the caller's are one
// error, whatever the source said; a status is the source's own answer to who
// asks, and the same for both.
func (h *Handler) find(ctx context.Context, req request) (f File, err error) {
	if req.raw {
		f, err = h.cfg.Source.Block(ctx, req.cid.Digest)
	} else {
		f, err = h.cfg.Source.File(ctx, req.cid)
	}
	if _, ok := errors.AsType[*StatusError](err); ok || err == nil {
		return f, err
	}
	if !fault.Is(err, fault.NotFound) && !fault.Is(err, fault.Denied) {
		return f, fmt.Errorf("blob: open %s: %w", req.cid, err)
	}
	if req.onlyCached {
		return f, refuse(http.StatusPreconditionFailed, CodeNotCached, "nothing is here for you under %s, and only-if-cached excludes a search elsewhere", req.cid)
	}
	return f, fault.New(fault.NotFound, CodeUnknownCID, "nothing is here for you under %s: check the CID, that the file was shared with your tenant, and ask with format=raw for a block of a file", req.cid)
}

// emptyFile is the content of the probe.
var emptyFile = File{SHA256: [32]byte{ // SHA-256 of nothing
	0xe3, 0xb0, 0xc4, 0x42, 0x98, 0xfc, 0x1c, 0x14, 0x9a, 0xfb, 0xf4, 0xc8, 0x99, 0x6f, 0xb9, 0x24,
	0x27, 0xae, 0x41, 0xe4, 0x64, 0x9b, 0x93, 0x4c, 0xa4, 0x95, 0x99, 0x1b, 0x78, 0x52, 0xb8, 0x55,
}, Public: true, Open: func(int64, int64) (io.ReadCloser, error) { return http.NoBody, nil }}
