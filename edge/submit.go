package edge

import (
	"context"
	"fmt"
	"mime"
	"net/http"
	"strings"
	"time"

	"github.com/verae/archive/blob"
	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/jobs"
	"github.com/verae/archive/splitter"
	"github.com/verae/archive/wire"
)

const (
	typeMultipart = "multipart/form-data"
	acceptedTypes = typeJSON + ", " + typeMultipart
)

// postTimestamp takes a submission and answers 202, or waits first if the
// caller prefers to.
func (s *Server) postTimestamp(x *exchange) error { return s.submit(x, 0) }

// postTimestampWait is postTimestamp with a wait. A caller may prefer a shorter
// one.
func (s *Server) postTimestampWait(x *exchange) error { return s.submit(x, s.WaitJob) }

// submit is the whole way of a submission through this door. wait is how long
// the route waits for the job's end unless the caller says.
func (s *Server) submit(x *exchange, wait time.Duration) error {
	caller := jobs.Caller{TenantID: x.tenant(), SubmissionID: wire.NewSubmissionID()}
	var err error
	if caller.IdempotencyKey, err = idempotencyKey(x.r.Header); err != nil {
		return err
	}
	req, err := s.read(x, caller)
	if err != nil {
		return err
	}
	include := req.IncludeAttached // Accept owns req
	accepted, err := s.Jobs.Accept(x.r.Context(), caller, req)
	x.endUpload()
	if err != nil {
		return err
	}
	until := s.until(x, wait)
	view := jobs.View{SubmissionID: accepted.SubmissionID, IncludeAttached: &include}
	job, ended, err := s.await(x, accepted.JobID, view, until)
	if ended {
		return x.answer(http.StatusOK, job)
	}
	x.note(err) // the submission stands, whatever kept its job from being shown now
	x.Header().Set("Location", accepted.StatusURL)
	x.Header().Set("Retry-After", retryAfter(time.Second))
	return x.answer(http.StatusAccepted, accepted)
}

// read reads the request by its media type, to the end of its body. The error
// leaves no upload open.
func (s *Server) read(x *exchange, c jobs.Caller) (*splitter.Request, error) {
	contentType, _, err := oneHeader(x.r.Header, "Content-Type")
	if err != nil {
		return nil, err
	}
	if err := plainEncoding(x.r.Header); err != nil {
		return nil, err
	}
	config := splitter.Config{Limits: s.Body, Uploader: countedUploader{s, x}, SubmissionID: c.SubmissionID, TenantID: c.TenantID}
	media, _, _ := strings.Cut(contentType, ";")
	switch words := strings.Fields(strings.ToLower(media)); {
	case len(words) > 0 && words[0] == typeMultipart: // a missing ";" is the splitter's to explain
		if err := s.Jobs.Room(); err != nil {
			return nil, err
		}
		if err := x.limitBody("MAX_BODY", s.Body.Body, "send fewer or smaller files"); err != nil {
			return nil, err
		}
		return splitter.ReadMultipart(x.r.Context(), x.body, contentType, config)
	case len(words) == 1 && words[0] == typeJSON:
		if err := inUTF8(contentType); err != nil {
			return nil, err
		}
		if err := x.limitBody("MAX_JSON_BODY", s.Body.JSONBody, "send files as multipart/form-data"); err != nil {
			return nil, err
		}
		return splitter.ReadJSON(x.r.Context(), x.body, config)
	}
	return nil, mediaType("a timestamp is asked for with application/json or multipart/form-data")
}

// mediaType refuses the media type of a body.
func mediaType(format string, args ...any) error {
	return fault.New(fault.Invalid, splitter.CodeUnsupportedMediaType, "Content-Type: "+format, args...).InField("Content-Type")
}

// inUTF8 refuses JSON in another encoding. RFC 8259, section 8.1, knows only
// UTF-8, but many clients say so.
func inUTF8(contentType string) error {
	_, params, err := mime.ParseMediaType(contentType)
	if err != nil {
		return mediaType("it does not parse (%w); send application/json", err)
	}
	if charset, found := params["charset"]; found && !strings.EqualFold(charset, "utf-8") {
		return mediaType("JSON is read in UTF-8 alone; send application/json")
	}
	return nil
}

// plainEncoding refuses a body that is not sent as it is: what is hashed is
// what was on the wire.
func plainEncoding(h http.Header) error {
	encoding, found, err := oneHeader(h, "Content-Encoding")
	if err == nil && found && !strings.EqualFold(encoding, "identity") {
		err = fault.New(fault.Invalid, splitter.CodeUnsupportedEncoding, "Content-Encoding: bodies are read as they are; send the body uncompressed and leave the header out").InField("Content-Encoding")
	}
	return err
}

// limitBody bounds the body of the exchange. One that says to be longer is
// refused before it is read. One byte more than allowed may be read, by which
// the splitter sees the excess.
func (x *exchange) limitBody(name string, limit int64, fix string) error {
	if x.r.ContentLength > limit {
		return fault.New(fault.Invalid, splitter.CodeTooLarge, "the body is over the limit %s of %d bytes; %s", name, limit, fix)
	}
	x.body.in = http.MaxBytesReader(x.w, x.r.Body, limit+1)
	return nil
}

// countedUploader opens uploads for an exchange that holds an upload slot.
type countedUploader struct {
	s *Server
	x *exchange
}

func (u countedUploader) OpenUpload(ctx context.Context, key [32]byte, p blob.Profile) (splitter.Upload, error) {
	if err := u.s.takeUpload(u.x); err != nil {
		return nil, err
	}
	up, err := u.s.Uploader.OpenUpload(ctx, key, p)
	if err != nil {
		return nil, fmt.Errorf("edge: %w", err)
	}
	return up, nil
}
