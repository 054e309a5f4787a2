package edge

import (
	"cmp"
	"time"

	"github.com/verae/archive/internal/fault"
)

// Limits bounds what clients may cost this server beside the bodies of their
// requests, which splitter.Limits bounds. A zero field means its default. All
// of them are per process: two servers allow twice as much.
type Limits struct {
	// HeaderBytes is how long the header lines of a request may be together
	// [MAX_HEADER_BYTES]; default 32 KiB. net/http allows up to 8 KiB
	// more, and answers 431 by itself.
	HeaderBytes int

	// InFlight is how many requests of one key are worked on at a time, waits
	// included [MAX_REQUESTS_PER_KEY]; default 64. One more gets 429. All
	// requests without a key together count as those of one.
	InFlight int

	// Uploads is how many requests of one key may be sending a file, or a body
	// above LargeBody, at a time [MAX_UPLOADS_PER_KEY]; default 4. One more
	// gets 429 before its file is read.
	Uploads int

	// LargeBody is from how many bytes on a body counts as an upload also
	// without a file, because it is held in memory; default 256 KiB.
	LargeBody int64

	// HeaderTime is how long the header lines may take to arrive; default 10 s.
	HeaderTime time.Duration

	// BodyIdle is how long a body may pause; default 30 s.
	BodyIdle time.Duration

	// BodyGrace and BodyRate bound how long a whole body may be waited for:
	// BodyGrace, and one second for each BodyRate bytes. The time that the
	// server itself needs for what has arrived does not count. Defaults 60 s
	// and 8 KiB a second.
	BodyGrace time.Duration
	BodyRate  int64

	// DrainTime is how long the rest of a refused body is read, so that its
	// sender gets to see the answer; default 1 s.
	DrainTime time.Duration

	// WriteIdle is how long a client may take for 64 KiB of an answer; default
	// 30 s.
	WriteIdle time.Duration

	// KeepAlive is how long an idle connection stays open; default 120 s.
	KeepAlive time.Duration
}

// DefaultLimits are the limits that apply where nothing else is said.
func DefaultLimits() Limits {
	return Limits{
		HeaderBytes: 32 << 10, InFlight: 64, Uploads: 4, LargeBody: 256 << 10,
		HeaderTime: 10 * time.Second, BodyIdle: 30 * time.Second, BodyGrace: time.Minute, BodyRate: 8 << 10,
		DrainTime: time.Second, WriteIdle: 30 * time.Second, KeepAlive: 2 * time.Minute,
	}
}

func (l Limits) withDefaults() Limits {
	d := DefaultLimits()
	return Limits{
		HeaderBytes: cmp.Or(l.HeaderBytes, d.HeaderBytes), InFlight: cmp.Or(l.InFlight, d.InFlight),
		Uploads: cmp.Or(l.Uploads, d.Uploads), LargeBody: cmp.Or(l.LargeBody, d.LargeBody),
		HeaderTime: cmp.Or(l.HeaderTime, d.HeaderTime), BodyIdle: cmp.Or(l.BodyIdle, d.BodyIdle),
		BodyGrace: cmp.Or(l.BodyGrace, d.BodyGrace), BodyRate: cmp.Or(l.BodyRate, d.BodyRate),
		DrainTime: cmp.Or(l.DrainTime, d.DrainTime), WriteIdle: cmp.Or(l.WriteIdle, d.WriteIdle),
		KeepAlive: cmp.Or(l.KeepAlive, d.KeepAlive),
	}
}

// Check returns an error of kind Invalid that names a limit below zero.
func (l Limits) Check() error {
	for _, n := range []struct {
		name  string
		value int64
	}{
		{"MAX_HEADER_BYTES", int64(l.HeaderBytes)}, {"MAX_REQUESTS_PER_KEY", int64(l.InFlight)}, {"MAX_UPLOADS_PER_KEY", int64(l.Uploads)},
		{"LargeBody", l.LargeBody}, {"HeaderTime", int64(l.HeaderTime)}, {"BodyIdle", int64(l.BodyIdle)}, {"BodyGrace", int64(l.BodyGrace)},
		{"BodyRate", l.BodyRate}, {"DrainTime", int64(l.DrainTime)}, {"WriteIdle", int64(l.WriteIdle)}, {"KeepAlive", int64(l.KeepAlive)},
	} {
		if n.value < 0 {
			return fault.New(fault.Invalid, "BAD_LIMIT", "edge: %s is %d; give a positive value, or 0 for the default", n.name, n.value).InField(n.name)
		}
	}
	return nil
}
