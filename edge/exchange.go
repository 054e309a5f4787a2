package edge

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/wire"
)

// writeChunk is how much of an answer goes out under one write deadline, in
// bytes.
const writeChunk = 64 << 10

// exchange is one request and its answer: the http.ResponseWriter that handlers
// get, with what is known of the request. It remembers what was sent, and moves
// the write deadline on with every chunk, so that a client that stopped reading
// is let go and a slow one is not. One goroutine uses it.
type exchange struct {
	w      http.ResponseWriter
	r      *http.Request
	conn   *http.ResponseController
	limits *Limits

	requestID string
	start     time.Time
	route     string        // pattern; "" for a path that does not exist
	kubo      bool          // it speaks as Kubo does
	key       *Key          // nil on open routes and before authentication
	signed    wire.TenantID // in whose name a signed URL reads; "" without one
	body      *body

	closeUpload func() // lets go of the upload slot; nil while none is held

	status int // of the answer; 0 before it has begun
	sent   int64
	err    error // what went wrong, for the log
}

// note keeps an error for the log. The first counts.
func (x *exchange) note(err error) {
	if x.err == nil {
		x.err = err
	}
}

// tenant is the tenant that the request acts for.
func (x *exchange) tenant() wire.TenantID { return x.key.TenantID }

// Header returns the headers of the answer.
func (x *exchange) Header() http.Header { return x.w.Header() }

// Unwrap lets http.ResponseController find the connection.
func (x *exchange) Unwrap() http.ResponseWriter { return x.w }

// WriteHeader begins the answer.
func (x *exchange) WriteHeader(status int) {
	if status >= http.StatusOK {
		if x.status != 0 {
			return
		}
		x.status = status
		x.body.giveUp()
	}
	x.extend()
	x.w.WriteHeader(status)
}

// Write sends the next bytes of the answer.
func (x *exchange) Write(p []byte) (n int, err error) {
	if x.status == 0 {
		x.WriteHeader(http.StatusOK)
	}
	for first := true; first || n < len(p) && err == nil; first = false {
		x.extend()
		var m int
		m, err = x.w.Write(p[n:min(len(p), n+writeChunk)])
		n += m
	}
	x.sent += int64(n)
	return n, err
}

// extend moves the write deadline on. A connection that can not have one is
// closed, and the next write says so; the recorders of tests have none.
func (x *exchange) extend() { _ = x.conn.SetWriteDeadline(time.Now().Add(x.limits.WriteIdle)) }

// attrs describes the exchange for the access log, beside the request's id,
// which is in the context. Nothing here is secret, and nothing tells what was
// timestamped.
func (x *exchange) attrs() []slog.Attr {
	list := []slog.Attr{
		slog.String("method", method(x.r)), slog.String("route", x.route),
		slog.Int("status", x.status), slog.Duration("dur", time.Since(x.start)),
		slog.Int64("received", x.body.got), slog.Int64("sent", x.sent),
	}
	if x.key != nil {
		list = append(list, slog.String("tenant", string(x.key.TenantID)), slog.String("key", x.key.ID))
	}
	if x.signed != "" {
		list = append(list, slog.String("tenant", string(x.signed)), slog.Bool("signed", true))
	}
	if x.gone() {
		list = append(list, slog.Bool("gone", true))
	}
	switch {
	case x.err == nil:
	case x.refused(): // the words of a refusal may quote what was sent
		list = append(list, slog.String("code", fault.CodeOf(x.err)))
	default:
		list = append(list, slog.Any("err", x.err))
	}
	return list
}

// level is above Info for what an operator has to look at.
func (x *exchange) level() slog.Level {
	switch {
	case x.err == nil || x.gone() || x.refused():
		return slog.LevelInfo
	case fault.Is(x.err, fault.Transient):
		return slog.LevelWarn
	}
	return slog.LevelError
}

// refused reports whether the answer puts the fault with the caller, or would if
// it had not begun.
func (x *exchange) refused() bool {
	return x.status >= http.StatusBadRequest && x.status < http.StatusInternalServerError ||
		x.status == http.StatusOK && fault.Is(x.err, fault.Invalid)
}

// gone reports whether the client left before its answer was complete. net/http
// cancels the context of a request also when its answer can not be written.
func (x *exchange) gone() bool { return clientGone(x.r.Context()) }

// clientGone reports whether a request's context says that its client left.
func clientGone(ctx context.Context) bool { return errors.Is(ctx.Err(), context.Canceled) }

// method is the method of a request for logs and metrics: a foreign word is
// not repeated.
func method(r *http.Request) string {
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions:
		return r.Method
	}
	return "other"
}

// endUpload lets go of the upload slot, if one is held.
func (x *exchange) endUpload() {
	if x.closeUpload != nil {
		x.closeUpload()
		x.closeUpload = nil
	}
}

var _ http.ResponseWriter = (*exchange)(nil)
