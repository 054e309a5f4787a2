package splitter

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/wire"
)

// TestRC05MetadataIsKeptVerbatim: what is stored are the bytes received.
func TestRC05MetadataIsKeptVerbatim(t *testing.T) {
	for _, metadata := range []string{
		`{}`, "{ \"a\" :\t1 ,\r\n\"b\":[ ] }", `{"n":1152921504606846976,"f":1.0,"e":1e400,"s":"<é` + "\u2028" + `\u001B\/"}`, `{"b":1,"a":2}`, `{"a":{"a":{"A":null}}}`,
		`{"":"","A":1,"a":2}`,
	} {
		form, object, errs := both(t, `{"data":"x", "publicMetadata": `+metadata+` , "privateMetadata":`+metadata+`}`,
			value("data", "x"), value("publicMetadata", metadata), value("privateMetadata", metadata))
		if errs[0] != nil || errs[1] != nil {
			t.Errorf("%s: %v", metadata, errs)
			continue
		}
		for _, req := range []*Request{form, object} {
			if string(req.PublicMetadata) != metadata || string(req.PrivateMetadata) != metadata {
				t.Errorf("%q became %q and %q", metadata, req.PublicMetadata, req.PrivateMetadata)
			}
		}
	}
	if got := mustForm(t, value("data", "x"), value("publicMetadata", " {} \n")).PublicMetadata; string(got) != " {} \n" {
		t.Errorf("white space around was dropped: %q", got)
	}
	if req := mustJSON(t, `{"data":"x","publicMetadata":null,"privateMetadata":null}`); req.PublicMetadata != nil || req.PrivateMetadata != nil {
		t.Error("null is not absent")
	}
}

// TestRC05BadMetadata: what two readers understand differently is refused, and
// private metadata is not quoted.
func TestRC05BadMetadata(t *testing.T) {
	for _, metadata := range []string{
		``, `null`, `[]`, `"{}"`, `1`, `{`, `{}x`, `{} {}`, "\ufeff{}", `{"secret":1,"secret":2}`, `{"a":{"secret":1,"secret":2}}`,
		"{\"secret\":\"\xff\"}", `{"secret":"\ud800"}`, `{"secret":"\udc00\ud800"}`, `{"secret":nope}`, "{\"secret\":\"\n\"}", `{"secret":01}`, `{'secret':1}`,
		strings.Repeat(`{"secret":`, 20_000) + "1" + strings.Repeat("}", 20_000),
	} {
		for _, field := range []string{"publicMetadata", "privateMetadata"} {
			_, _, err := readForm(t, strings.NewReader(body(value("data", "x"), value(field, metadata))), Config{})
			refused(t, err, CodeBadField, "part 2, "+field)
			if field == "privateMetadata" && strings.Contains(err.Error(), "secret") {
				t.Errorf("the message quotes private metadata: %v", err)
			}
			if metadata == "null" {
				continue
			}
			_, _, err = readJSON(t, strings.NewReader(`{"data":"x","`+field+`":`+metadata+`}`), Config{})
			if code := fault.CodeOf(err); !fault.Is(err, fault.Invalid) || code != CodeBadJSON && code != CodeBadField {
				t.Errorf("JSON with %s = %.60q: %s %v", field, metadata, code, err)
			}
			if field == "privateMetadata" && strings.Contains(err.Error(), "secret") {
				t.Errorf("the message quotes private metadata: %v", err)
			}
		}
	}
	_, _, err := readForm(t, strings.NewReader(body(value("publicMetadata", `{"`+strings.Repeat("k", 10_000)+`":1,"`+strings.Repeat("k", 10_000)+`":2}`))), Config{})
	if refused(t, err, CodeBadField); len(err.Error()) > 500 {
		t.Errorf("a message of %d bytes", len(err.Error()))
	}
}

// TestShareWith covers its spellings in both forms.
func TestShareWith(t *testing.T) {
	all := func(ids ...wire.TenantID) []wire.Share {
		var shares []wire.Share
		for _, id := range ids {
			shares = append(shares, wire.Share{TenantID: id, Mode: wire.ModeFiles})
		}
		return shares
	}
	for _, c := range []struct {
		object string
		parts  []string
		want   []wire.Share
	}{
		{`"shareWith":["b","a"]`, []string{value("shareWith", "b, a")}, all("a", "b")},
		{`"shareWith":["b","a","b"]`, []string{value("shareWith", "b"), value("shareWith", "a"), value("shareWith", "b")}, all("a", "b")},
		{`"shareWith":["b"],"public":true`, []string{value("public", "true"), value("shareWith", `["b"]`)}, all("*", "b")},
		{`"public":true`, []string{value("public", "true")}, all("*")},
		{`"public":false,"shareWith":[]`, []string{value("public", "false"), value("shareWith", "[]")}, nil},
		{`"shareWith":["*"],"public":true`, []string{value("public", "true"), value("shareWith", "*")}, all("*")},
		{`"shareWith":[{"tenantId":"b","mode":"A"},"a"]`, []string{value("shareWith", `[{"tenantId":"b","mode":"A"}]`), value("shareWith", "a")},
			[]wire.Share{{TenantID: "a", Mode: "C"}, {TenantID: "b", Mode: "A"}}},
		{`"shareWith":null`, nil, nil},
	} {
		form, object, errs := both(t, `{"data":"x",`+c.object+`}`, append(c.parts, value("data", "x"))...)
		if errs[0] != nil || errs[1] != nil {
			t.Errorf("%s: %v", c.object, errs)
			continue
		}
		for _, req := range []*Request{form, object} {
			if diff := cmp.Diff(c.want, req.ShareWith); diff != "" {
				t.Errorf("%s: %s", c.object, diff)
			}
		}
	}
	for object, part := range map[string]string{
		`["a b"]`: "a b", `[""]`: "", `["a","",  "b"]`: "a,,b", `["é"]`: "é", `[{"tenantId":"a","mode":"D"}]`: `[{"tenantId":"a","mode":"D"}]`,
		`[{"tenantId":"a","mode":"none"}]`: `[{"tenantId":"a","mode":"none"}]`, `["a",{"tenantId":"a","mode":"A"}]`: `["a",{"tenantId":"a","mode":"A"}]`,
		`[1]`: `[1]`, `[null]`: `[null]`, `[["a"]]`: `[["a"]]`, `["a"`: `["a"`, `[{"tenantId":"a","mode":"A"},{"tenantId":"a","mode":"B"}]`: `[{"tenantId":"a","mode":"A"},{"tenantId":"a","mode":"B"}]`,
	} {
		_, _, err := readForm(t, strings.NewReader(body(value("data", "x"), value("shareWith", part))), Config{})
		refused(t, err, CodeBadField, "shareWith")
		if object == `["a"` {
			continue // the whole body does not parse
		}
		_, _, err = readJSON(t, strings.NewReader(`{"data":"x","shareWith":`+object+`}`), Config{})
		refused(t, err, CodeBadField, "shareWith")
	}
	for _, other := range []string{`"a"`, `{"a":"C"}`, `1`} {
		_, _, err := readJSON(t, strings.NewReader(`{"data":"x","shareWith":`+other+`}`), Config{})
		refused(t, err, CodeBadField, "shareWith", "a list of tenant ids")
	}
	_, _, err := readJSON(t, strings.NewReader(`{"data":"x","public":true,"shareWith":[{"tenantId":"*","mode":"B"}]}`), Config{})
	refused(t, err, CodeBadField, "public", "say it once")
}

// TestCallbackURL checks its form; what it points to is not looked up here.
func TestCallbackURL(t *testing.T) {
	for _, url := range []string{"https://example.com/hook?key=1", "http://127.0.0.1:8080", "HTTPS://Example.com", "https://[::1]/x", "https://example.com/%C3%A9", "https://example.com/" + strings.Repeat("x", 2028)} {
		form, object, errs := both(t, fmt.Sprintf(`{"data":"x","callbackUrl":%q}`, url), value("data", "x"), value("callbackUrl", url))
		if errs[0] != nil || errs[1] != nil || form.CallbackURL != url || object.CallbackURL != url {
			t.Errorf("%s: %v", url, errs)
		}
	}
	for url, code := range map[string]string{
		"": CodeBadField, "example.com/hook": CodeBadField, "/hook": CodeBadField, "//example.com": CodeBadField, "ftp://example.com": CodeBadField,
		"https:example.com": CodeBadField, "https://": CodeBadField, "https:///x": CodeBadField, "https://:443/": CodeBadField, "javascript:alert(1)": CodeBadField,
		"https://user:secret@example.com/": CodeBadField, "https://user@example.com/": CodeBadField, "https://example.com/a b": CodeBadField, " https://example.com/": CodeBadField,
		"https://example.com/é": CodeBadField, "https://example.com/\n": CodeBadField, "https://exa mple.com": CodeBadField, "https://example.com:x/": CodeBadField, "https://example.com/%zz": CodeBadField,
		"https://example.com/" + strings.Repeat("x", 2029): CodeTooLarge,
	} {
		_, _, errs := both(t, `{"data":"x","callbackUrl":`+quoted(url)+`}`, value("data", "x"), value("callbackUrl", url))
		refused(t, errs[0], code, "callbackUrl")
		refused(t, errs[1], code, "callbackUrl")
		if strings.Contains(errs[0].Error(), "secret") || strings.Contains(errs[1].Error(), "secret") {
			t.Error("the message shows a password")
		}
	}
}

// TestFlags: a flag is one of two words.
func TestFlags(t *testing.T) {
	req := mustForm(t, value("data", "x"), value("publicMetadata", "{}"), value("includeAttached", "true"), value("sealMetadata", "true\r\n"), value("public", "false"))
	if !req.IncludeAttached || !req.SealMetadata || req.ShareWith != nil {
		t.Errorf("%+v", req)
	}
	req = mustJSON(t, `{"data":"x","publicMetadata":{},"includeAttached":true,"sealMetadata":true,"public":null}`)
	if !req.IncludeAttached || !req.SealMetadata || req.ShareWith != nil {
		t.Errorf("%+v", req)
	}
	for _, word := range []string{"", "True", "1", "on", "yes", "falsee"} {
		for _, name := range []string{"includeAttached", "sealMetadata", "public", "ocr", "ocr:0"} {
			_, _, err := readForm(t, strings.NewReader(body(value("data", "x"), value(name, word))), Config{})
			refused(t, err, CodeBadField, name, "neither true nor false")
		}
	}
	_, _, errs := both(t, `{"data":"x","sealMetadata":true,"privateMetadata":{}}`, value("data", "x"), value("sealMetadata", "true"), value("privateMetadata", "{}"))
	refused(t, errs[0], CodeBadField, "sealMetadata", "no publicMetadata")
	refused(t, errs[1], CodeBadField, "sealMetadata", "no publicMetadata")
}
