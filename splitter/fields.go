package splitter

import (
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Fields whose name goes on with an argument.
const (
	attachmentPrefix = "attachment:" // then the kind
	ocrPrefix        = "ocr:"        // then the index of a file field
)

// singleFields are the multipart fields that may come once.
var singleFields = map[string]func(*form, *part) error{
	"sha256": func(m *form, p *part) error {
		return m.withText(p, m.limits.Field, "MAX_FIELD", m.setSHA256)
	},
	"expectFileSha256": func(m *form, p *part) error {
		return m.withText(p, m.limits.Field, "MAX_FIELD", m.setExpect)
	},
	"callbackUrl": func(m *form, p *part) error {
		return m.withText(p, m.limits.CallbackURL, "MAX_CALLBACK_URL", m.setCallback)
	},
	"tenantId": func(m *form, p *part) error {
		return m.withText(p, m.limits.Field, "MAX_FIELD", func(string) error { return nil })
	},
	"data":            (*form).hashData,
	"publicMetadata":  func(m *form, p *part) (err error) { m.public, err = m.object(p); return err },
	"privateMetadata": func(m *form, p *part) (err error) { m.private, err = m.object(p); return err },
	"includeAttached": func(m *form, p *part) (err error) { m.attached, err = m.flag(p); return err },
	"sealMetadata":    func(m *form, p *part) (err error) { m.seal, err = m.flag(p); return err },
	"public":          func(m *form, p *part) (err error) { m.everybody, err = m.flag(p); return err },
	"ocr":             func(m *form, p *part) (err error) { m.ocr, err = m.flag(p); return err },
}

// take reads one part to its end, or refuses it.
func (m *form) take(p *part) error {
	if kind, ok := strings.CutPrefix(p.field, attachmentPrefix); ok {
		return m.attachment(p, kind)
	}
	if index, indexed, ok := fileField(p.field); ok {
		return m.file(p, index, indexed)
	}
	if p.field == "shareWith" {
		return m.shareField(p)
	}
	read, known := singleFields[p.field]
	index, isOCR := ocrField(p.field)
	if !known && !isOCR {
		return unknownField(p.field)
	}
	if m.seen[p.field] {
		return refuse(CodeDuplicateField, p.field, "it was sent before; send it once")
	}
	m.seen[p.field] = true
	if isOCR {
		wish, err := m.flag(p)
		m.fileOCR[index] = wish
		return err
	}
	return read(m, p)
}

// withText passes the value of a scalar field on.
func (m *form) withText(p *part, limit int, name string, set func(string) error) error {
	text, err := m.text(p, limit, name)
	if err != nil {
		return err
	}
	return set(text)
}

// fileField reads the spellings of a file field: files, files[] and files[N].
func fileField(name string) (index int, indexed, ok bool) {
	if name == "files" || name == "files[]" {
		return 0, false, true
	}
	digits, ok := strings.CutPrefix(name, "files[")
	if !ok {
		return 0, false, false
	}
	if digits, ok = strings.CutSuffix(digits, "]"); !ok {
		return 0, false, false
	}
	index, ok = parseIndex(digits)
	return index, true, ok
}

// ocrField reads ocr:N.
func ocrField(name string) (index int, ok bool) {
	digits, ok := strings.CutPrefix(name, ocrPrefix)
	if !ok {
		return 0, false
	}
	return parseIndex(digits)
}

// parseIndex reads a small decimal number that is written as we would write it.
func parseIndex(s string) (int, bool) {
	n, err := strconv.Atoi(s)
	return n, err == nil && n >= 0 && n < maxList && strconv.Itoa(n) == s
}

// unknownField refuses a field by its name. JSON ignores unknown keys; here a
// field that was misspelt would be a file or a wish that gets lost.
func unknownField(name string) error {
	known := append(slices.Sorted(maps.Keys(singleFields)), "shareWith", "files")
	lower := strings.ToLower(name)
	_, _, isFile := fileField(lower)
	_, isOCR := ocrField(lower)
	hint := "use one of " + strings.Join(known, ", ") + ", ocr:<index>, attachment:<kind>"
	switch i := slices.IndexFunc(known, func(k string) bool { return strings.EqualFold(k, name) }); {
	case i >= 0:
		hint = "names are case-sensitive; write " + known[i]
	case isFile || isOCR || strings.HasPrefix(lower, attachmentPrefix):
		hint = "names are case-sensitive; write " + lower
	case name == "dataBase64":
		hint = "that is for JSON; send the bytes themselves as data"
	case name == "attachments":
		hint = "that is for JSON; send every attachment as a part named attachment:<kind>"
	case strings.HasPrefix(name, "files["):
		hint = "count file fields from 0 in plain digits, files[0], or call all of them files"
	case strings.HasPrefix(name, ocrPrefix):
		hint = "count file fields from 0 in plain digits, ocr:0"
	}
	return refuse(CodeUnknownField, clipName(name), "this field is not known; %s", hint)
}

// clipName shortens a foreign field name for a message.
func clipName(name string) string {
	if len(name) > 64 || strings.ContainsFunc(name, notPrintableASCII) {
		return clip(name)
	}
	return name
}

// readAll reads r to its end, at most limit bytes of it.
func readAll(r io.Reader, limit int, over error) ([]byte, error) {
	b, err := io.ReadAll(io.LimitReader(r, int64(limit)+1))
	if err != nil {
		return nil, err
	}
	if len(b) > limit {
		return nil, over
	}
	return b, nil
}
