package splitter

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"

	"github.com/verae/archive/wire"
)

// permutations calls f with every order of n things.
func permutations(n int, f func([]int)) {
	order := make([]int, 0, n)
	var next func()
	next = func() {
		if len(order) == n {
			f(order)
			return
		}
		for i := range n {
			if !slices.Contains(order, i) {
				order = append(order, i)
				next()
				order = order[:len(order)-1]
			}
		}
	}
	next()
}

// TestMP01AnyOrderOfParts: all 24 orders of four parts give the same records.
func TestMP01AnyOrderOfParts(t *testing.T) {
	subject := digestOf("the subject")
	parts := []string{
		upload("files", "scan.pdf", strings.Repeat("page ", 300_000)),
		value("sha256", strings.ToUpper(subject.String())),
		value("publicMetadata", `{ "title" : "x" }`),
		value("includeAttached", "true"),
	}
	var first *Request
	n := 0
	permutations(len(parts), func(order []int) {
		n++
		var some []string
		for _, i := range order {
			some = append(some, parts[i])
		}
		req := mustForm(t, some...)
		if req.Subject != subject || req.HashedFrom != FromSHA256 || !req.IncludeAttached {
			t.Errorf("order %v: subject %s from %q, includeAttached %v", order, req.Subject, req.HashedFrom, req.IncludeAttached)
		}
		if first == nil {
			first = req
		}
		if !bytes.Equal(first.Canonical(), req.Canonical()) {
			t.Errorf("order %v makes other records", order)
		}
		early := slices.Index(order, 1) < slices.Index(order, 0)
		if want := submissionKey(theSubmission); early && req.Placement != subject || !early && req.Placement != want {
			t.Errorf("order %v: placed by %x", order, req.Placement)
		}
	})
	if n != 24 {
		t.Fatalf("%d orders", n)
	}
}

// TestMP08NameDecidesFileOrValue: a file name makes no file, and its absence no
// value.
func TestMP08NameDecidesFileOrValue(t *testing.T) {
	req := mustForm(t, upload("publicMetadata", "blob", `{"a":1}`), upload("data", "x.bin", "data"))
	if string(req.PublicMetadata) != `{"a":1}` || req.HashedFrom != FromData || len(req.Files) != 0 {
		t.Errorf("metadata %q, hashed from %q, %d files", req.PublicMetadata, req.HashedFrom, len(req.Files))
	}
	req = mustForm(t, value("files", "no name"))
	if len(req.Files) != 1 || req.Files[0].Name != "" || req.Subject != digestOf("no name") || req.HashedFrom != FromFile {
		t.Errorf("a file without a name: %+v", req.Files)
	}
	req = mustForm(t, upload("files", "", "bytes"))
	if len(req.Files) != 1 || req.Subject != digestOf("bytes") {
		t.Errorf("a file with an empty name: %+v", req.Files)
	}
	req = mustForm(t, upload("files", "empty.txt", ""))
	const emptySHA256 = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
	const emptyCID = "bafkreihdwdcefgh4dqkjv67uzcmw7ojee6xedzdetojuzjevtenxquvyku"
	if f := req.Files[0]; req.Subject.String() != emptySHA256 || f.CID != emptyCID || f.Size != 0 || f.Name != "empty.txt" {
		t.Errorf("a file of zero bytes: %+v", f)
	}
	for name, unused := range map[string]string{"empty name": upload("files", "", ""), "no name": value("files", "")} {
		req := mustForm(t, unused, value("data", "x"))
		if len(req.Files) != 0 {
			t.Errorf("%s and no bytes made a file", name)
		}
		_, _, err := readForm(t, strings.NewReader(body(unused)), Config{})
		refused(t, err, CodeSubjectRequired)
	}
}

// TestMP09FileSpellings: three files in all spellings come out in order.
func TestMP09FileSpellings(t *testing.T) {
	var want *Request
	for _, names := range [][]string{
		{"files", "files", "files"}, {"files[]", "files[]", "files[]"}, {"files", "files[]", "files"},
		{"files[0]", "files[1]", "files[2]"}, {"files[5]", "files[10]", "files[9999]"},
	} {
		parts := []string{upload(names[0], "a", "aaa"), upload(names[1], "b", "bbb"), upload(names[2], "c", "ccc"), value("data", "x")}
		req := mustForm(t, parts...)
		if want == nil {
			want = req
		}
		if diff := cmp.Diff(want.Files, req.Files); diff != "" || req.Files[2].Name != "c" {
			t.Errorf("%v: %s", names, diff)
		}
	}
	req := mustForm(t, upload("files[2]", "c", "ccc"), value("data", "x"), upload("files[0]", "a", "aaa"), upload("files[1]", "b", "bbb"))
	if !bytes.Equal(want.Canonical(), req.Canonical()) {
		t.Errorf("numbered files in another order: %+v", req.Files)
	}
	for _, c := range []struct {
		parts      []string
		code, says string
	}{
		{[]string{upload("files[1]", "a", "a"), upload("files[1]", "b", "b")}, CodeDuplicateField, "an index of its own"},
		{[]string{upload("files[1]", "", ""), upload("files[1]", "b", "b")}, CodeDuplicateField, "an index of its own"},
		{[]string{upload("files[0]", "a", "a"), upload("files", "b", "b")}, CodeDuplicateField, "one spelling"},
		{[]string{upload("files", "a", "a"), upload("files[1]", "b", "b")}, CodeDuplicateField, "one spelling"},
		{[]string{upload("files[01]", "a", "a")}, CodeUnknownField, "plain digits"},
		{[]string{upload("files[-1]", "a", "a")}, CodeUnknownField, "plain digits"},
		{[]string{upload("files[10000]", "a", "a")}, CodeUnknownField, "plain digits"},
		{[]string{upload("files[x]", "a", "a")}, CodeUnknownField, "plain digits"},
		{[]string{upload("files[0", "a", "a")}, CodeUnknownField, "plain digits"},
	} {
		_, _, err := readForm(t, strings.NewReader(body(c.parts...)), Config{})
		refused(t, err, c.code, c.says)
	}
}

// TestMP09DuplicatesAndUnknownFields: a scalar comes once, in its own spelling,
// and nothing that was sent is passed over.
func TestMP09DuplicatesAndUnknownFields(t *testing.T) {
	values := map[string]string{
		"sha256": digestOf("x").String(), "data": "x", "publicMetadata": "{}", "privateMetadata": "{}",
		"includeAttached": "true", "sealMetadata": "false", "public": "false", "ocr": "false", "ocr:0": "true",
		"callbackUrl": "https://example.com/", "expectFileSha256": digestOf("a").String(), "tenantId": "whatever, ignored",
	}
	for name := range singleFields {
		if values[name] == "" {
			t.Errorf("no value for the field %q in this test", name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		t.Run(name, func(t *testing.T) {
			file := upload("files", "a", "a")
			mustForm(t, file, value(name, values[name]))
			_, _, err := readForm(t, strings.NewReader(body(file, value(name, values[name]), value(name, values[name]))), Config{})
			refused(t, err, CodeDuplicateField, name, "part 3", "send it once")
			upper := strings.ToUpper(name[:1]) + name[1:]
			_, _, err = readForm(t, strings.NewReader(body(file, value(upper, values[name]))), Config{})
			refused(t, err, CodeUnknownField, upper, "case-sensitive; write "+name)
		})
	}
	for name, says := range map[string]string{
		"file": "use one of", "sha-256": "use one of", "metadata": "use one of", "_charset_": "use one of",
		"sha256 ": "use one of", "SHA256": "write sha256", "Files": "write files", "FILES[0]": "write files[0]", "files[N]": "plain digits",
		"OCR:1": "write ocr:1", "ocr:x": "plain digits", "ocr:01": "plain digits", "Attachment:note": "write attachment:note",
		"ShareWith": "write shareWith", "dataBase64": "that is for JSON", "attachments": "that is for JSON",
		strings.Repeat("n", 200): "136 bytes more", "a\u00a0b": "use one of",
	} {
		_, _, err := readForm(t, strings.NewReader(body(value(name, "x"))), Config{})
		refused(t, err, CodeUnknownField, says)
	}
}

// TestMP12FileIsURL: the text of a link is never sealed as the user's file.
func TestMP12FileIsURL(t *testing.T) {
	const link = "https://zap.example/engine/hydrate/1/.eJx:1a:sig/"
	for name, part := range map[string]string{
		"no file name": value("files", link), "empty file name": upload("files", "", link),
		"blanks around": value("files", "  "+link+"\r\n"), "http": value("files", "HTTP://example.com/x"),
		"long":  value("files", link+strings.Repeat("x", maxURLFile-len(link))),
		"index": value("files[3]", link), "list": value("files[]", link),
	} {
		t.Run(name, func(t *testing.T) {
			_, d, err := readForm(t, strings.NewReader(body(part)), Config{})
			refused(t, err, CodeFileIsURL, "send its bytes")
			if strings.Contains(err.Error(), "zap.example") {
				t.Error("the message shows the link, which may be a secret")
			}
			if len(d.uploads) != 0 {
				t.Error("an upload was opened")
			}
		})
	}
	for name, part := range map[string]string{
		"a text file": upload("files", "link.txt", link), "two links": value("files", link+"\n"+link), "prose": value("files", "see "+link),
		"another scheme": value("files", "ftp://example.com/x"), "a scheme alone": value("files", "https://"),
		"beyond the limit": value("files", link+strings.Repeat("x", maxURLFile)),
	} {
		req := mustForm(t, part)
		if len(req.Files) != 1 {
			t.Errorf("%s: %d files", name, len(req.Files))
		}
	}
}

// TestAttachmentParts covers attachment:<kind>.
func TestAttachmentParts(t *testing.T) {
	req := mustForm(t, value("data", "x"), upload("attachment:note", "n.txt", "hello"), value("attachment:note", "again"),
		value("attachment:approved", ""), upload("attachment:photo", "", ""))
	want := []Attachment{
		{Kind: "note", ContentType: "text/plain", Name: "n.txt", Body: []byte("hello")},
		{Kind: "note", ContentType: DefaultContentType, Body: []byte("again")},
		{Kind: "approved", ContentType: DefaultContentType, Body: []byte{}},
	}
	if diff := cmp.Diff(want, req.Attachments); diff != "" {
		t.Error(diff)
	}
	for _, kind := range []wire.Kind{wire.KindMetadata, wire.KindPrivateMetadata, wire.KindFile, wire.KindShare, wire.KindRetain, wire.KindHold, wire.KindRelease} {
		_, _, err := readForm(t, strings.NewReader(body(value("data", "x"), value("attachment:"+string(kind), "y"))), Config{})
		refused(t, err, CodeReservedKind, "part 2", string(kind))
	}
	for _, kind := range []string{"", "Note", "a b", "-x", strings.Repeat("k", 65)} {
		_, _, err := readForm(t, strings.NewReader(body(value("attachment:"+kind, "y"))), Config{})
		refused(t, err, CodeBadField, "part 1")
	}
}

// TestChunksMakeNoDifference: a body may arrive in any pieces.
func TestChunksMakeNoDifference(t *testing.T) {
	whole := body(value("data", "d"), upload("files", "big", strings.Repeat("0123456789", 70_000)), upload("files", "small", "s"),
		value("privateMetadata", `{"p":[1,2]}`), value("attachment:note", "n"), value("shareWith", "b,a"))
	want, _, err := readForm(t, strings.NewReader(whole), Config{})
	if err != nil {
		t.Fatal(err)
	}
	for name, r := range map[string]io.Reader{
		"bytes": iotest.OneByteReader(strings.NewReader(whole)), "half": iotest.HalfReader(strings.NewReader(whole)), "dataErr": iotest.DataErrReader(strings.NewReader(whole)),
	} {
		got, d, err := readForm(t, r, Config{})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if !bytes.Equal(want.Canonical(), got.Canonical()) {
			t.Errorf("%s: another request", name)
		}
		if u := d.uploads[0]; u.biggest != wire.FragmentSize || u.writes != 3 {
			t.Errorf("%s: 700000 bytes went in %d writes of at most %d bytes, want 3 of a fragment", name, u.writes, u.biggest)
		}
	}
}

// TestStdWriterIsUnderstood: what mime/multipart and common clients write is
// read back.
func TestStdWriterIsUnderstood(t *testing.T) {
	for name, text := range map[string]string{
		"browser": "------WebKitFormBoundaryx\r\nContent-Disposition: form-data; name=\"files\"; filename=\"a%22b.txt\"\r\nContent-Type: text/plain\r\n\r\nfile\r\n------WebKitFormBoundaryx--\r\n",
		"curl":    "--------------------------x\r\nContent-Disposition: form-data; name=\"files\"; filename=\"a\\\"b.txt\"\r\nContent-Type: application/octet-stream\r\n\r\nfile\r\n--------------------------x--\r\n",
		"dotnet":  "--x-y\r\nContent-Type: text/plain\r\nContent-Disposition: form-data; name=files; filename=a.txt; filename*=utf-8''a.txt\r\n\r\nfile\r\n--x-y--\r\n",
		"go":      "--abc\r\nContent-Disposition: form-data; name=\"files\"; filename=\"a\\\\b.txt\"\r\nContent-Type: application/octet-stream\r\n\r\nfile\r\n--abc--\r\n",
		"python":  "--abc\r\nContent-Disposition: form-data; name=\"files\"; filename=\"\u00e9.txt\"\r\n\r\nfile\r\n--abc--\r\n",
	} {
		b, _, _ := strings.Cut(strings.TrimPrefix(text, "--"), "\r\n")
		d := &depot{t: t}
		req, err := ReadMultipart(t.Context(), strings.NewReader(text), fmt.Sprintf("multipart/form-data; boundary=%q", b), d.config())
		d.sound(req, err)
		if err != nil || req.Subject != digestOf("file") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
