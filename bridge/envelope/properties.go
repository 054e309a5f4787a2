package envelope

import "mime"

// Values of a message's properties on the broker.
const (
	ContentType = "application/json"
	Persistent  = 2 // delivery mode: the message outlives the broker's restart
)

// Properties are what a broker is told of a message beside its bytes.
type Properties struct {
	ContentType   string
	DeliveryMode  uint8
	MessageID     string // empty, or the id
	CorrelationID string // empty, or the id
}

// Properties are those that the message is published with.
func (e *Envelope) Properties() Properties {
	id := string(e.ID)
	return Properties{ContentType: ContentType, DeliveryMode: Persistent, MessageID: id, CorrelationID: id}
}

// CheckProperties holds what a broker says of a message against it.
func (e *Envelope) CheckProperties(p Properties) error {
	media, params, err := mime.ParseMediaType(p.ContentType)
	charset, stated := params["charset"]
	switch {
	case err != nil || media != ContentType:
		return refuse(CodeMalformed, "content_type", "%.40q; it is %s", p.ContentType, ContentType)
	case stated && charset != "utf-8" && charset != "UTF-8":
		return refuse(CodeMalformed, "content_type", "the characters are %.40q; they are UTF-8", charset)
	case p.DeliveryMode != Persistent:
		return refuse(CodeMalformed, "delivery_mode", "%d; it is %d, or the message is lost with the broker", p.DeliveryMode, Persistent)
	case p.MessageID != "" && !e.named(p.MessageID):
		return refuse(CodeMalformed, "message_id", "%.40q is not the id of the message; leave it out or mirror it", p.MessageID)
	case p.CorrelationID != "" && !e.named(p.CorrelationID):
		return refuse(CodeMalformed, "correlation_id", "%.40q is not the id of the message; leave it out or mirror it", p.CorrelationID)
	}
	return nil
}

// named reports whether text is the id of the message.
func (e *Envelope) named(text string) bool {
	var id = e.ID
	return id.UnmarshalText([]byte(text)) == nil && id == e.ID
}
