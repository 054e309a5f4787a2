package bus

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/wire"
)

// Codes of the faults that this package makes itself.
const (
	CodeInternal       = "INTERNAL"            // something failed that the caller is not told about
	CodeCorrupt        = "CORRUPT"             // stored bytes are damaged
	CodeTimeout        = "TIMEOUT"             // a deadline passed before the answer
	CodeBusy           = "BUSY"                // a bounded queue is full; try again after the given time
	CodeMalformed      = "MALFORMED"           // the payload or a header does not parse
	CodeUnreachable    = "ARCHIVE_UNREACHABLE" // no process answers for that archive
	CodeNoArchive      = "NO_ARCHIVE"          // fewer archives than needed can take the bytes
	CodeBadAck         = "BAD_ACK"             // an archive acknowledged something else
	CodeUnknownUpload  = "UNKNOWN_UPLOAD"      // the archive has no open upload of that id
	CodeDisconnected   = "BUS_DISCONNECTED"    // this process has no connection to NATS
	CodeNotFound       = "NOT_FOUND"           // not there, or not for this caller
	CodeTooLarge       = "TOO_LARGE"           // a message does not fit into the server's max_payload
	maxProblemMessage  = 512                   // bytes of a message that travel
	maxProblemCodeSize = 64
)

// ProblemOf returns err as it may leave the process. An internal error never
// leaks its text, nor does a corrupt one, whose text names files: the receiver
// learns the kind, and the log of this process has the rest.
func ProblemOf(err error) wire.Problem {
	kind := fault.KindOf(err)
	p := wire.Problem{
		Code:         fault.CodeOf(err),
		Kind:         kind.String(),
		RetryAfterMs: fault.RetryAfter(err).Milliseconds(),
	}
	switch {
	case kind == fault.Internal:
		p.Code, p.Message = CodeInternal, "internal error"
	case kind == fault.Corrupt:
		p.Message = "stored bytes are not what was written"
		if p.Code == "" {
			p.Code = CodeCorrupt
		}
	case p.Code == "" && kind == fault.Transient:
		p.Code = CodeTimeout
		p.Message = message(err)
	default:
		p.Message = message(err)
	}
	return p
}

// message returns the text of err, cut to maxProblemMessage bytes.
func message(err error) string {
	m := err.Error()
	if len(m) > maxProblemMessage {
		m = strings.ToValidUTF8(m[:maxProblemMessage], "") + "..."
	}
	return m
}

// FaultOf returns p as a fault whose text starts with from, the peer that sent
// it. A kind this version does not know is Internal.
func FaultOf(p wire.Problem, from string) error {
	return &fault.Error{
		Kind:       fault.ParseKind(p.Kind),
		Code:       p.Code,
		RetryAfter: time.Duration(p.RetryAfterMs) * time.Millisecond,
		Err:        fmt.Errorf("%s: %s", from, p.Message),
	}
}

// respondProblem answers msg with p.
func respondProblem(msg *nats.Msg, p wire.Problem) error {
	data, err := wire.Encode(p)
	if err != nil {
		return err
	}
	reply := nats.NewMsg(msg.Reply)
	reply.Header.Set(wire.HeaderProblem, p.Code)
	reply.Data = data
	return msg.RespondMsg(reply)
}

// replyFault returns the fault that a reply carries, or nil if it is an answer.
// A reply marked as a problem that does not parse is a fault all the same.
func replyFault(msg *nats.Msg, from string) error {
	if _, marked := msg.Header[wire.HeaderProblem]; !marked {
		return nil
	}
	p, err := wire.Decode[wire.Problem](msg.Data)
	if err != nil {
		return fault.New(fault.Internal, CodeBadAck, "%s: unreadable problem: %w", from, err)
	}
	if len(p.Code) > maxProblemCodeSize {
		p.Code = p.Code[:maxProblemCodeSize]
	}
	return FaultOf(p, from)
}

// sendFault classifies an error of nats.go for a request to a peer.
func sendFault(err error, to string) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, nats.ErrNoResponders):
		return fault.New(fault.Transient, CodeUnreachable, "%s: nobody listens: %w", to, err)
	case errors.Is(err, nats.ErrConnectionClosed), errors.Is(err, nats.ErrDisconnected),
		errors.Is(err, nats.ErrReconnectBufExceeded), errors.Is(err, nats.ErrConnectionDraining),
		errors.Is(err, nats.ErrConnectionReconnecting):
		return fault.New(fault.Transient, CodeDisconnected, "%s: no connection to NATS: %w", to, err)
	case fault.KindOf(err) == fault.Transient, errors.Is(err, nats.ErrTimeout):
		return fault.New(fault.Transient, CodeTimeout, "%s: no answer in time: %w", to, err)
	case errors.Is(err, nats.ErrMaxPayload):
		return fault.New(fault.Invalid, CodeTooLarge, "%s: message larger than the server's max_payload: %w", to, err)
	}
	return fmt.Errorf("%s: %w", to, err)
}
