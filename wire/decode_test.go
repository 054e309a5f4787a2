package wire

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// probe has a field of every form that a shape can have.
type probe struct {
	Text   string            `json:"text"`
	Yes    bool              `json:"yes"`
	Int    int64             `json:"int"`
	Small  int8              `json:"small"`
	Uint   uint64            `json:"uint"`
	Float  float64           `json:"float"`
	Bytes  []byte            `json:"bytes"`
	List   []string          `json:"list"`
	Dict   map[string]int    `json:"dict"`
	Digest Digest            `json:"sha256"`
	Raw    RawJSON           `json:"raw"`
	Std    json.RawMessage   `json:"std"`
	When   time.Time         `json:"when"`
	Sub    *probe            `json:"sub"`
	Subs   []probe           `json:"subs"`
	Named  map[string]*probe `json:"named"`
	Quoted int               `json:"quoted,string"`
	Plain  string            // known as "Plain"
	Hidden string            `json:"-"`
	//lint:ignore SA5008 "-," names the key "-"
	Odd string `json:"-,"`
	//lint:ignore U1000 unexported, so unknown to JSON
	inner string
	Kin   string             `json:"kin"`
	Deep  map[string]RawJSON `json:"deep"`
	Embedded
}

// Embedded is promoted into probe, but for what probe has itself.
type Embedded struct {
	Text []int `json:"text"` // hidden by probe's
	Low  int   `json:"low"`
}

func TestDecodeReadsEveryForm(t *testing.T) {
	in := `{"text":"a\u00e9\ud83d\ude00","yes":true,"int":-9007199254740991,"small":-128,"uint":9007199254740991,"float":-1.5e-3,
		"bytes":"AAH/","list":["x","y"],"dict":{"a":1,"b":2},"sha256":"` + helloHex + `","raw":{"n":1152921504606846976, "s" : "<é"},
		"std":[1],"when":"2026-11-30T14:02:11Z","sub":{"low":7},"subs":[{},{"yes":false}],"named":{"k":{"int":1}},"quoted":"12","Plain":"p",
		"-":"odd","low":3,"kin":"k","deep":{"Text":null},"unknown":{"text":[1,{"Text":2,"text":3}]}}`
	got, err := Decode[probe]([]byte(in))
	if err != nil {
		t.Fatal(err)
	}
	var want probe
	if err := json.Unmarshal([]byte(in), &want); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(probe{})); diff != "" {
		t.Errorf("encoding/json (-) and Decode (+):\n%s", diff)
	}
	if string(got.Raw) != `{"n":1152921504606846976, "s" : "<é"}` {
		t.Errorf("raw bytes changed: %s", got.Raw)
	}
}

func TestDecodeRefusals(t *testing.T) {
	tests := []struct {
		name, in, field string
		offset          int
		says            string
	}{
		// The text as a whole.
		{"empty", "", "", 0, "empty; an object is expected"},
		{"blank", " \n", "", 2, "empty"},
		{"null", "null", "", 0, "null; an object"},
		{"null with blanks", "\t null ", "", 2, "null"},
		{"list", "[]", "", 0, "a list where an object is expected"},
		{"string", `"x"`, "", 0, "a string where an object"},
		{"number", "1", "", 0, "a number where an object"},
		{"true", "true", "", 0, "true where an object"},
		{"word", "nope", "", 0, "'n' where an object"},
		{"byte order mark", "\xef\xbb\xbf{}", "", 0, "byte order mark"},
		{"two values", "{}{}", "", 2, "data after"},
		{"trailing text", "{} x", "", 3, "data after"},
		{"trailing nul", "{}\x00", "", 2, "data after"},
		{"utf-16", "{\x00}\x00", "", 1, `'\x00' where a key`},
		{"form feed", "{\f}", "", 1, "where a key"},
		{"invalid utf-8", "{\"text\":\"\xff\"}", "", 9, "not valid UTF-8"},
		{"utf-8 surrogate", "{\"text\":\"\xed\xa0\x80\"}", "", 9, "not valid UTF-8"},
		{"overlong", "{\"text\":\"\xc0\xaf\"}", "", 9, "not valid UTF-8"},
		{"invalid utf-8 outside", "{}\xc3", "", 2, "not valid UTF-8"},

		// Keys.
		{"duplicate", `{"text":"a","text":"a"}`, "text", 12, "twice"},
		{"duplicate by escape", `{"text":"a","te\u0078t":"b"}`, "text", 12, "twice"},
		{"duplicate unknown", `{"x":1,"x":1}`, "x", 7, "twice"},
		{"duplicate below", `{"sub":{"subs":[{},{"yes":true,"yes":true}]}}`, "sub.subs[1].yes", 31, "twice"},
		{"duplicate in raw", `{"raw":{"a":[{"b":1,"b":2}]}}`, "raw.a[0].b", 20, "twice"},
		{"duplicate in unknown", `{"u":{"b":1,"b":2}}`, "u.b", 12, "twice"},
		{"duplicate in dict", `{"dict":{"b":1,"b":2}}`, "dict.b", 15, "twice"},
		{"duplicate empty key", `{"":1,"":2}`, `""`, 6, "twice"},
		{"duplicate after many", manyKeys(100) + `,"k7":0}`, "k7", len(manyKeys(100)) + 1, "twice"},
		{"duplicate among many", manyKeys(100) + `,"k70":0}`, "k70", len(manyKeys(100)) + 1, "twice"},
		{"case", `{"Text":"a"}`, "Text", 1, `only in case; write it exactly so`},
		{"case beside", `{"text":"a","TEXT":"b"}`, "TEXT", 12, `"text" only in case`},
		{"case of untagged", `{"plain":"a"}`, "plain", 1, `"Plain" only in case`},
		{"case of embedded", `{"LOW":1}`, "LOW", 1, `"low" only in case`},
		{"case below", `{"named":{"Text":{"Low":1}}}`, "named.Text.Low", 18, `"low" only in case`},
		{"case by escape", `{"\u0054ext":"a"}`, "Text", 1, "only in case"},
		{"kelvin sign", "{\"\u212ain\":\"a\"}", "\u212ain", 1, `"kin" only in case`},
		{"long s", "{\"\u017fub\":{}}", "\u017fub", 1, `"sub" only in case`},
		{"no quotes", `{text:"a"}`, "", 1, "'t' where a key"},
		{"single quotes", `{'text':"a"}`, "", 1, "where a key"},
		{"comment", `{/**/}`, "", 1, "where a key"},
		{"no colon", `{"text" "a"}`, "text", 8, "where a colon"},
		{"trailing comma", `{"text":"a",}`, "", 12, "where a key"},
		{"no comma", `{"text":"a" "yes":true}`, "", 12, "a comma or a closing brace"},
		{"wrong bracket", `{"text":"a"]`, "", 11, "a comma or a closing brace"},
		{"odd key in path", "{\"a b\\n\":{\"x\":1,\"x\":1}}", `"a b\n".x`, 16, "twice"},
		{"long key in path", `{"` + strings.Repeat("k", 300) + `":{"x":1,"x":1}}`, `"` + strings.Repeat("k", 40) + `"....x`, 311, "twice"},

		// Values of another type.
		{"string for int", `{"int":"1"}`, "int", 7, "a string where an integer is expected"},
		{"string for bool", `{"yes":"true"}`, "yes", 7, "a string where true or false"},
		{"number for string", `{"text":1}`, "text", 8, "a number where a string"},
		{"number for bool", `{"yes":1}`, "yes", 7, "a number where true or false"},
		{"true for int", `{"int":true}`, "int", 7, "true where an integer"},
		{"object for list", `{"list":{}}`, "list", 8, "an object where a list"},
		{"list for object", `{"sub":[]}`, "sub", 7, "a list where an object"},
		{"list for dict", `{"dict":[]}`, "dict", 8, "a list where an object"},
		{"list for bytes", `{"bytes":[1,2]}`, "bytes", 9, "a list where a string"},
		{"element", `{"list":["a",2]}`, "list[1]", 13, "a number where a string"},
		{"dict value", `{"dict":{"a":"1"}}`, "dict.a", 13, "a string where an integer"},
		{"bad base64", `{"bytes":"AAH"}`, "bytes", 9, "illegal base64"},
		{"bad digest", `{"subs":[{"sha256":"2c"}]}`, "subs[0].sha256", 22, "length 2"},
		{"bad digest with escapes", `{"sha256":"\u0061"}`, "sha256", 10, "length 1"},
		{"bad time", `{"when":"now"}`, "when", 8, "parsing time"},
		{"bad quoted", `{"quoted":"x"}`, "", -1, "x"},

		// Numbers.
		{"fraction for int", `{"int":1.0}`, "int", 7, "without a fraction or exponent"},
		{"exponent for int", `{"int":1e3}`, "int", 7, "without a fraction or exponent"},
		{"negative for uint", `{"uint":-1}`, "uint", 8, "not negative"},
		{"too big", `{"int":9007199254740992}`, "int", 7, "beyond 9007199254740991"},
		{"too small", `{"int":-9007199254740992}`, "int", 7, "beyond"},
		{"too big for uint", `{"uint":18446744073709551615}`, "uint", 8, "beyond"},
		{"too big for float", `{"float":9007199254740993}`, "float", 9, "beyond"},
		{"out of range", `{"small":128}`, "small", 9, "128"},
		{"float out of range", `{"float":1e999}`, "float", 9, "1e999"},
		{"leading zero", `{"int":01}`, "int", 7, "leading zero"},
		{"underscore", `{"int":4_823_104}`, "", 8, "a comma or a closing brace"},
		{"plus", `{"int":+1}`, "int", 7, "'+' where an integer"},
		{"minus alone", `{"int":-}`, "int", 8, "a digit"},
		{"point alone", `{"float":1.}`, "float", 11, "a digit"},
		{"exponent alone", `{"float":1e}`, "float", 11, "a digit"},
		{"point first", `{"float":.5}`, "float", 9, "where a number"},
		{"hex", `{"int":0x10}`, "", 8, "a comma"},
		{"nan", `{"float":NaN}`, "float", 9, "'N'"},

		// Strings.
		{"open string", `{"text":"a`, "text", 10, "ends inside a string"},
		{"open escape", `{"text":"a\`, "text", 10, "ends inside a string"},
		{"raw newline", "{\"text\":\"a\nb\"}", "text", 10, "control character"},
		{"raw nul", "{\"text\":\"a\x00b\"}", "text", 10, "control character"},
		{"odd escape", `{"text":"\x41"}`, "text", 9, "not an escape"},
		{"short unicode", `{"text":"\u12"}`, "text", 9, "four hexadecimal"},
		{"lone high", `{"text":"\ud800"}`, "text", 9, "lone surrogate"},
		{"lone low", `{"text":"\udc00"}`, "text", 9, "lone surrogate"},
		{"swapped", `{"text":"\udc00\ud800"}`, "text", 9, "lone surrogate"},
		{"high and letter", `{"text":"\ud800\u0041"}`, "text", 9, "lone surrogate"},
		{"high and private use", `{"text":"\ud800\ue000"}`, "text", 9, "lone surrogate"},
		{"two high", `{"text":"\ud83d\ud83d\ude00"}`, "text", 9, "lone surrogate"},
		{"lone in raw", `{"raw":["\uDBFF"]}`, "raw[0]", 9, "lone surrogate"},
		{"lone in key", `{"\ud800":1}`, "", 1 + 1, "lone surrogate"},

		// Truncation.
		{"open object", `{`, "", 1, "ends too early"},
		{"after key", `{"text"`, "text", 7, "ends too early; a colon"},
		{"after colon", `{"text":`, "text", 8, "ends too early; a string"},
		{"after value", `{"text":"a"`, "", 11, "ends too early"},
		{"after comma", `{"text":"a",`, "", 12, "ends too early"},
		{"open list", `{"list":["a"`, "list", 12, "ends too early"},
		{"half literal", `{"yes":tru`, "yes", 7, "'t' where true or false"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			v, err := Decode[probe]([]byte(tt.in))
			e := wantError(t, err, tt.field, tt.says)
			if e.Offset != tt.offset {
				t.Errorf("offset %d, want %d: %v", e.Offset, tt.offset, e)
			}
			if !reflect.ValueOf(v).IsZero() {
				t.Errorf("a refused text gave %+v", v)
			}
		})
	}
}

// manyKeys is an open object of n distinct unknown keys.
func manyKeys(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `,"k%d":0`, i)
	}
	return "{" + b.String()[1:]
}

func TestDecodeTakesManyDistinctKeys(t *testing.T) {
	if _, err := Decode[probe]([]byte(manyKeys(1000) + "}")); err != nil {
		t.Error(err)
	}
}

// Inside what is not looked into, only exact duplicates are an ambiguity.
func TestCaseVariantsAreTheUsersOwnInOpaqueValues(t *testing.T) {
	for _, in := range []string{
		`{"raw":{"SHA256":1,"sha256":2}}`,
		`{"std":{"Text":1,"text":2}}`,
		`{"unknown":{"SHA256":1,"sha256":2}}`,
		`{"deep":{"Text":{"a":1,"A":2},"text":1}}`,
		`{"dict":{"a":1,"A":2}}`,
	} {
		if _, err := Decode[probe]([]byte(in)); err != nil {
			t.Errorf("%s: %v", in, err)
		}
	}
}

func TestNullFieldsCountAsAbsent(t *testing.T) {
	in := `{"text":null,"yes":null,"int":null,"uint":null,"float":null,"bytes":null,"list":null,"dict":null,"sha256":null,"raw":null,"sub":null,"subs":[null]}`
	got, err := Decode[probe]([]byte(in))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(probe{Subs: []probe{{}}}, got, cmp.AllowUnexported(probe{})); diff != "" {
		t.Error(diff)
	}
}

// nested returns n containers around a number.
func nested(open, shut string, n int) string {
	return strings.Repeat(open, n) + "1" + strings.Repeat(shut, n)
}

func TestDepthIsBounded(t *testing.T) {
	tests := []struct {
		name, in string
		ok       bool
	}{
		{"lists at the limit", nested("[", "]", MaxDepth), true},
		{"lists beyond", nested("[", "]", MaxDepth+1), false},
		{"objects at the limit", nested(`{"a":`, "}", MaxDepth), true},
		{"objects beyond", nested(`{"a":`, "}", MaxDepth+1), false},
		{"far beyond", nested("[", "]", 1_000_000), false},
		{"open far beyond", strings.Repeat("[", 1_000_000), false},
	}
	for _, tt := range tests {
		if err := CheckJSON([]byte(tt.in)); (err == nil) != tt.ok {
			t.Errorf("%s: %v", tt.name, err)
		}
		// An opaque value counts from its own start, wherever it stands: what
		// was accepted alone fits into every payload.
		for _, place := range []string{`{"raw":%s}`, `{"subs":[{"sub":{"raw":%s}}]}`, `{"unknown":%s}`, `{"deep":{"x":%s}}`} {
			if _, err := Decode[probe](fmt.Appendf(nil, place, tt.in)); (err == nil) != tt.ok {
				t.Errorf("%s in %s: %v", tt.name, place, err)
			}
		}
	}
	sub := func(n int) []byte { return []byte(strings.Repeat(`{"sub":`, n-1) + "{}" + strings.Repeat("}", n-1)) }
	if _, err := Decode[probe](sub(MaxDepth)); err != nil {
		t.Errorf("typed objects at the limit: %v", err)
	}
	_, err := Decode[probe](sub(MaxDepth + 1))
	wantError(t, err, strings.Repeat("sub.", MaxDepth-1)+"sub", "deeper than 64")
}

func TestCheckObjectTakesObjectsOnly(t *testing.T) {
	for in, ok := range map[string]bool{
		`{}`: true, ` {"a":[1,null,{"A":1e400}]} `: true, `{"n":1152921504606846976}`: true,
		`[]`: false, `"x"`: false, `1`: false, `null`: false, ``: false, `{"a":1,"a":1}`: false, `{"a":"\ud800"}`: false, "{\"a\":\"\xff\"}": false,
	} {
		if err := CheckObject([]byte(in)); (err == nil) != ok {
			t.Errorf("%s: %v", in, err)
		}
	}
}

func TestNumbersInInterfacesKeepTheirDigits(t *testing.T) {
	v, err := Decode[map[string]any]([]byte(`{"n":1152921504606846977,"l":[0.1000]}`))
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]any{"n": json.Number("1152921504606846977"), "l": []any{json.Number("0.1000")}}
	if diff := cmp.Diff(want, v); diff != "" {
		t.Error(diff)
	}
}

func TestDecodeOfOtherTypes(t *testing.T) {
	if v, err := Decode[*Query]([]byte(`{"tenantId":"acme"}`)); err != nil || v == nil || v.TenantID != "acme" {
		t.Errorf("%v, %v", v, err)
	}
	if v, err := Decode[[]Share]([]byte(`[{"tenantId":"a","mode":"C"}]`)); err != nil || len(v) != 1 {
		t.Errorf("%v, %v", v, err)
	}
	if v, err := Decode[RawJSON]([]byte(" [1, 2] ")); err != nil || string(v) != "[1, 2]" {
		t.Errorf("%s, %v", v, err)
	}
	if v, err := Decode[string]([]byte(`"x"`)); err != nil || v != "x" {
		t.Errorf("%q, %v", v, err)
	}
	_, err := Decode[map[int]string]([]byte(`{"x":"1"}`))
	wantError(t, err, "", "x")
	_, err = Decode[[]Share](nil)
	wantError(t, err, "", "a list is expected")
}

func TestDecodeSharesNoMemoryWithItsInput(t *testing.T) {
	in := []byte(`{"text":"hello","raw":{"a":"hello"},"bytes":"AAECAw==","std":"hello","deep":{"k":"hello"}}`)
	got, err := Decode[probe](in)
	if err != nil {
		t.Fatal(err)
	}
	before, _ := json.Marshal(got)
	for i := range in {
		in[i] = 'x'
	}
	if after, _ := json.Marshal(got); string(after) != string(before) {
		t.Errorf("%s became %s", before, after)
	}
}

// Two structs at one depth that both know a name know it for nobody, as in
// encoding/json, unless one of them has it by tag.
func TestPromotedFieldsFollowEncodingJSON(t *testing.T) {
	type A struct {
		X string
		Y string `json:"Y"`
		Z int    `json:"z"`
	}
	type B struct {
		X string
		Y string
		Z int `json:"z"`
	}
	type both struct {
		A
		*B
	}
	// X and z are ambiguous, so their values are not looked at; Y is A's.
	got, err := Decode[both]([]byte(`{"X":1,"z":"no","x":[],"Y":"y"}`))
	if err != nil || got.A.Y != "y" || got.A.X != "" {
		t.Errorf("%+v, %v", got, err)
	}
	_, err = Decode[both]([]byte(`{"y":"y"}`))
	wantError(t, err, "y", "only in case")
}
