package wire

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
)

// validCID is the CID of a file with the bytes of helloDigest.
func validCID() string { return cidOf(1, 0x55, 0x12, 32, helloDigest[:]...) }

func cidOf(version, codec, hash, length byte, digest ...byte) string {
	return "b" + base32Lower.EncodeToString(append([]byte{version, codec, hash, length}, digest...))
}

func validMetadata() PutRecord {
	return PutRecord{
		Kind: KindMetadata, SHA256: helloDigest, TenantID: "acme", SubmissionID: "0197f3a0-5c1e-7d43-8a21-9c0d1e2f3a4b",
		AttachedAt: "2026-11-30T14:02:11.123456789Z", ContentType: "application/json", Body: []byte(`{}`),
	}
}

func validFile() PutRecord {
	r := validMetadata()
	r.Kind, r.Body, r.ContentType = KindFile, nil, ""
	r.File = &File{Name: "Vertrag März.pdf", Size: 5, SHA256: helloDigest, CID: validCID(), ContentType: "application/pdf"}
	return r
}

// object is a JSON object of n bytes.
func object(n int) []byte {
	return fmt.Appendf(nil, `{"a":%q}`, strings.Repeat("x", n-len(`{"a":""}`)))
}

func TestPutRecordCheck(t *testing.T) {
	tests := []struct {
		name, field, says string
		change            func(*PutRecord)
	}{
		{"valid", "", "", func(*PutRecord) {}},
		{"minimal", "", "", func(r *PutRecord) {
			*r = PutRecord{Kind: KindMetadata, SHA256: r.SHA256, TenantID: "a", Body: []byte("{}")}
		}},
		{"no kind", "kind", "missing", func(r *PutRecord) { r.Kind = "" }},
		{"the kind of a receipt", "kind", "of receipts", func(r *PutRecord) { r.Kind = ReceiptSeal }},
		{"the kind of another receipt", "kind", "of receipts", func(r *PutRecord) { r.Kind = ReceiptMetadataAttach }},
		{"odd kind", "kind", "'_'", func(r *PutRecord) { r.Kind = "a_b" }},
		{"no digest", "sha256", "missing", func(r *PutRecord) { r.SHA256 = Digest{} }},
		{"no tenant", "tenantId", "missing", func(r *PutRecord) { r.TenantID = "" }},
		{"public owner", "tenantId", "'*'", func(r *PutRecord) { r.TenantID = Public }},
		{"odd submission", "submissionId", "UUID", func(r *PutRecord) { r.SubmissionID = "one" }},
		{"submission in upper case", "submissionId", "lower case", func(r *PutRecord) { r.SubmissionID = SubmissionID(strings.ToUpper(string(r.SubmissionID))) }},
		{"first part", "", "", func(r *PutRecord) { r.Part = 0 }},
		{"last part", "", "", func(r *PutRecord) { r.Part = MaxPart }},
		{"part beyond", "part", "65536", func(r *PutRecord) { r.Part = MaxPart + 1 }},
		{"part below", "part", "-1", func(r *PutRecord) { r.Part = -1 }},
		{"a peer's time", "", "", func(r *PutRecord) { r.AttachedAt = "yesterday, about noon" }},
		{"time at the limit", "", "", func(r *PutRecord) { r.AttachedAt = Time(strings.Repeat("1", MaxTimeText)) }},
		{"time beyond", "attachedAt", "at most 64", func(r *PutRecord) { r.AttachedAt = Time(strings.Repeat("1", MaxTimeText+1)) }},
		{"type at the limit", "", "", func(r *PutRecord) { r.ContentType = strings.Repeat("t", MaxContentType) }},
		{"type beyond", "contentType", "at most 255", func(r *PutRecord) { r.ContentType = strings.Repeat("t", MaxContentType+1) }},
		{"header in type", "contentType", "control", func(r *PutRecord) { r.ContentType = "text/plain\r\nX: y" }},
		{"type not utf-8", "contentType", "UTF-8", func(r *PutRecord) { r.ContentType = "a\xff" }},
		{"no body", "body", "missing", func(r *PutRecord) { r.Body = nil }},
		{"metadata with a file", "file", "only a record of kind", func(r *PutRecord) { r.File = validFile().File }},
		{"metadata at the limit", "", "", func(r *PutRecord) { r.Body = object(MaxBody) }},
		{"metadata beyond", "body", "at most 262144", func(r *PutRecord) { r.Body = object(MaxBody + 1) }},
		{"metadata that is a list", "body", "a list where an object", func(r *PutRecord) { r.Body = []byte("[]") }},
		{"metadata that is no json", "body", "where an object", func(r *PutRecord) { r.Body = []byte("title: x") }},
		{"metadata with a duplicate", "body.a", "twice", func(r *PutRecord) { r.Body = []byte(`{"a":1,"a":2}`) }},
		{"private without body", "body", "missing", func(r *PutRecord) { r.Kind, r.Body = KindPrivateMetadata, nil }},
		{"private is any bytes", "", "", func(r *PutRecord) { r.Kind, r.Body = KindPrivateMetadata, []byte{0xff} }},
		{"private at the limit", "", "", func(r *PutRecord) { r.Kind, r.Body = KindPrivateMetadata, make([]byte, MaxSealedBody) }},
		{"private beyond", "body", "at most 263168", func(r *PutRecord) { r.Kind, r.Body = KindPrivateMetadata, make([]byte, MaxSealedBody+1) }},
		{"attachment is any bytes", "", "", func(r *PutRecord) { r.Kind, r.Body = "approval", []byte("[") }},
		{"empty attachment", "", "", func(r *PutRecord) { r.Kind, r.Body = "approval", nil }},
		{"attachment at the limit", "", "", func(r *PutRecord) { r.Kind, r.Body = "approval", make([]byte, MaxBody) }},
		{"attachment beyond", "body", "as a file", func(r *PutRecord) { r.Kind, r.Body = "approval", make([]byte, MaxBody+1) }},
		{"attachment with a file", "file", "only a record of kind", func(r *PutRecord) { r.Kind, r.File = "approval", validFile().File }},
		{"control without body", "body", "an object is expected", func(r *PutRecord) { r.Kind, r.Body = KindHold, nil }},
		{"grantee with odd id", "shareWith[0].tenantId", "' '", func(r *PutRecord) { r.ShareWith = []Share{{"a b", "A"}} }},
		{"odd mode", "shareWith[1].mode", `"D"`, func(r *PutRecord) { r.ShareWith = []Share{{"a", "A"}, {"b", "D"}} }},
		{"revocation in a record", "shareWith[0].mode", `"none"`, func(r *PutRecord) { r.ShareWith = []Share{{"a", ModeNone}} }},
		{"revocation in a share record", "", "", func(r *PutRecord) { r.Kind, r.Body, r.ShareWith = KindShare, nil, []Share{{"a", ModeNone}} }},
		{"grantee twice", "shareWith[1].tenantId", "twice", func(r *PutRecord) { r.ShareWith = []Share{{"a", "A"}, {"a", "B"}} }},
		{"public", "", "", func(r *PutRecord) { r.ShareWith = []Share{{Public, "A"}, {"acme", "C"}} }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := validMetadata()
			tt.change(&r)
			requireVerdict(t, r.Check(), tt.field, tt.says)
			field := tt.field
			if field != "" {
				field = "record." + field
			}
			requireVerdict(t, Put{Record: r}.Check(), field, tt.says)
		})
	}
}

func TestFileRecordCheck(t *testing.T) {
	tests := []struct {
		name, field, says string
		change            func(*PutRecord)
	}{
		{"valid", "", "", func(*PutRecord) {}},
		{"no file", "file", "missing", func(r *PutRecord) { r.File = nil }},
		{"with body", "body", "has none", func(r *PutRecord) { r.Body = []byte("x") }},
		{"own id", "", "", func(r *PutRecord) { r.File.ID = r.ID() }},
		{"other id", "file.id", "differs", func(r *PutRecord) { r.File.ID = RecordID{1} }},
		{"no name", "", "", func(r *PutRecord) { r.File.Name = "" }},
		{"name at the limit", "", "", func(r *PutRecord) { r.File.Name = strings.Repeat("n", MaxFileName) }},
		{"name beyond", "file.name", "at most 255", func(r *PutRecord) { r.File.Name = strings.Repeat("n", MaxFileName+1) }},
		{"name with newline", "file.name", "control", func(r *PutRecord) { r.File.Name = "a\nb" }},
		{"name with nul", "file.name", "control", func(r *PutRecord) { r.File.Name = "a\x00b" }},
		{"name with delete", "file.name", "control", func(r *PutRecord) { r.File.Name = "a\x7f" }},
		{"name with next line", "file.name", "control", func(r *PutRecord) { r.File.Name = "a\u0085" }},
		{"name not utf-8", "file.name", "UTF-8", func(r *PutRecord) { r.File.Name = "a\xe9" }},
		{"empty file", "", "", func(r *PutRecord) { r.File.Size = 0 }},
		{"largest", "", "", func(r *PutRecord) { r.File.Size = MaxInteger }},
		{"too large", "file.size", "9007199254740992", func(r *PutRecord) { r.File.Size = MaxInteger + 1 }},
		{"negative", "file.size", "-1", func(r *PutRecord) { r.File.Size = -1 }},
		{"no digest", "file.sha256", "missing", func(r *PutRecord) { r.File.SHA256 = Digest{} }},
		{"type", "file.contentType", "control", func(r *PutRecord) { r.File.ContentType = "a\r" }},
		{"dag-pb", "", "", func(r *PutRecord) { r.File.CID = cidOf(1, 0x70, 0x12, 32, helloDigest[:]...) }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := validFile()
			tt.change(&r)
			requireVerdict(t, r.Check(), tt.field, tt.says)
		})
	}
}

func TestRecordsTakeOneSpellingOfACID(t *testing.T) {
	good := validCID()
	last := good[:len(good)-1] + string(good[len(good)-1]+1) // sets a spare bit
	for name, cid := range map[string]string{
		"empty":        "",
		"ellipsis":     "bafybeigdyrztpnv5q...",
		"cut":          good[:58],
		"longer":       good + "a",
		"newline":      good + "\n",
		"upper case":   strings.ToUpper(good),
		"mixed case":   good[:30] + strings.ToUpper(good[30:]),
		"padded":       good[:58] + "=",
		"spare bits":   last,
		"v0":           "QmYwAPJzv5CZsnA625s3Xf2nemtYgPpHdWEz79ojWKPJCv",
		"base58":       "z" + good[1:],
		"path":         "/ipfs/" + good,
		"uri":          "ipfs://" + good,
		"short digest": "bafkreaa",
		"no digest":    cidOf(1, 0x55, 0x12, 0),
		"version 2":    cidOf(2, 0x55, 0x12, 32, helloDigest[:]...),
		"dag-cbor":     cidOf(1, 0x71, 0x12, 32, helloDigest[:]...),
		"sha3":         cidOf(1, 0x55, 0x16, 32, helloDigest[:]...),
		"length 31":    cidOf(1, 0x55, 0x12, 31, helloDigest[:]...),
	} {
		r := validFile()
		r.File.CID = cid
		t.Run(name, func(t *testing.T) { wantError(t, r.Check(), "file.cid", "CIDv1") })
	}
}

func TestPutCheck(t *testing.T) {
	for id, says := range map[PutID]string{"": "", NewPutID(): "", "x": "UUID", PutID(strings.ToUpper(string(NewPutID()))): "lower case"} {
		field := ""
		if says != "" {
			field = "putId"
		}
		requireVerdict(t, Put{PutID: id, Record: validMetadata()}.Check(), field, says)
	}
}

func TestRecordCheck(t *testing.T) {
	whole := func() Record {
		p := validMetadata()
		return Record{
			ID: p.ID(), Kind: p.Kind, SHA256: p.SHA256, TenantID: p.TenantID, SubmissionID: p.SubmissionID, AttachedAt: p.AttachedAt,
			StoredAt: "later", Seq: 1, ContentType: p.ContentType, Body: p.Body, BodySHA256: p.BodySHA256(),
		}
	}
	tests := []struct {
		name, field, says string
		change            func(*Record)
	}{
		{"valid", "", "", func(*Record) {}},
		{"of a peer without ids", "", "", func(r *Record) { r.ID, r.BodySHA256 = RecordID{}, Digest{} }},
		{"body withheld", "", "", func(r *Record) { r.Body = nil }},
		{"body withheld without digest", "body", "missing", func(r *Record) { r.Body, r.BodySHA256 = nil, Digest{} }},
		{"body withheld with another digest", "id", "give", func(r *Record) { r.Body, r.BodySHA256 = nil, Digest{1} }},
		{"body changed", "bodySha256", "the body has", func(r *Record) { r.Body = []byte(`{"a":1}`) }},
		{"body and digest changed", "id", "give", func(r *Record) { r.Body = []byte(`{"a":1}`); r.BodySHA256 = r.Portable().BodySHA256() }},
		{"another id", "id", "give", func(r *Record) { r.ID = RecordID{1} }},
		{"another tenant", "id", "give", func(r *Record) { r.TenantID = "globex" }},
		{"another key", "id", "give", func(r *Record) { r.SHA256 = Digest{1} }},
		{"odd tenant", "tenantId", "' '", func(r *Record) { r.TenantID = "a b" }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := whole()
			tt.change(&r)
			requireVerdict(t, r.Check(), tt.field, tt.says)
		})
	}
	f := validFile()
	r := Record{ID: f.ID(), Kind: f.Kind, SHA256: f.SHA256, TenantID: f.TenantID, SubmissionID: f.SubmissionID, AttachedAt: f.AttachedAt, File: f.File}
	if err := r.Check(); err != nil {
		t.Error(err)
	}
	r.BodySHA256 = Digest{1}
	wantError(t, r.Check(), "body", "has none")
}

func TestDecodePutForms(t *testing.T) {
	key := `"sha256":"` + helloHex + `","tenantId":"acme","kind":"approval"`
	tests := []struct{ name, in, body string }{
		{"base64", `{` + key + `,"body":"aGVsbG8="}`, "hello"},
		{"base64 with escapes", `{` + key + `,"body":"aGVsbG8\u003d"}`, "hello"},
		{"empty string", `{` + key + `,"body":""}`, ""},
		{"object verbatim", `{` + key + `,"body": {"b" : 1.0, "a":"\u00e9"} }`, `{"b" : 1.0, "a":"\u00e9"}`},
		{"list verbatim", `{` + key + `,"body":[1, 2]}`, `[1, 2]`},
		{"number verbatim", `{` + key + `,"body":1152921504606846976}`, `1152921504606846976`},
		{"true verbatim", `{` + key + `,"body":true}`, `true`},
		{"null is absent", `{` + key + `,"body":null}`, ""},
		{"absent", `{` + key + `}`, ""},
		{"unknown keys", `{"x":1,` + key + `,"attachedAt":"now","shareWith":["*"]}`, ""},
		{"null record", `{` + key + `,"record":null}`, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p, err := DecodePut([]byte(tt.in))
			if err != nil {
				t.Fatal(err)
			}
			r := p.Record
			if r.SHA256 != helloDigest || r.TenantID != "acme" || r.Kind != "approval" || !bytes.Equal(r.Body, []byte(tt.body)) {
				t.Errorf("got %+v", r)
			}
			if r.ContentType != "" || r.AttachedAt != "" || r.ShareWith != nil || p.PutID != "" {
				t.Errorf("a minimal put gained fields: %+v", p)
			}
		})
	}
	p, err := DecodePut([]byte(`{"putId":"F47AC10B-58CC-4372-A567-0E02B2C3D479","rosterVersion":2,"record":{` + key + `,"part":3,"body":"aGVsbG8="}}`))
	if err != nil || p.PutID != "f47ac10b-58cc-4372-a567-0e02b2c3d479" || p.RosterVersion != 2 || p.Record.Part != 3 || string(p.Record.Body) != "hello" {
		t.Errorf("got %+v, %v", p, err)
	}
}

func TestDecodePutRefusals(t *testing.T) {
	key := `"sha256":"` + helloHex + `","tenantId":"acme","kind":"approval"`
	tests := []struct{ in, field, says string }{
		{`{}`, "record", "missing"},
		{`{"record":null}`, "record", "missing"},
		{`null`, "", "null"},
		{`[]`, "", "a list where an object"},
		{`{"record":[]}`, "record", "a list where an object"},
		{`{"record":{` + key + `},"sha256":"` + helloHex + `"}`, "record", "either"},
		{`{"record":{` + key + `},"body":0}`, "record", "either"},
		{`{"record":{},"kind":""}`, "record", "either"},
		{`{` + key + `,"body":"aGVsbG8"}`, "body", "standard base64 with padding"},
		{`{` + key + `,"body":"a_-="}`, "body", "standard base64"},
		{`{` + key + `,"body":{"a":1,"a":2}}`, "body.a", "twice"},
		{`{` + key + `,"Body":"aGVsbG8="}`, "Body", "only in case"},
		{`{"record":{"SHA256":"x"}}`, "record.SHA256", "only in case"},
		{`{"record":{"file":{"size":1.5}}}`, "record.file.size", "an integer"},
		{`{"sha256":"2c"}`, "sha256", "length 2"},
		{`{"sha256":"2c"`, "sha256", ""},
	}
	for _, tt := range tests {
		_, err := DecodePut([]byte(tt.in))
		if tt.in == `{"sha256":"2c"` { // the scan ends before the digest is looked at
			wantError(t, err, "", "ends too early")
			continue
		}
		wantError(t, err, tt.field, tt.says)
	}
}
