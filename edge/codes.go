package edge

import (
	"errors"
	"net/http"

	"github.com/verae/archive/blob"
	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/splitter"
)

// Codes of refusals that are made here. Others come from below, with the fault
// that carries them.
const (
	codeKeyRequired  = "KEY_REQUIRED"
	codeKeyMalformed = "KEY_MALFORMED"
	codeKeyUnknown   = "KEY_UNKNOWN"
	codeKeyExpired   = "KEY_EXPIRED"
	codeKeyAmbiguous = "KEY_AMBIGUOUS"
	codeScopeMissing = "SCOPE_MISSING"
	codeCrossSite    = "CROSS_SITE"

	codeRouteNotFound    = "ROUTE_NOT_FOUND"
	codeMethodNotAllowed = "METHOD_NOT_ALLOWED"
	codeBadParameter     = "BAD_PARAMETER"
	codeBadHeader        = "BAD_HEADER"
	codeIdempotencyKey   = "BAD_IDEMPOTENCY_KEY"
	codeTooManyRequests  = "TOO_MANY_REQUESTS"
	codeTooManyUploads   = "TOO_MANY_UPLOADS"
	codeInternal         = "INTERNAL"
	codeUnavailable      = "UNAVAILABLE"
	codeFileLost         = "FILE_LOST" // as archives say it
	codeArchivesMissing  = "ARCHIVES_MISSING"
)

// statusOfKind is the HTTP status of a fault whose code is not in statusOfCode.
var statusOfKind = map[fault.Kind]int{
	fault.Invalid:   http.StatusBadRequest,
	fault.Denied:    http.StatusForbidden,
	fault.NotFound:  http.StatusNotFound,
	fault.Conflict:  http.StatusConflict,
	fault.Transient: http.StatusServiceUnavailable,
	fault.Corrupt:   http.StatusInternalServerError,
	fault.Internal:  http.StatusInternalServerError,
}

// statusOfCode holds the codes whose status says more than their kind. The
// code counts only together with the kind it belongs to: what is not
// explicitly the sender's fault never gets a status that blames him.
var statusOfCode = map[fault.Kind]map[string]int{
	fault.Invalid: {
		splitter.CodeSubjectRequired:      http.StatusUnprocessableEntity,
		splitter.CodeDigestMismatch:       http.StatusUnprocessableEntity,
		splitter.CodeFileIsURL:            http.StatusUnprocessableEntity,
		splitter.CodeFileRequired:         http.StatusUnprocessableEntity,
		"OCR_NO_WORKER":                   http.StatusUnprocessableEntity, // package jobs
		"IDEMPOTENCY_KEY_REUSED":          http.StatusUnprocessableEntity, // package jobs
		"UNSUPPORTED":                     http.StatusUnprocessableEntity, // package jobs
		"RETENTION_PAST":                  http.StatusUnprocessableEntity, // package jobs
		"RETENTION_TOO_LONG":              http.StatusUnprocessableEntity, // package jobs
		splitter.CodeTooLarge:             http.StatusRequestEntityTooLarge,
		splitter.CodeUnsupportedMediaType: http.StatusUnsupportedMediaType,
		splitter.CodeUnsupportedEncoding:  http.StatusUnsupportedMediaType,
		codeMethodNotAllowed:              http.StatusMethodNotAllowed,
	},
	fault.Denied: {
		codeKeyRequired:  http.StatusUnauthorized,
		codeKeyMalformed: http.StatusUnauthorized,
		codeKeyUnknown:   http.StatusUnauthorized,
		codeKeyExpired:   http.StatusUnauthorized,
	},
	fault.Transient: {
		codeTooManyRequests: http.StatusTooManyRequests,
		codeTooManyUploads:  http.StatusTooManyRequests,
	},
}

// statusOf returns the HTTP status of an error.
func statusOf(err error) int {
	if e, ok := errors.AsType[*blob.StatusError](err); ok {
		return e.Status
	}
	kind := fault.KindOf(err)
	if status, ok := statusOfCode[kind][fault.CodeOf(err)]; ok {
		return status
	}
	if status, ok := statusOfKind[kind]; ok {
		return status
	}
	return http.StatusInternalServerError
}
