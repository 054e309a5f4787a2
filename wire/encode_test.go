package wire

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestEncodeEscapesNothingForHTML(t *testing.T) {
	out, err := Encode(Problem{Message: "<a> & <b>"})
	if want := `{"code":"","kind":"","message":"<a> & <b>"}`; err != nil || string(out) != want {
		t.Errorf("got %s, %v", out, err)
	}
	out, err = Encode(Job{Receipts: []Receipt{{PublicMetadata: RawJSON(`{"h":"<p>&\u2028"}`)}}})
	if err != nil || !strings.Contains(string(out), `"publicMetadata":{"h":"<p>&\u2028"}`) {
		t.Errorf("got %s, %v", out, err)
	}
}

// Absent is an omitted key or an empty list, never null.
func TestEncodeWritesNoNull(t *testing.T) {
	type maps struct {
		M map[string]int `json:"m"`
		L []string       `json:"l"`
		S string         `json:"s"`
	}
	tests := []struct {
		in   any
		want string
	}{
		{Query{}, `"kinds":[]`},
		{Reply{}, `"records":[]`},
		{&Reply{}, `"records":[]`},
		{Job{Files: []FileEntry{{}, {}}}, `"archivesMissing":[]`},
		{Event{}, `"receipts":[]`},
		{Accepted{}, `"parts":[]`},
		{[]Query{{}, {Kinds: []Kind{"null"}}}, `"kinds":["null"]`},
		{maps{S: "null"}, `{"m":{},"l":[],"s":"null"}`},
		{[]string(nil), `[]`},
		{map[string][]string{"null": nil}, `{"null":[]}`},
	}
	for _, tt := range tests {
		out, err := Encode(tt.in)
		if err != nil || !strings.Contains(string(out), tt.want) || strings.Contains(string(out), "null,") || strings.Contains(string(out), ":null") {
			t.Errorf("%T: %s, %v", tt.in, out, err)
		}
	}
}

func TestNullInsideOpaqueValuesIsTheUsersOwn(t *testing.T) {
	const meta = `{"a":null,"b":[null],"receipts":null}`
	out, err := Encode(Job{Receipts: []Receipt{{Kind: "k", PublicMetadata: RawJSON(meta)}}})
	if err != nil || !strings.Contains(string(out), `"publicMetadata":`+meta) || !strings.Contains(string(out), `"files":[]`) {
		t.Errorf("got %s, %v", out, err)
	}
}

func TestEncodeAddsNoNewline(t *testing.T) {
	for _, v := range []any{Query{}, "x", 1} {
		if out, err := Encode(v); err != nil || strings.HasSuffix(string(out), "\n") {
			t.Errorf("%q, %v", out, err)
		}
	}
}

func TestEncodeRefusesWhatIsNoPayload(t *testing.T) {
	var none *Job
	for name, v := range map[string]any{"nil": nil, "nil pointer": none, "function": func() {}, "bad raw": RawJSON(`{"a":1,}`)} {
		if out, err := Encode(v); err == nil {
			t.Errorf("%s: encoded as %s", name, out)
		}
	}
}

func TestRawJSONPassesBytes(t *testing.T) {
	type box struct {
		Raw RawJSON `json:"raw"`
	}
	for _, text := range []string{`{"b":1,"a":2}`, `1152921504606846976`, `1.0`, `"\u00e9é\u2028<"`, `[]`, `{"a":"\ud83d\ude00"}`, `-0`, `1E+2`} {
		v, err := Decode[box]([]byte(`{"raw": ` + text + ` }`))
		if err != nil || string(v.Raw) != text {
			t.Errorf("%s read as %s, %v", text, v.Raw, err)
		}
		if out, err := Encode(v); err != nil || string(out) != `{"raw":`+text+`}` {
			t.Errorf("%s written as %s, %v", text, out, err)
		}
	}
}

// encoding/json rewrites what a marshaller returns: insignificant white space
// goes. Exact bytes are fetched from the record.
func TestRawJSONLosesWhiteSpaceWhenWritten(t *testing.T) {
	if out, err := Encode(RawJSON("{ \"a\" : [ 1 ] }")); err != nil || string(out) != `{"a":[1]}` {
		t.Errorf("got %s, %v", out, err)
	}
}

func TestRawJSONRefusesToWriteWhatDecodeRefuses(t *testing.T) {
	for _, text := range []string{`{`, `{"a":1}{}`, `{"a":1,"a":2}`, "\"\xff\"", `"\ud800"`, `nil`, "\xef\xbb\xbf{}", strings.Repeat("[", MaxDepth+1) + strings.Repeat("]", MaxDepth+1)} {
		if out, err := json.Marshal(RawJSON(text)); err == nil {
			t.Errorf("%q written as %s", text, out)
		}
	}
}

func TestAbsentRawJSON(t *testing.T) {
	type box struct {
		Always RawJSON `json:"always"`
		Maybe  RawJSON `json:"maybe,omitempty"`
	}
	v, err := Decode[box]([]byte(`{"always":null,"maybe":null}`))
	if err != nil || v.Always != nil || v.Maybe != nil {
		t.Errorf("got %+v, %v", v, err)
	}
	if out, err := json.Marshal(box{}); err != nil || string(out) != `{"always":null}` {
		t.Errorf("got %s, %v", out, err)
	}
}
