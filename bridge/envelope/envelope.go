// Package envelope is version 1 of the message form that the neighbours' queues
// share, and the payload of their queue of OCR jobs.
//
// A message is one JSON object with exactly five members that are always there:
// version, id, ts, attempt, payload. All others, at the top and in the payload,
// belong to somebody else: they are ignored, and kept byte for byte when a message
// is published again. The package is pure: it knows neither a broker nor a clock.
//
// In the flow it is where package jobs makes the message of an OCR job, and where
// whoever carries messages to the neighbours reads them.
package envelope

import (
	"bytes"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/wire"
)

// Version is the only version there is. A later one would be another contract.
const Version = 1

// MaxAttempts is the last attempt that is worked on: a message with a higher one
// is given up.
const MaxAttempts = 5

// MaxSize bounds a message, in bytes: it describes work and never carries it.
const MaxSize = 256 << 10

// Codes of refusals. All are of kind fault.Invalid, which is permanent: the same
// message is refused again, however often it comes.
const (
	CodeMalformed = "ENVELOPE_MALFORMED" // not the five members, or not strict JSON
	CodeVersion   = "ENVELOPE_VERSION"   // another version than 1
	CodeExhausted = "ENVELOPE_EXHAUSTED" // every attempt was made
	CodePayload   = "ENVELOPE_PAYLOAD"   // the payload is not that of the queue
)

// Envelope is a message. Its fields are read from its bytes and never changed:
// [Envelope.Next] returns another one.
type Envelope struct {
	ID      wire.EnvelopeID // the same on every attempt; in lower case, however it is spelt in the bytes
	TS      int64           // Unix seconds of the first publication; never compared with the id's time
	Attempt int             // from 1
	Payload wire.RawJSON    // a non-empty object

	raw []byte
}

// members are the five that are always there.
type members struct {
	Version wire.RawJSON     `json:"version"`
	ID      *wire.EnvelopeID `json:"id"`
	TS      *int64           `json:"ts"`
	Attempt *int64           `json:"attempt"`
	Payload wire.RawJSON     `json:"payload"`
}

// minted is how a new message is written.
type minted struct {
	Version int             `json:"version"`
	ID      wire.EnvelopeID `json:"id"`
	TS      int64           `json:"ts"`
	Attempt int             `json:"attempt"`
	Payload wire.RawJSON    `json:"payload"`
}

// Mint makes the message that carries payload, which must encode to a non-empty
// object, with a fresh UUIDv7 and as its first attempt.
func Mint(payload any, now time.Time) (Envelope, error) {
	body, err := wire.Encode(payload)
	if err != nil {
		return Envelope{}, err
	}
	raw, err := wire.Encode(minted{Version: Version, ID: wire.NewEnvelopeID(), TS: now.Unix(), Attempt: 1, Payload: body})
	if err != nil {
		return Envelope{}, err
	}
	return Parse(raw)
}

// Parse reads a message. It keeps a copy of raw.
func Parse(raw []byte) (Envelope, error) {
	if len(raw) > MaxSize {
		return Envelope{}, refuse(CodeMalformed, "", "%d bytes; a message has at most %d", len(raw), MaxSize)
	}
	version, err := wire.Decode[struct {
		Version wire.RawJSON `json:"version"`
	}](raw)
	if err != nil {
		return Envelope{}, unreadable(CodeMalformed, "", err)
	}
	switch text := string(version.Version); {
	case text == "":
		return Envelope{}, missing("version")
	case text != strconv.Itoa(Version):
		return Envelope{}, refuse(CodeVersion, "version", "%.20q; this program reads version %d and no other", text, Version)
	}
	m, err := wire.Decode[members](raw)
	if err != nil {
		return Envelope{}, unreadable(CodeMalformed, "", err)
	}
	if err := m.check(); err != nil {
		return Envelope{}, err
	}
	return Envelope{ID: *m.ID, TS: *m.TS, Attempt: int(*m.Attempt), Payload: m.Payload, raw: bytes.Clone(raw)}, nil
}

func (m *members) check() error {
	switch {
	case m.ID == nil:
		return missing("id")
	case m.TS == nil:
		return missing("ts")
	case m.Attempt == nil:
		return missing("attempt")
	case m.Payload == nil:
		return missing("payload")
	}
	if _, err := wire.ParseEnvelopeID(string(*m.ID)); err != nil {
		return refuse(CodeMalformed, "id", "%w", err)
	}
	if *m.TS < 0 {
		return refuse(CodeMalformed, "ts", "%d; send the Unix seconds of the first publication", *m.TS)
	}
	if *m.Attempt < 1 {
		return refuse(CodeMalformed, "attempt", "%d; attempts count from 1", *m.Attempt)
	}
	if !hasMember(m.Payload) {
		return refuse(CodeMalformed, "payload", "it must be an object with something in it; there are no pings on this queue")
	}
	return nil
}

// hasMember reports whether a JSON value is an object that is not empty.
func hasMember(value []byte) bool {
	inside, ok := bytes.CutPrefix(bytes.TrimLeft(value, space), []byte("{"))
	inside = bytes.TrimLeft(inside, space)
	return ok && len(inside) > 0 && inside[0] != '}'
}

// Bytes returns a copy of the message as it came, or was made.
func (e *Envelope) Bytes() []byte { return bytes.Clone(e.raw) }

// Exhausted reports whether the message is to be given up.
func (e *Envelope) Exhausted() bool { return e.Attempt > MaxAttempts }

// Next returns the message of the next attempt, after a failure that may pass. It
// differs in the digits of attempt and in nothing else, also where others have
// added members. One that is exhausted has none.
func (e *Envelope) Next() (Envelope, error) {
	if e.Exhausted() {
		return Envelope{}, refuse(CodeExhausted, "attempt", "%d of at most %d attempts were made: give the message up", e.Attempt, MaxAttempts)
	}
	from, to, ok := member(e.raw, "attempt")
	if !ok {
		return Envelope{}, fault.New(fault.Internal, "", "envelope: a message that was read has no attempt")
	}
	next := *e
	next.Attempt++
	next.raw = append(append(e.raw[:from:from], strconv.Itoa(next.Attempt)...), e.raw[to:]...)
	return next, nil
}

// missing refuses a message without one of its members.
func missing(name string) error {
	return refuse(CodeMalformed, name, "missing; a message has version, id, ts, attempt and payload")
}

// unreadable refuses what wire.Decode did not take. The path that its error has
// goes on from under.
func unreadable(code, under string, err error) error {
	field := under
	if e, ok := errors.AsType[*wire.Error](err); ok && e.Field != "" {
		field = strings.TrimPrefix(under+"."+e.Field, ".")
	}
	return fault.New(fault.Invalid, code, "envelope: %w", err).InField(field)
}

// refuse returns a permanent refusal that names the field at fault.
func refuse(code, field, format string, args ...any) error {
	return fault.New(fault.Invalid, code, "envelope: "+strings.TrimPrefix(field+": ", ": ")+format, args...).InField(field)
}
