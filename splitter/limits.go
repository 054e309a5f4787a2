package splitter

import (
	"cmp"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/wire"
)

// Limits bounds what one request may hold. A zero field means its default. The
// name in brackets is the one that a refusal shows to the sender and that
// configuration uses; a value at the limit passes, one more is refused with
// [CodeTooLarge].
type Limits struct {
	Body        int64 // [MAX_BODY] bytes of a whole multipart body; default 4 GiB
	JSONBody    int64 // [MAX_JSON_BODY] bytes of a JSON body, which is held in memory; default 8 MiB
	Data        int64 // [MAX_DATA] bytes of a data part, hashed in passing; default 8 MiB
	Field       int   // [MAX_FIELD] bytes of a scalar multipart field; default 256
	Metadata    int   // [MAX_METADATA] bytes of publicMetadata and of privateMetadata, each; default 256 KiB
	Attachment  int   // [MAX_ATTACHMENT] bytes of one attachment; default 256 KiB
	Attachments int   // [MAX_ATTACHMENTS] attachments of a request, all held in memory; default 32
	Files       int   // [MAX_FILES] files of a request; default 32
	Parts       int   // [MAX_PARTS] parts of a multipart body; default 64
	PartHeader  int   // [MAX_PART_HEADER] bytes of one part's header lines with their line ends; default 16 KiB
	FileName    int   // [MAX_FILE_NAME] bytes of a file's name; default 255
	ContentType int   // [MAX_CONTENT_TYPE] bytes of a stated content type; default 255
	Shares      int   // [MAX_SHARES] different tenants a request is shared with; default 64
	CallbackURL int   // [MAX_CALLBACK_URL] bytes of callbackUrl; default 2048
}

// maxPartHeader is what MAX_PART_HEADER can be at most: the header must fit the
// buffer it is read with.
const maxPartHeader = readBuffer / 2

// maxList is what the limits of lists can be at most. The parts of a submission
// are numbered up to wire.MaxPart.
const maxList = 10_000

// DefaultLimits are the limits that apply where nothing else is said.
func DefaultLimits() Limits {
	return Limits{
		Body: 4 << 30, JSONBody: 8 << 20, Data: 8 << 20,
		Field: 256, Metadata: 256 << 10, Attachment: 256 << 10, Attachments: 32, Files: 32,
		Parts: 64, PartHeader: 16 << 10, FileName: 255, ContentType: 255, Shares: 64, CallbackURL: 2048,
	}
}

// named lists the limits with their names and the highest values that work.
// Most of the latter are those of a record.
func (l *Limits) named() []limit {
	return []limit{
		{"MAX_BODY", l.Body, wire.MaxInteger}, {"MAX_JSON_BODY", l.JSONBody, wire.MaxInteger}, {"MAX_DATA", l.Data, wire.MaxInteger},
		{"MAX_FIELD", int64(l.Field), wire.MaxBody}, {"MAX_METADATA", int64(l.Metadata), wire.MaxBody},
		{"MAX_ATTACHMENT", int64(l.Attachment), wire.MaxBody}, {"MAX_ATTACHMENTS", int64(l.Attachments), maxList},
		{"MAX_FILES", int64(l.Files), maxList}, {"MAX_PARTS", int64(l.Parts), maxList},
		{"MAX_PART_HEADER", int64(l.PartHeader), maxPartHeader}, {"MAX_FILE_NAME", int64(l.FileName), wire.MaxFileName},
		{"MAX_CONTENT_TYPE", int64(l.ContentType), wire.MaxContentType}, {"MAX_SHARES", int64(l.Shares), wire.MaxShares},
		{"MAX_CALLBACK_URL", int64(l.CallbackURL), wire.MaxBody},
	}
}

// limit is one of the Limits: its name, its value, and the highest that works.
type limit struct {
	name        string
	value, most int64
}

// Check returns an error of kind Invalid, naming the limit, if one is negative
// or above what its use allows.
func (l Limits) Check() error {
	for _, n := range l.named() {
		switch {
		case n.value < 0:
			return fault.New(fault.Invalid, "BAD_LIMIT", "splitter: %s is %d; give a positive number, or 0 for the default", n.name, n.value).InField(n.name)
		case n.value > n.most:
			return fault.New(fault.Invalid, "BAD_LIMIT", "splitter: %s is %d; at most %d works", n.name, n.value, n.most).InField(n.name)
		}
	}
	return nil
}

// withDefaults returns l with every zero field replaced.
func (l Limits) withDefaults() Limits {
	d := DefaultLimits()
	return Limits{
		Body: cmp.Or(l.Body, d.Body), JSONBody: cmp.Or(l.JSONBody, d.JSONBody), Data: cmp.Or(l.Data, d.Data),
		Field: cmp.Or(l.Field, d.Field), Metadata: cmp.Or(l.Metadata, d.Metadata),
		Attachment: cmp.Or(l.Attachment, d.Attachment), Attachments: cmp.Or(l.Attachments, d.Attachments),
		Files: cmp.Or(l.Files, d.Files), Parts: cmp.Or(l.Parts, d.Parts), PartHeader: cmp.Or(l.PartHeader, d.PartHeader),
		FileName: cmp.Or(l.FileName, d.FileName), ContentType: cmp.Or(l.ContentType, d.ContentType),
		Shares: cmp.Or(l.Shares, d.Shares), CallbackURL: cmp.Or(l.CallbackURL, d.CallbackURL),
	}
}

// tooLarge refuses what is over the limit with the given name.
func tooLarge(field, name string, limit int64, unit, fix string) error {
	return refuse(CodeTooLarge, field, "over the limit %s of %d %s; %s", name, limit, unit, fix)
}
