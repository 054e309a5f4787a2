package splitter

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/wire"
)

// TestLimitsAtTheirEdge takes what is at a limit and refuses one more, naming
// the limit and a way on.
func TestLimitsAtTheirEdge(t *testing.T) {
	x := func(n int) string { return strings.Repeat("x", n) }
	data, object := value("data", "x"), func(n int) string { return `{"a":"` + x(n-8) + `"}` }
	partHeader := len("Content-Disposition: form-data; name=\"data\"\r\nX: \r\n\r\n")
	several := func(n int, part string) []string {
		list := []string{data}
		for range n {
			list = append(list, part)
		}
		return list
	}
	elements := func(n int, element string) string { return strings.TrimSuffix(strings.Repeat(element+",", n), ",") }
	tenants := func(n int) (parts []string, list string) {
		for i := range n {
			parts = append(parts, value("shareWith", fmt.Sprintf("t%d", i)))
			list += fmt.Sprintf(`,"t%d"`, i)
		}
		return append(parts, data), strings.TrimPrefix(list, ",")
	}
	for _, c := range []struct {
		name   string
		limits Limits
		form   func(n int) []string // with n of the limited thing
		json   func(n int) string
		at     int
		fix    string
	}{
		{"MAX_FIELD", Limits{}, func(n int) []string {
			return []string{value("sha256", digestOf("").String()+strings.Repeat(" ", n-64))}
		}, nil, 256, "sha256"},
		{"MAX_FIELD", Limits{}, func(n int) []string { return []string{data, value("public", "true"+strings.Repeat(" ", n-4))} }, nil, 256, "public"},
		{"MAX_FIELD", Limits{}, func(n int) []string { return []string{data, value("shareWith", "a"+strings.Repeat(" ", n-1))} }, nil, 256, "shareWith"},
		{"MAX_FIELD", Limits{}, func(n int) []string { return []string{data, value("tenantId", x(n))} }, nil, 256, "tenantId"},
		{"MAX_DATA", Limits{Data: 1000}, func(n int) []string { return []string{value("data", x(n))} }, nil, 1000, "as a file"},
		{"MAX_DATA", Limits{}, func(n int) []string { return []string{value("data", x(n))} }, nil, 8 << 20, "as a file"},
		{"MAX_METADATA", Limits{}, func(n int) []string { return []string{data, value("publicMetadata", object(n))} },
			func(n int) string { return `{"data":"x","publicMetadata":` + object(n) + `}` }, 256 << 10, "as a file"},
		{"MAX_METADATA", Limits{}, func(n int) []string { return []string{data, value("privateMetadata", object(n))} },
			func(n int) string { return `{"data":"x","privateMetadata":` + object(n) + `}` }, 256 << 10, "as a file"},
		{"MAX_ATTACHMENT", Limits{}, func(n int) []string { return []string{data, value("attachment:a", x(n))} },
			func(n int) string {
				return `{"data":"x","attachments":[{"kind":"a","dataBase64":"` + b64(x(n)) + `"}]}`
			}, 256 << 10, "as a file"},
		{"MAX_ATTACHMENTS", Limits{}, func(n int) []string { return several(n, value("attachment:a", "")) },
			func(n int) string {
				return `{"data":"x","attachments":[` + elements(n, `{"kind":"a","dataBase64":""}`) + `]}`
			}, 32, "another request"},
		{"MAX_FILES", Limits{}, func(n int) []string { return several(n, upload("files", "a", "")) },
			func(n int) string { return `{"data":"x","files":[` + elements(n, `{"dataBase64":""}`) + `]}` }, 32, "another request"},
		{"MAX_PARTS", Limits{}, func(n int) []string { return several(n-1, upload("files", "", "")) }, nil, 64, "several requests"},
		{"MAX_PART_HEADER", Limits{}, func(n int) []string {
			return []string{"Content-Disposition: form-data; name=\"data\"\r\nX: " + x(n-partHeader) + "\r\n\r\nx"}
		}, nil, 16 << 10, "headers"},
		{"MAX_FILE_NAME", Limits{}, func(n int) []string { return []string{data, upload("files", x(n), "")} },
			func(n int) string { return `{"data":"x","files":[{"name":"` + x(n) + `","dataBase64":""}]}` }, 255, "shorten"},
		{"MAX_FILE_NAME", Limits{}, func(n int) []string { return []string{data, upload("attachment:a", x(n), "")} },
			func(n int) string {
				return `{"data":"x","attachments":[{"kind":"a","name":"` + x(n) + `","dataBase64":""}]}`
			}, 255, "shorten"},
		{"MAX_CONTENT_TYPE", Limits{}, func(n int) []string {
			return []string{"Content-Disposition: form-data; name=\"files\"\r\nContent-Type: a/" + x(n-2) + "\r\n\r\nx"}
		}, func(n int) string { return `{"files":[{"contentType":"a/` + x(n-2) + `","dataBase64":""}]}` }, 255, "shorten"},
		{"MAX_SHARES", Limits{Shares: 32}, func(n int) []string { parts, _ := tenants(n); return parts },
			func(n int) string { _, list := tenants(n); return `{"data":"x","shareWith":[` + list + `]}` }, 32, "later"},
		{"MAX_SHARES", Limits{Shares: 32}, func(n int) []string { parts, _ := tenants(n - 1); return append(parts, value("public", "true")) },
			func(n int) string {
				_, list := tenants(n - 1)
				return `{"data":"x","public":true,"shareWith":[` + list + `]}`
			}, 32, "later"},
		{"MAX_CALLBACK_URL", Limits{}, func(n int) []string { return []string{data, value("callbackUrl", "http://a/"+x(n-9))} },
			func(n int) string { return `{"data":"x","callbackUrl":"http://a/` + x(n-9) + `"}` }, 2048, ""},
		{"MAX_JSON_BODY", Limits{}, nil, func(n int) string { return `{"data":"` + x(n-11) + `"}` }, 8 << 20, "multipart/form-data"},
		{"MAX_BODY", Limits{Body: 1 << 20}, func(n int) []string { return []string{upload("files", "a", x(n-len(body(upload("files", "a", "")))))} }, nil, 1 << 20, "in one request"},
	} {
		t.Run(fmt.Sprintf("%s %s", c.name, c.fix), func(t *testing.T) {
			cfg := Config{Limits: c.limits}
			if c.form != nil {
				if _, _, err := readForm(t, strings.NewReader(body(c.form(c.at)...)), cfg); err != nil {
					t.Errorf("multipart at the limit: %v", err)
				}
				_, _, err := readForm(t, strings.NewReader(body(c.form(c.at+1)...)), cfg)
				refused(t, err, CodeTooLarge, c.name, c.fix, fmt.Sprint(c.at))
			}
			if c.json != nil {
				if _, _, err := readJSON(t, strings.NewReader(c.json(c.at)), cfg); err != nil {
					t.Errorf("JSON at the limit: %v", err)
				}
				_, _, err := readJSON(t, strings.NewReader(c.json(c.at+1)), cfg)
				refused(t, err, CodeTooLarge, c.name, fmt.Sprint(c.at))
			}
		})
	}
}

// TestMP10Floods: 1,001 parts, a text field of 11 MiB, a part header of 9 MiB.
func TestMP10Floods(t *testing.T) {
	many := make([]string, 1001)
	for i := range many {
		many[i] = value("shareWith", "a")
	}
	for name, c := range map[string]struct{ body, limit string }{
		"parts":  {body(many...), "MAX_PARTS"},
		"field":  {body(value("sha256", strings.Repeat("0", 11<<20))), "MAX_FIELD"},
		"data":   {body(value("data", strings.Repeat("0", 11<<20))), "MAX_DATA"},
		"header": {body("X: " + strings.Repeat("0", 9<<20) + "\r\n\r\nx"), "MAX_PART_HEADER"},
		"lines":  {body(strings.Repeat("X: y\r\n", 10_000) + "\r\nx"), "MAX_PART_HEADER"},
		"fold":   {body("X: y\r\n" + strings.Repeat(" z\r\n", 10_000) + "\r\nx"), "MAX_PART_HEADER"},
	} {
		_, _, err := readForm(t, strings.NewReader(c.body), Config{})
		if refused(t, err, CodeTooLarge, c.limit); t.Failed() {
			t.Fatal(name)
		}
	}
}

// TestLimitsCheck refuses limits that can not work and fills in the others.
func TestLimitsCheck(t *testing.T) {
	if err := DefaultLimits().Check(); err != nil {
		t.Error(err)
	}
	if (Limits{}).withDefaults() != DefaultLimits() {
		t.Error("zero limits are not the defaults")
	}
	v := reflect.ValueOf(new(Limits)).Elem()
	if n := len(new(Limits).named()); n != v.NumField() {
		t.Errorf("%d limits have names, of %d", n, v.NumField())
	}
	for i := range v.NumField() {
		var l Limits
		field := reflect.ValueOf(&l).Elem().Field(i)
		name := new(Limits).named()[i].name
		if plain := strings.ToUpper(strings.NewReplacer("MAX_", "", "_", "").Replace(name)); plain != strings.ToUpper(v.Type().Field(i).Name) {
			t.Errorf("%s is not the name of %s", name, v.Type().Field(i).Name)
		}
		field.SetInt(7)
		if got := reflect.ValueOf(l.withDefaults()).Field(i).Int(); got != 7 {
			t.Errorf("%s: a limit of 7 became %d", name, got)
		}
		if got := l.named()[i].value; got != 7 {
			t.Errorf("%s is read from another field", name)
		}
		most := l.named()[i].most
		field.SetInt(most)
		if err := l.Check(); err != nil {
			t.Errorf("%s at its highest: %v", name, err)
		}
		for _, bad := range []int64{-1, most + 1} {
			field.SetInt(bad)
			if err := l.Check(); !fault.Is(err, fault.Invalid) || fault.FieldOf(err) != name {
				t.Errorf("%s = %d: %v", name, bad, err)
			}
		}
	}
}

// TestRecordsOfTheHighestLimitsPass: what is accepted at the highest limits is
// also accepted by the contract of records.
func TestRecordsOfTheHighestLimitsPass(t *testing.T) {
	full := strings.Repeat("x", wire.MaxBody)
	var shares []string
	for i := range wire.MaxShares {
		shares = append(shares, fmt.Sprintf("%s%02d", strings.Repeat("t", wire.MaxTenantID-2), i))
	}
	parts := []string{
		value("data", "x"), value("publicMetadata", `{"a":"`+full[8:]+`"}`), value("privateMetadata", `{"a":"`+full[8:]+`"}`), value("attachment:a", full),
		"Content-Disposition: form-data; name=\"files\"; filename=\"" + full[:wire.MaxFileName] + "\"\r\nContent-Type: a/" + full[:wire.MaxContentType-2] + "\r\n\r\nx",
	}
	for _, id := range shares[:wire.MaxShares-10] {
		parts = append(parts, value("shareWith", id))
	}
	req := mustForm(t, parts...)
	if _, err := Split(req, stamp, seal); err != nil {
		t.Error(err)
	}
}
