package wire

import (
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strings"
	"sync"
	"time"
	"unicode/utf8"
)

// uuidLen is the length of a UUID in its canonical form, 8-4-4-4-12 hex.
const uuidLen = 36

// uuids makes version 7 UUIDs (RFC 9562, section 5.7) that rise in the order
// they are made, also within a millisecond and when the clock steps back
// (section 6.2, method 1: the 12 bits of rand_a are a counter that starts at a
// random value below 2048 in every millisecond and carries into the timestamp).
// Order holds within one process only, and nobody may rely on it for more than
// tidy indexes: ids of others are opaque.
type uuids struct {
	now func() time.Time

	mu   sync.Mutex // guards last
	last uint64     // timestamp in milliseconds << 12 | counter
}

var processUUIDs = uuids{now: time.Now}

// next returns a new UUID in canonical form.
func (u *uuids) next() string {
	var b [16]byte
	rand.Read(b[:]) // never fails: crypto/rand crashes the program instead
	start := uint64(binary.BigEndian.Uint16(b[6:])) & 0x7ff

	u.mu.Lock()
	u.last = max(uint64(max(u.now().UnixMilli(), 0))<<12|start, u.last+1)
	at := u.last
	u.mu.Unlock()

	binary.BigEndian.PutUint64(b[:8], at>>12<<16|0x7000|at&0xfff)
	b[8] = b[8]&0x3f | 0x80 // variant 10
	return formatUUID(b)
}

// formatUUID prints b in the 8-4-4-4-12 form, lower case.
func formatUUID(b [16]byte) string {
	var out [uuidLen]byte
	hex.Encode(out[0:8], b[0:4])
	hex.Encode(out[9:13], b[4:6])
	hex.Encode(out[14:18], b[6:8])
	hex.Encode(out[19:23], b[8:10])
	hex.Encode(out[24:36], b[10:16])
	out[8], out[13], out[18], out[23] = '-', '-', '-', '-'
	return string(out[:])
}

// NewJobID returns a fresh UUIDv7. Unlike those of the other ids its bits beside
// the time are all random: job ids are shown to other tenants, and two that were
// made one after the other must not look it.
func NewJobID() JobID {
	var b [16]byte
	rand.Read(b[:])
	at := uint64(max(processUUIDs.now().UnixMilli(), 0))
	random := uint64(binary.BigEndian.Uint16(b[6:])) & 0xfff
	binary.BigEndian.PutUint64(b[:8], at<<16|0x7000|random)
	b[8] = b[8]&0x3f | 0x80 // variant 10
	return JobID(formatUUID(b))
}

// NewSubmissionID returns a fresh UUIDv7.
func NewSubmissionID() SubmissionID { return SubmissionID(processUUIDs.next()) }

// NewPutID returns a fresh UUIDv7.
func NewPutID() PutID { return PutID(processUUIDs.next()) }

// NewEventID returns a fresh UUIDv7.
func NewEventID() EventID { return EventID(processUUIDs.next()) }

// NewCorrelationID returns a fresh UUIDv7, which is a valid subject token.
func NewCorrelationID() CorrelationID { return CorrelationID(processUUIDs.next()) }

// parseUUID returns s in lower case if it is a UUID of any version in the
// canonical 36-character form. The shorter, longer and wrapped spellings that
// some libraries take are refused: two texts of one id would be two keys.
func parseUUID(s, what string) (string, *Error) {
	for i := range min(len(s), uuidLen) {
		dash := i == 8 || i == 13 || i == 18 || i == 23
		if dash && s[i] == '-' || !dash && hexValue[s[i]] != 0xff {
			continue
		}
		r, _ := utf8.DecodeRuneInString(s[i:])
		return "", &Error{Offset: i, Msg: fmt.Sprintf("%q may not stand here in %s; it is a UUID in the 36-character form 8-4-4-4-12", r, what)}
	}
	if len(s) != uuidLen {
		return "", &Error{Offset: min(len(s), uuidLen), Msg: fmt.Sprintf("%s is a UUID of 36 characters, this has %d", what, len(s))}
	}
	return strings.ToLower(s), nil
}

// parseID returns s as the identifier type T if it is a canonical UUID.
func parseID[T ~string](s, what string) (T, error) {
	id, err := parseUUID(s, what)
	if err != nil {
		return "", err
	}
	return T(id), nil
}

// ParseJobID reads a UUID of any version in canonical form; the result is in
// lower case. The same holds for its siblings.
func ParseJobID(s string) (JobID, error) { return parseID[JobID](s, "a job id") }

// ParseSubmissionID reads a canonical UUID; see ParseJobID.
func ParseSubmissionID(s string) (SubmissionID, error) {
	return parseID[SubmissionID](s, "a submission id")
}

// ParsePutID reads a canonical UUID; see ParseJobID.
func ParsePutID(s string) (PutID, error) { return parseID[PutID](s, "a put id") }

// ParseEventID reads a canonical UUID; see ParseJobID.
func ParseEventID(s string) (EventID, error) { return parseID[EventID](s, "an event id") }

// lowerUUID is how ids arrive in payloads: a canonical UUID in lower case,
// anything else untouched, for the payload's Check to refuse by name.
func lowerUUID[T ~string](text []byte) T {
	if id, err := parseUUID(string(text), ""); err == nil {
		return T(id)
	}
	return T(text)
}

// UnmarshalText puts a canonical UUID in lower case and keeps other text as it is.
func (id *JobID) UnmarshalText(text []byte) error {
	*id = lowerUUID[JobID](text)
	return nil
}

// UnmarshalText puts a canonical UUID in lower case and keeps other text as it is.
func (id *SubmissionID) UnmarshalText(text []byte) error {
	*id = lowerUUID[SubmissionID](text)
	return nil
}

// UnmarshalText puts a canonical UUID in lower case and keeps other text as it is.
func (id *PutID) UnmarshalText(text []byte) error {
	*id = lowerUUID[PutID](text)
	return nil
}

// UnmarshalText puts a canonical UUID in lower case and keeps other text as it is.
func (id *EventID) UnmarshalText(text []byte) error {
	*id = lowerUUID[EventID](text)
	return nil
}
