package edge

import (
	"context"
	"errors"
	"io"
	"mime"
	"net/http"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/jobs"
	"github.com/verae/archive/splitter"
	"github.com/verae/archive/wire"
)

// Controls decides how long records are retained, and what holds them. All
// methods may be called from many goroutines; their errors carry a fault kind.
type Controls interface {
	// Steer returns when the decision is durable; see jobs.Engine.Steer.
	Steer(ctx context.Context, q jobs.Steering) (wire.Steered, error)
	// Retentions returns how all that a tenant has under a digest stands.
	Retentions(ctx context.Context, tenant wire.TenantID, digest wire.Digest) (wire.Retentions, error)
	// RecordRetention returns how one record of the tenant stands.
	RecordRetention(ctx context.Context, tenant wire.TenantID, id wire.RecordID) (wire.RecordRetention, error)
}

// maxControlBody bounds the body of a request that retains or holds, in bytes.
const maxControlBody = 16 << 10

// controlRequest is that body. Unknown keys are ignored, as everywhere.
type controlRequest struct {
	SHA256      string `json:"sha256"`
	RecordID    string `json:"recordId"`
	RetainUntil string `json:"retainUntil"`
	Name        string `json:"name"`
	Reason      string `json:"reason"`
}

// postRetention retains.
func (s *Server) postRetention(x *exchange) error { return s.postControl(x, wire.KindRetain) }

// postHold holds.
func (s *Server) postHold(x *exchange) error { return s.postControl(x, wire.KindHold) }

func (s *Server) postControl(x *exchange, kind wire.Kind) error {
	in, err := readControl(x)
	if err != nil {
		return err
	}
	q, err := in.steering(x.tenant(), kind)
	if err != nil {
		return err
	}
	return s.steer(x, q, http.StatusCreated)
}

// deleteHold releases a hold, by a record of its own: nothing is deleted.
func (s *Server) deleteHold(x *exchange) error {
	q, err := x.query()
	if err != nil {
		return err
	}
	in := controlRequest{SHA256: x.r.PathValue("sha256")}
	for _, p := range []struct {
		name string
		to   *string
	}{{"recordId", &in.RecordID}, {"name", &in.Name}, {"reason", &in.Reason}} {
		if *p.to, err = q.text(p.name); err != nil {
			return err
		}
	}
	steering, err := in.steering(x.tenant(), wire.KindRelease)
	if err != nil {
		return err
	}
	return s.steer(x, steering, http.StatusOK)
}

// steer has the decision made, and answers 202 while too few archives have it,
// made if it is new, and 200 if it stood before.
func (s *Server) steer(x *exchange, q jobs.Steering, made int) error {
	out, err := s.Controls.Steer(x.r.Context(), q)
	if err != nil {
		return err
	}
	switch {
	case out.Status == wire.StatusPending:
		made = http.StatusAccepted
	case !out.Changed:
		made = http.StatusOK
	}
	x.Header().Set("Location", "/zapier/v1/retentions/"+q.SHA256.String())
	return x.answer(made, out)
}

// getRetentions answers how all under a digest stands.
func (s *Server) getRetentions(x *exchange) error {
	digest, err := wire.ParseDigest(x.r.PathValue("sha256"))
	if err != nil {
		return badParameter("sha256", "%w", err)
	}
	out, err := s.Controls.Retentions(x.r.Context(), x.tenant(), digest)
	if err != nil {
		return err
	}
	return x.answerTagged(out)
}

// getRecordRetention answers how a record stands. It has a path of its own because
// the bytes of a record may be cached for ever, and this may not.
func (s *Server) getRecordRetention(x *exchange) error {
	id, err := recordAsked(x)
	if err != nil {
		return err
	}
	out, err := s.Controls.RecordRetention(x.r.Context(), x.tenant(), id)
	if err != nil {
		return err
	}
	return x.answerTagged(out)
}

// steering turns the texts of a request into what they mean.
func (in *controlRequest) steering(tenant wire.TenantID, kind wire.Kind) (q jobs.Steering, err error) {
	q = jobs.Steering{TenantID: tenant, Kind: kind, Control: wire.Control{Name: in.Name, Reason: in.Reason}}
	if q.SHA256, err = wire.ParseDigest(in.SHA256); err != nil {
		return q, fault.New(fault.Invalid, splitter.CodeBadDigest, "sha256: %w", err).InField("sha256")
	}
	if in.RecordID != "" {
		if q.Control.RecordID, err = wire.ParseRecordID(in.RecordID); err != nil {
			return q, badField("recordId", "%w", err)
		}
	}
	if in.RetainUntil != "" {
		until, ok := wire.Time(in.RetainUntil).Instant()
		if !ok {
			return q, badField("retainUntil", "it is no instant; write it as RFC 3339 with a zone, such as 2036-11-30T00:00:00Z")
		}
		q.Control.RetainUntil = wire.At(until)
	}
	if err := q.Control.Check(kind); err != nil {
		e, _ := errors.AsType[*wire.Error](err)
		return q, badField(e.Field, "%s", e.Msg)
	}
	return q, nil
}

// badField refuses the value of a field.
func badField(field, format string, args ...any) error {
	return fault.New(fault.Invalid, splitter.CodeBadField, field+": "+format, args...).InField(field)
}

// readControl reads the body of a request that retains or holds.
func readControl(x *exchange) (in controlRequest, err error) {
	contentType, _, err := oneHeader(x.r.Header, "Content-Type")
	if err != nil {
		return in, err
	}
	if err := plainEncoding(x.r.Header); err != nil {
		return in, err
	}
	if media, _, err := mime.ParseMediaType(contentType); err != nil || media != typeJSON {
		return in, mediaType("this is asked for with application/json")
	}
	if err := inUTF8(contentType); err != nil {
		return in, err
	}
	if x.r.ContentLength > maxControlBody {
		return in, errControlBody
	}
	body, err := io.ReadAll(io.LimitReader(x.body, maxControlBody+1))
	switch {
	case err != nil:
		return in, fault.New(fault.Invalid, splitter.CodeIncompleteBody, "the body did not arrive whole: %w", err)
	case len(body) > maxControlBody:
		return in, errControlBody
	}
	if in, err = wire.Decode[controlRequest](body); err != nil {
		refusal := fault.New(fault.Invalid, splitter.CodeBadJSON, "the body is not the JSON object that is expected here: %w", err)
		if e, ok := errors.AsType[*wire.Error](err); ok {
			return in, refusal.InField(e.Field)
		}
		return in, refusal
	}
	return in, nil
}

var errControlBody = fault.New(fault.Invalid, splitter.CodeTooLarge, "the body is over the limit of %d bytes; a reason has at most %d", maxControlBody, wire.MaxReason)
