package blob

import (
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/verae/archive/internal/fault"
)

// problem is an RFC 9457 answer.
type problem struct {
	Title  string `json:"title"`
	Status int    `json:"status"`
	Code   string `json:"code"`
	Detail string `json:"detail"`
}

// writeProblem is the answer to a failed request where nobody set a better one.
// What is our own fault is not told in detail.
func writeProblem(w http.ResponseWriter, _ *http.Request, err error) {
	p := problem{Status: statusOf(err), Code: fault.CodeOf(err), Detail: err.Error()}
	p.Title = http.StatusText(p.Status)
	switch fault.KindOf(err) {
	case fault.Internal, fault.Corrupt:
		p.Detail = "the file cannot be read; the operator has to look"
	}
	if d := fault.RetryAfter(err); d > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int((d+time.Second-1)/time.Second)))
	}
	body, err := json.Marshal(p)
	must("encode a problem", err)
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(p.Status)
	_, _ = w.Write(body) // the client is told as well as can be
}

func statusOf(err error) int {
	if s, ok := errors.AsType[*StatusError](err); ok {
		return s.Status
	}
	switch fault.KindOf(err) {
	case fault.Invalid:
		return http.StatusBadRequest
	case fault.Denied:
		return http.StatusForbidden
	case fault.NotFound:
		return http.StatusNotFound
	case fault.Conflict:
		return http.StatusConflict
	case fault.Transient:
		return http.StatusServiceUnavailable
	}
	return http.StatusInternalServerError
}
