package wire

import "time"

// Subjects of the outbox of OCR jobs: bridge -> aggregator, request/reply, queue
// group. An answer is the payload below, or a Problem, which HeaderProblem marks.
const (
	SubjectOCRClaim = "verae.outbox.ocr.claim" // OutboxClaim -> OutboxItems
	SubjectOCRDone  = "verae.outbox.ocr.done"  // OutboxDone -> OutboxCount
)

// Bounds of a claim. MaxOutboxItems envelopes of the largest kind fit into a
// message of the server's default max_payload many times.
const (
	MaxOutboxItems = 100
	MinOutboxLease = time.Second      // shorter, and an item comes twice before anybody could publish it
	MaxOutboxLease = 10 * time.Minute // longer, and one bridge that died holds up its items for too long
)

// EnvelopeID names a message to a neighbour, the same on every attempt.
type EnvelopeID string

// NewEnvelopeID returns a fresh UUIDv7. Those of one process rise in the order
// they are made.
func NewEnvelopeID() EnvelopeID { return EnvelopeID(processUUIDs.next()) }

// ParseEnvelopeID reads a canonical UUID; see ParseJobID.
func ParseEnvelopeID(s string) (EnvelopeID, error) {
	return parseID[EnvelopeID](s, "an envelope id")
}

// UnmarshalText puts a canonical UUID in lower case and keeps other text as it is.
func (id *EnvelopeID) UnmarshalText(text []byte) error {
	*id = lowerUUID[EnvelopeID](text)
	return nil
}

// OutboxClaim asks for messages that wait, the oldest first, and keeps them from
// other claims for the length of a lease.
type OutboxClaim struct {
	Max     int   `json:"max"`     // items, from 1 to MaxOutboxItems
	LeaseMs int64 `json:"leaseMs"` // from MinOutboxLease to MaxOutboxLease
}

// OutboxItems are the messages that were claimed; none is an answer too. One
// that is not reported as done comes again after its lease, byte for byte, and
// may come earlier if the aggregator was started anew: whoever publishes it keeps
// its id.
type OutboxItems struct {
	Items []OutboxItem `json:"items"`
}

// OutboxItem is a message to publish. The bytes of Envelope are published as they
// stand here.
type OutboxItem struct {
	ID       EnvelopeID `json:"id"`
	Envelope RawJSON    `json:"envelope"`
}

// OutboxDone says that messages were published, confirmed and not returned.
type OutboxDone struct {
	IDs []EnvelopeID `json:"ids"` // at most MaxOutboxItems
}

// OutboxCount counts the messages that left the outbox by an OutboxDone. What had
// left it before, or was never there, does not count and is no error.
type OutboxCount struct {
	Done int `json:"done"`
}

// Lease is how long the claim holds.
func (c OutboxClaim) Lease() time.Duration { return time.Duration(c.LeaseMs) * time.Millisecond }

// Check reports the first rule that c breaks, as an *Error.
func (c OutboxClaim) Check() error {
	if c.Max < 1 || c.Max > MaxOutboxItems {
		return refuse("max", "%d; claim from 1 to %d items", c.Max, MaxOutboxItems)
	}
	if least, most := MinOutboxLease.Milliseconds(), MaxOutboxLease.Milliseconds(); c.LeaseMs < least || c.LeaseMs > most {
		return refuse("leaseMs", "%d; a lease is from %d to %d milliseconds", c.LeaseMs, least, most)
	}
	return nil
}

// Check reports the first rule that d breaks, as an *Error.
func (d OutboxDone) Check() error {
	if len(d.IDs) < 1 || len(d.IDs) > MaxOutboxItems {
		return refuse("ids", "%d; name from 1 to %d items", len(d.IDs), MaxOutboxItems)
	}
	for i, id := range d.IDs {
		if err := checkUUID(string(id), "an envelope id"); err != nil {
			return err.in(index(i)).in("ids")
		}
	}
	return nil
}

// CheckCID admits the one canonical spelling of a CIDv1 over SHA-256: multibase
// "b", lower-case base32, codec raw or dag-pb. The error is an *Error.
func CheckCID(s string) error {
	if err := checkCID(s); err != nil {
		return err
	}
	return nil
}
