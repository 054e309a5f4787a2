package edge

import (
	"cmp"
	"errors"
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/wire"
)

// Problem is the body of every refusal, application/problem+json by RFC 9457.
// Type is always about:blank, so Title is the meaning of Status; what happened
// is in Code, for programs, and in Detail, for people.
type Problem struct {
	Type      string         `json:"type"`
	Title     string         `json:"title"`
	Status    int            `json:"status"`
	Detail    string         `json:"detail"`
	Instance  string         `json:"instance"` // path of the request, escaped, without its query
	Code      string         `json:"code"`
	RequestID string         `json:"requestId"`
	Errors    []ProblemField `json:"errors,omitempty"`
}

// ProblemField says what is wrong with one input field.
type ProblemField struct {
	Field  string `json:"field"`
	Detail string `json:"detail"`
}

const (
	typeProblem = "application/problem+json"
	typeJSON    = "application/json"
)

// What is told of errors that are not the caller's business.
const (
	detailInternal    = "this is our fault, not yours; the operator finds the cause by the requestId"
	detailUnavailable = "the service can not do this at the moment; try again"
)

// problemOf describes an error to a caller. Only words that were written for
// callers leave: those of a fault with a code, of a kind that is not our own
// fault.
func problemOf(x *exchange, err error) Problem {
	status := statusOf(err)
	p := Problem{
		Type: "about:blank", Title: http.StatusText(status), Status: status, Instance: instanceOf(x.r), RequestID: x.requestID,
	}
	e, ok := errors.AsType[*fault.Error](err)
	switch {
	case status == http.StatusInternalServerError:
		p.Code, p.Detail = codeInternal, detailInternal
	case !ok || e.Code == "" && e.Kind == fault.Transient:
		p.Code, p.Detail = codeUnavailable, detailUnavailable
	default:
		p.Code, p.Detail = cmp.Or(e.Code, defaultCode(e.Kind)), e.Error()
		if e.Field != "" {
			p.Errors = []ProblemField{{Field: e.Field, Detail: e.Error()}}
		}
	}
	return p
}

// defaultCode names a fault that has a kind but no code of its own.
func defaultCode(k fault.Kind) string {
	switch k {
	case fault.Invalid:
		return "INVALID"
	case fault.Denied:
		return "DENIED"
	case fault.NotFound:
		return "NOT_FOUND"
	case fault.Conflict:
		return "CONFLICT"
	}
	return codeInternal
}

// maxInstance bounds what of a foreign path is repeated, in bytes.
const maxInstance = 512

func instanceOf(r *http.Request) string {
	path := r.URL.EscapedPath()
	return path[:min(len(path), maxInstance)]
}

// refuse answers with a problem. If the answer has begun, the connection is
// broken off instead, so that no client takes what it got for the whole.
func (x *exchange) refuse(err error) {
	x.note(err)
	if x.status != 0 {
		panic(http.ErrAbortHandler)
	}
	p := problemOf(x, err)
	told, contentType := any(p), typeProblem
	if x.kubo {
		told, contentType = kuboErrorOf(p), typeJSON
	}
	body, err := wire.Encode(told)
	if err != nil { // a Problem holds nothing but text
		panic(err)
	}
	h := x.Header()
	for name := range h {
		if !keepOnProblem[name] && (name != "Content-Range" || p.Status != http.StatusRequestedRangeNotSatisfiable) {
			h.Del(name)
		}
	}
	h.Set("Cache-Control", "no-store")
	switch p.Status {
	case http.StatusUnauthorized, http.StatusForbidden:
		h.Set("WWW-Authenticate", challenge(p.Code))
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		h.Set("Retry-After", retryAfter(fault.RetryAfter(x.err)))
	case http.StatusUnsupportedMediaType:
		h.Set("Accept-Post", acceptedTypes)  // W3C Linked Data Platform, section 7.1
		h.Set("Accept-Encoding", "identity") // RFC 9110, section 12.5.3
	}
	x.send(p.Status, contentType, body)
}

// keepOnProblem lists the headers that a refusal keeps of an answer that was
// being prepared. Nothing that describes or lets a cache keep a body is here.
var keepOnProblem = map[string]bool{
	"X-Request-Id": true, "X-Content-Type-Options": true, "Cross-Origin-Resource-Policy": true,
	"Referrer-Policy": true, "Allow": true, "Vary": true,
}

// retryAfter writes a delay as whole seconds, rounded up, at least 1: a date or
// a fraction is not understood everywhere.
func retryAfter(d time.Duration) string {
	return strconv.FormatInt(max(1, int64(math.Ceil(d.Seconds()))), 10)
}

// challenge is the WWW-Authenticate header of RFC 6750, section 3, for a code.
func challenge(code string) string {
	const realm = `Bearer realm="verae"`
	switch code {
	case codeScopeMissing:
		return realm + `, error="insufficient_scope"`
	case codeKeyMalformed, codeKeyUnknown, codeKeyExpired:
		return realm + `, error="invalid_token"`
	}
	return realm
}
