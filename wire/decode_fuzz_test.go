package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"
)

// A node is one JSON value as the token reader of encoding/json sees it: the
// oracle against which the scanner is judged shares no code with it.
type node struct {
	keys []string // of an object, in order, duplicates included
	kids []*node
	leaf json.Token // nil for null and for containers
	list bool
	obj  bool
}

// parse reads exactly one value.
func parse(data []byte) (*node, error) {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	n, err := parseValue(d)
	if err != nil {
		return nil, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("trailing data")
	}
	return n, nil
}

func parseValue(d *json.Decoder) (*node, error) {
	tok, err := d.Token()
	if err != nil {
		return nil, err
	}
	delim, ok := tok.(json.Delim)
	if !ok {
		return &node{leaf: tok}, nil
	}
	n := &node{obj: delim == '{', list: delim == '['}
	for d.More() {
		if n.obj {
			key, err := d.Token()
			if err != nil {
				return nil, err
			}
			n.keys = append(n.keys, key.(string))
		}
		kid, err := parseValue(d)
		if err != nil {
			return nil, err
		}
		n.kids = append(n.kids, kid)
	}
	_, err = d.Token()
	return n, err
}

// ambiguous reports whether two readers could differ about n, read as typ: a
// duplicate key, or one that differs from a known one in case. A nil typ is an
// opaque value.
func ambiguous(n *node, typ reflect.Type) bool {
	for typ != nil && typ.Kind() == reflect.Pointer {
		typ = typ.Elem()
	}
	if typ == reflect.TypeFor[RawJSON]() {
		typ = nil
	}
	seen := map[string]bool{}
	for i, kid := range n.kids {
		var inner reflect.Type
		switch {
		case n.list && typ != nil && typ.Kind() == reflect.Slice:
			inner = typ.Elem()
		case n.obj && typ != nil && typ.Kind() == reflect.Struct:
			for _, f := range reflect.VisibleFields(typ) {
				name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
				switch {
				case name == "" || f.Anonymous:
				case name == n.keys[i]:
					inner = f.Type
				case strings.EqualFold(name, n.keys[i]):
					return true
				}
			}
		}
		if n.obj && seen[n.keys[i]] {
			return true
		}
		if n.obj {
			seen[n.keys[i]] = true
		}
		if ambiguous(kid, inner) {
			return true
		}
	}
	return false
}

// depthOf returns how deep containers nest.
func depthOf(n *node) int {
	deepest := 0
	for _, kid := range n.kids {
		deepest = max(deepest, depthOf(kid))
	}
	if n.list || n.obj {
		deepest++
	}
	return deepest
}

// replaced reports whether a string of n has the character that encoding/json
// puts in the place of what is no character.
func replaced(n *node) bool {
	for i, kid := range n.kids {
		if replaced(kid) || n.obj && strings.ContainsRune(n.keys[i], utf8.RuneError) {
			return true
		}
	}
	s, ok := n.leaf.(string)
	return ok && strings.ContainsRune(s, utf8.RuneError)
}

// requireSameJudgement compares Decode[T] with the oracle and, where a value is
// accepted, with encoding/json.
func requireSameJudgement[T any](t *testing.T, data []byte) {
	t.Helper()
	typ := reflect.TypeFor[T]()
	got, err := Decode[T](data)
	if err != nil {
		e, ok := errors.AsType[*Error](err)
		if !ok {
			t.Fatalf("%q as %v: %v is no *Error", data, typ, err)
		}
		if e.Offset < -1 || e.Offset > len(data) || !utf8.ValidString(e.Msg) {
			t.Fatalf("%q as %v: odd error %+v", data, typ, e)
		}
	}
	tree, treeErr := parse(data)
	var want T
	stdErr := json.Unmarshal(data, &want)

	if err == nil {
		switch {
		case treeErr != nil || stdErr != nil:
			t.Fatalf("%q as %v: accepted, but encoding/json says %v, %v", data, typ, treeErr, stdErr)
		case !reflect.DeepEqual(got, want):
			t.Fatalf("%q as %v: %+v, encoding/json has %+v", data, typ, got, want)
		case !utf8.Valid(data) || ambiguous(tree, typ) || !tree.obj && tree.leaf == nil && !tree.list:
			t.Fatalf("%q as %v: accepted, but two readers may differ", data, typ)
		}
		requireStableEncoding(t, got)
		return
	}
	// A refusal needs a reason that the oracle knows. For typed values there
	// are more reasons than it can check; for opaque ones this is all.
	if typ != reflect.TypeFor[RawJSON]() || treeErr != nil || !utf8.Valid(data) || bytes.Equal(bytes.TrimSpace(data), []byte("null")) {
		return
	}
	if !ambiguous(tree, nil) && depthOf(tree) <= MaxDepth && !replaced(tree) {
		t.Fatalf("%q: refused without a reason: %v", data, err)
	}
}

// requireStableEncoding checks that Decode reads what Encode wrote, as the same.
func requireStableEncoding[T any](t *testing.T, v T) {
	t.Helper()
	first, err := Encode(v)
	if err != nil {
		t.Fatalf("%+v: %v", v, err)
	}
	if bytes.Equal(first, []byte("null")) {
		t.Fatalf("%+v encodes as null", v)
	}
	again, err := Decode[T](first)
	if err != nil {
		t.Fatalf("%s: written, but not read: %v", first, err)
	}
	second, err := Encode(again)
	if err != nil || !bytes.Equal(first, second) {
		t.Fatalf("%s reads as %s, %v", first, second, err)
	}
}

// addSeeds adds the golden samples, the examples of the contracts we were
// given, and texts that readers of JSON are known to differ about.
func addSeeds(f *testing.F) {
	f.Helper()
	for _, data := range samples(f) {
		f.Add(data)
	}
	printed, err := filepath.Glob("testdata/seed/*")
	if err != nil || len(printed) < 4 {
		f.Fatalf("seed examples: %v, %d found", err, len(printed))
	}
	for _, path := range printed {
		data, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	for _, s := range []string{
		``, `null`, `[]`, `{}`, `{}{}`, "\xef\xbb\xbf{}", `{"sha256":"x","SHA256":"y"}`, `{"a":1,"a":2}`, `{"a":"\ud800"}`, "{\"a\":\"\xff\"}",
		`{"record":{"part":1e0}}`, `{"seq":9007199254740993}`, `[[[[[[[[]]]]]]]]`, "{\"\u212aind\":1}", `{"\u0073ha256":1,"sha256":2}`,
		`{"n":1152921504606846976,"s":"<é\u2028","b":"\ud83d\ude00"}`, `[1,-0,0.0,1E+2,1e-7]`, `"\ufffd"`, `{"receipts":[{"publicMetadata":null}]}`,
	} {
		f.Add([]byte(s))
	}
}

func FuzzDecode(f *testing.F) {
	addSeeds(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		requireSameJudgement[RawJSON](t, data)
		requireSameJudgement[Query](t, data)
		requireSameJudgement[Reply](t, data)
		requireSameJudgement[Put](t, data)
		requireSameJudgement[Event](t, data)
		requireSameJudgement[Hello](t, data)
		requireSameJudgement[Accepted](t, data)
		requireSameJudgement[Delta](t, data)
		requireSameJudgement[SnapshotHead](t, data)
		requireSameJudgement[[]Share](t, data)
		requireSameQuery(t, data)
	})
}

// requireSameQuery checks the peek at a query against the query.
func requireSameQuery(t *testing.T, data []byte) {
	t.Helper()
	d, ok := QueryDigest(data)
	q, err := Decode[Query](data)
	if ok && (err != nil || d != q.SHA256) {
		t.Fatalf("%q: peeked %s, decoded %s, %v", data, d, q.SHA256, err)
	}
	plain := bytes.Contains(data, []byte(`"`+q.SHA256.String()+`"`))
	if err == nil && !q.SHA256.IsZero() && plain && bytes.Count(data, []byte(`"sha256"`)) == 1 && !ok && !bytes.Contains(data, []byte(`\`)) {
		t.Fatalf("%q: not peeked", data)
	}
}

func FuzzDecodePut(f *testing.F) {
	addSeeds(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := DecodePut(data)
		full, fullErr := Decode[Put](data)
		tree, treeErr := parse(data)
		if err != nil {
			return
		}
		if fullErr != nil && treeErr != nil {
			t.Fatalf("%q: accepted, but it is no JSON: %v", data, treeErr)
		}
		hasRecord := false
		for i, k := range tree.keys {
			hasRecord = hasRecord || k == "record" && (tree.kids[i].obj)
		}
		if hasRecord {
			if fullErr != nil || !reflect.DeepEqual(full, p) {
				t.Fatalf("%q: %+v, as a Put %+v, %v", data, p, full, fullErr)
			}
		} else if r := p.Record; r.SubmissionID != "" || r.Part != 0 || r.AttachedAt != "" || r.ContentType != "" || r.File != nil || r.ShareWith != nil {
			t.Fatalf("%q: a minimal put gained fields: %+v", data, r)
		}
		if p.Check() != nil {
			return
		}
		// What is checked travels on as a full put and stays the same record.
		out, err := Encode(p)
		if err != nil {
			t.Fatalf("%q: %v", data, err)
		}
		again, err := DecodePut(out)
		if err != nil || again.Record.ID() != p.Record.ID() {
			t.Fatalf("%q: %s is another record, %v", data, out, err)
		}
	})
}
