package splitter

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/wire"
)

var stamp = Stamp{SubmissionID: theSubmission, TenantID: theTenant, AttachedAt: wire.At(time.Date(2026, 3, 1, 12, 0, 0, 5, time.UTC))}

// seal is a Sealer that shows its arguments.
func seal(part int, kind wire.Kind, plaintext []byte) ([]byte, error) {
	return fmt.Appendf(nil, "sealed %d %s %d", part, kind, len(plaintext)), nil
}

func everything(t *testing.T) *Request {
	return mustForm(t, value("attachment:note", "n1"), upload("files", "a.txt", "aaa"), value("privateMetadata", `{"p": 1}`), value("data", "x"),
		upload("files", "b.txt", "bbb"), value("publicMetadata", `{"q": 2}`), value("shareWith", "tenant-b"), value("attachment:other", "n2"), value("public", "true"))
}

// TestSplitOrder: public metadata, private metadata, files, attachments.
func TestSplitOrder(t *testing.T) {
	req := everything(t)
	got, err := Split(req, stamp, seal)
	if err != nil {
		t.Fatal(err)
	}
	shares := []wire.Share{{TenantID: wire.Public, Mode: wire.ModeFiles}, {TenantID: "tenant-b", Mode: wire.ModeFiles}}
	record := func(part int, r wire.PutRecord) wire.PutRecord {
		r.SHA256, r.TenantID, r.SubmissionID, r.AttachedAt, r.Part = digestOf("x"), theTenant, theSubmission, stamp.AttachedAt, part
		if r.Kind != wire.KindPrivateMetadata {
			r.ShareWith = shares
		}
		return r
	}
	file := func(name, content, cid string) *wire.File {
		return &wire.File{Name: name, Size: int64(len(content)), SHA256: digestOf(content), CID: cid, ContentType: "text/plain"}
	}
	want := []wire.PutRecord{
		record(0, wire.PutRecord{Kind: wire.KindMetadata, ContentType: "application/json", Body: []byte(`{"q": 2}`)}),
		record(1, wire.PutRecord{Kind: wire.KindPrivateMetadata, ContentType: SealedContentType, Body: []byte("sealed 1 private-metadata 8")}),
		record(2, wire.PutRecord{Kind: wire.KindFile, File: file("a.txt", "aaa", req.Files[0].CID)}),
		record(3, wire.PutRecord{Kind: wire.KindFile, File: file("b.txt", "bbb", req.Files[1].CID)}),
		record(4, wire.PutRecord{Kind: "note", ContentType: DefaultContentType, Body: []byte("n1")}),
		record(5, wire.PutRecord{Kind: "other", ContentType: DefaultContentType, Body: []byte("n2")}),
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	again, err := Split(req, stamp, seal)
	if err != nil || cmp.Diff(got, again) != "" {
		t.Errorf("a second split differs: %v", err)
	}
	got[0].ShareWith[0].Mode = wire.ModeProofs
	if got[2].ShareWith[0].Mode != wire.ModeFiles || req.ShareWith[0].Mode != wire.ModeFiles {
		t.Error("records share their shares")
	}
}

// TestPrivateStaysPrivate: nothing of the plaintext is in any record.
func TestPrivateStaysPrivate(t *testing.T) {
	req := mustForm(t, value("data", "x"), value("privateMetadata", `{"secret":"plaintext"}`), value("public", "true"), value("attachment:note", "n"))
	records, err := Split(req, stamp, seal)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range records {
		if bytes.Contains(r.Body, []byte("plaintext")) || r.Kind == wire.KindPrivateMetadata && r.ShareWith != nil {
			t.Errorf("%+v", r)
		}
	}
	if bytes.Contains(req.Canonical(), []byte("plaintext")) {
		t.Error("the canonical form holds the plaintext")
	}
}

// TestSplitErrors: what can not be sealed or stored makes no record.
func TestSplitErrors(t *testing.T) {
	req := everything(t)
	locked := fault.New(fault.Transient, "VAULT_LOCKED", "the vault is locked")
	if records, err := Split(req, stamp, func(int, wire.Kind, []byte) ([]byte, error) { return nil, locked }); records != nil || !errors.Is(err, locked) {
		t.Errorf("%v, %v", records, err)
	}
	if _, err := Split(req, stamp, func(int, wire.Kind, []byte) ([]byte, error) { return nil, nil }); err == nil || fault.KindOf(err) != fault.Internal {
		t.Errorf("a ciphertext of no bytes: %v", err)
	}
	if _, err := Split(req, Stamp{SubmissionID: theSubmission}, seal); err == nil || fault.KindOf(err) != fault.Internal {
		t.Errorf("a stamp without tenant: %v", err)
	}
	if records, err := Split(mustJSON(t, `{"data":"x"}`), stamp, nil); len(records) != 0 || err != nil {
		t.Errorf("a pure hash: %v, %v", records, err)
	}
}

// TestCanonicalTellsRequestsApart: every field that makes a record or an effect
// counts, and no other.
func TestCanonicalTellsRequestsApart(t *testing.T) {
	base := []string{value("data", "x"), upload("files", "a", "aaa"), value("publicMetadata", "{}"), value("attachment:note", "n")}
	form := func(change func(parts []string) []string) []byte {
		return mustForm(t, change(append([]string(nil), base...))...).Canonical()
	}
	same := func(p []string) []string { return p }
	add := func(part string) func([]string) []string {
		return func(p []string) []string { return append(p, part) }
	}
	replace := func(i int, part string) func([]string) []string {
		return func(p []string) []string { p[i] = part; return p }
	}
	want := form(same)
	if !bytes.HasPrefix(want, []byte(canonicalMagic)) {
		t.Errorf("begins with %.20q", want)
	}
	seen := map[string]string{string(want): "the base"}
	for name, change := range map[string]func([]string) []string{
		"subject": replace(0, value("data", "y")), "hashedFrom": replace(0, value("sha256", digestOf("x").String())),
		"file name": replace(1, upload("files", "b", "aaa")), "file": replace(1, upload("files", "a", "bbb")),
		"file content type": replace(1, strings.Replace(upload("files", "a", "aaa"), "text/plain", "text/html", 1)),
		"second file":       add(upload("files", "a", "aaa")), "file ocr": add(value("ocr:0", "true")),
		"public metadata": replace(2, value("publicMetadata", "{ }")), "private metadata": add(value("privateMetadata", "{}")),
		"metadata private for public": replace(2, value("privateMetadata", "{}")),
		"attachment kind":             replace(3, value("attachment:nota", "n")), "attachment": replace(3, value("attachment:note", "m")),
		"attachment name":         replace(3, strings.Replace(upload("attachment:note", "x", "n"), "Content-Type: text/plain\r\n", "", 1)),
		"attachment content type": replace(3, strings.Replace(upload("attachment:note", "", "n"), "text/plain", "text/html", 1)),
		"second attachment":       add(value("attachment:note", "n")), "empty attachment": replace(3, value("attachment:note", "")),
		"sealMetadata": add(value("sealMetadata", "true")), "public": add(value("public", "true")), "shareWith": add(value("shareWith", "b")),
		"mode": add(value("shareWith", `[{"tenantId":"b","mode":"A"}]`)),
	} {
		got := string(form(change))
		if other, dup := seen[got]; dup {
			t.Errorf("%s makes no difference from %s", name, other)
		}
		seen[got] = name
	}
	for name, change := range map[string]func([]string) []string{
		"includeAttached": add(value("includeAttached", "true")), "callbackUrl": add(value("callbackUrl", "https://example.com/")),
		"expectFileSha256": add(value("expectFileSha256", digestOf("aaa").String())), "order": func(p []string) []string { return []string{p[3], p[2], p[1], p[0]} },
		"flags that say nothing": add(value("public", "false")), "an empty input": add(upload("files", "", "")),
	} {
		if !bytes.Equal(form(change), want) {
			t.Errorf("%s makes a difference", name)
		}
	}
}

// TestCanonicalIsFrozen: stored fingerprints depend on every byte of it.
func TestCanonicalIsFrozen(t *testing.T) {
	const want = "fe5ff799c07a9ade9853b120eea7bfd1628eeaf3591f34078aad448687428a98"
	if got := digestOf(string(everything(t).Canonical())).String(); got != want {
		t.Errorf("the canonical form changed: %s, want %s; a change needs another canonicalMagic", got, want)
	}
}
