package wire

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"math"
	"os"
	"strings"
	"testing"

	"github.com/fxamacker/cbor/v2"
	"pgregory.net/rapid"
)

// A vector is one frozen record id. Files of vectors are added to, never edited.
type vector struct {
	Name   string    `json:"name"`
	Record PutRecord `json:"record"`
	CBOR   string    `json:"cbor"`
	ID     RecordID  `json:"id"`
}

func vectors(t testing.TB) []vector {
	t.Helper()
	data, err := os.ReadFile("testdata/recordid/vectors.json")
	if err != nil {
		t.Fatal(err)
	}
	all, err := Decode[[]vector](data)
	if err != nil || len(all) < 12 {
		t.Fatalf("%d vectors, %v", len(all), err)
	}
	return all
}

func TestRecordIDVectors(t *testing.T) {
	for _, v := range vectors(t) {
		if got := hex.EncodeToString(portableCBOR(&v.Record, v.Record.BodySHA256())); got != v.CBOR {
			t.Errorf("%s: encoding\n%s, want\n%s", v.Name, got, v.CBOR)
		}
		if got := v.Record.ID(); got != v.ID {
			t.Errorf("%s: id %s, want %s", v.Name, got, v.ID)
		}
		raw, err := hex.DecodeString(v.CBOR)
		if err != nil {
			t.Fatal(err)
		}
		if sum := sha256.Sum256(append([]byte("verae-record/1"), raw...)); RecordID(sum) != v.ID {
			t.Errorf("%s: the printed encoding hashes to %x", v.Name, sum)
		}
		if err := v.Record.Check(); err != nil {
			t.Errorf("%s: %v", v.Name, err)
		}
	}
}

// deterministic is RFC 8949, section 4.2.1, by a full CBOR library.
var deterministic = func() cbor.EncMode {
	mode, err := cbor.CoreDetEncOptions().EncMode()
	if err != nil {
		panic(err)
	}
	return mode
}()

// byLibrary encodes the portable fields with the library, from a description of
// the layout that shares nothing with ours.
func byLibrary(t interface{ Fatal(...any) }, r PutRecord) []byte {
	m := map[uint64]any{1: string(r.Kind), 2: r.SHA256[:], 3: string(r.TenantID)}
	if r.SubmissionID != "" {
		m[4] = string(r.SubmissionID)
	}
	if r.Part != 0 {
		m[5] = r.Part
	}
	if r.AttachedAt != "" {
		m[6] = string(r.AttachedAt)
	}
	if r.ContentType != "" {
		m[7] = r.ContentType
	}
	if len(r.Body) > 0 {
		sum := sha256.Sum256(r.Body)
		m[8] = sum[:]
	}
	if f := r.File; f != nil {
		file := map[uint64]any{2: f.Size, 3: f.SHA256[:], 4: f.CID}
		if f.Name != "" {
			file[1] = f.Name
		}
		if f.ContentType != "" {
			file[5] = f.ContentType
		}
		m[9] = file
	}
	if len(r.ShareWith) > 0 {
		var shares [][]string
		for _, s := range r.ShareWith {
			shares = append(shares, []string{string(s.TenantID), s.Mode})
		}
		m[10] = shares
	}
	out, err := deterministic.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func genRecord(t *rapid.T) PutRecord {
	digest := func(name string) (d Digest) {
		copy(d[:], rapid.SliceOfN(rapid.Byte(), 32, 32).Draw(t, name))
		return d
	}
	text := rapid.StringN(0, 300, -1)
	r := PutRecord{
		Kind:         Kind(text.Draw(t, "kind")),
		SHA256:       digest("sha256"),
		TenantID:     TenantID(text.Draw(t, "tenant")),
		SubmissionID: SubmissionID(rapid.StringMatching(`(?:[0-9a-f]{8}-0000-7000-8000-000000000000)?`).Draw(t, "submission")),
		Part:         rapid.IntRange(-70_000, 70_000).Draw(t, "part"),
		AttachedAt:   Time(text.Draw(t, "attachedAt")),
		ContentType:  text.Draw(t, "contentType"),
		Body:         rapid.SliceOfN(rapid.Byte(), 0, 40).Draw(t, "body"),
	}
	if rapid.Bool().Draw(t, "has file") {
		r.File = &File{Name: text.Draw(t, "name"), Size: rapid.Int64().Draw(t, "size"), SHA256: digest("file"), CID: text.Draw(t, "cid"), ContentType: text.Draw(t, "type")}
	}
	for range rapid.IntRange(0, 30).Draw(t, "shares") {
		r.ShareWith = append(r.ShareWith, Share{TenantID(text.Draw(t, "grantee")), text.Draw(t, "mode")})
	}
	return r
}

func TestEncodingIsTheLibrarysDeterministicOne(t *testing.T) {
	for _, v := range vectors(t) {
		if want := byLibrary(t, v.Record); hex.EncodeToString(want) != v.CBOR {
			t.Errorf("%s: the library writes %x", v.Name, want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		r := genRecord(t)
		got := portableCBOR(&r, r.BodySHA256())
		if want := byLibrary(t, r); !bytes.Equal(got, want) {
			t.Fatalf("%+v:\n%x, the library writes\n%x", r, got, want)
		}
		// And whoever decodes and encodes again gets the same bytes.
		var back any
		if err := cbor.Unmarshal(got, &back); err != nil {
			t.Fatal(err)
		}
		if again, err := deterministic.Marshal(back); err != nil || !bytes.Equal(again, got) {
			t.Fatalf("%x comes back as %x, %v", got, again, err)
		}
	})
}

func TestHeadsAreTheShortest(t *testing.T) {
	for _, n := range []int64{0, 1, 23, 24, 255, 256, 65535, 65536, math.MaxUint32, math.MaxUint32 + 1, math.MaxInt64, -1, -24, -25, -256, -257, math.MinInt64} {
		want, err := deterministic.Marshal(n)
		if got := appendInt(nil, n); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%d: %x, want %x", n, got, want)
		}
	}
}

// Every portable field is under the id, and nothing else is.
func TestIDCoversThePortableFieldsOnly(t *testing.T) {
	base := func() Record {
		return Record{
			ID: RecordID{1}, Kind: "approval", SHA256: Digest{1}, TenantID: "acme", SubmissionID: "s", Part: 1, AttachedAt: "t", StoredAt: "u", Seq: 7,
			ContentType: "c", Body: []byte("b"), BodySHA256: sha256.Sum256([]byte("b")),
			File: &File{ID: RecordID{2}, Name: "n", Size: 1, SHA256: Digest{2}, CID: "c", ContentType: "d"}, ShareWith: []Share{{"globex", "B"}},
		}
	}
	id := base().ComputeID()
	covered := map[string]func(*Record){
		"kind":         func(r *Record) { r.Kind = "x" },
		"sha256":       func(r *Record) { r.SHA256[31] = 1 },
		"tenant":       func(r *Record) { r.TenantID = "x" },
		"submission":   func(r *Record) { r.SubmissionID = "x" },
		"part":         func(r *Record) { r.Part = 0 },
		"attachedAt":   func(r *Record) { r.AttachedAt = "x" },
		"contentType":  func(r *Record) { r.ContentType = "" },
		"body":         func(r *Record) { r.Body = []byte("x") },
		"no body":      func(r *Record) { r.Body, r.BodySHA256 = nil, Digest{} },
		"no file":      func(r *Record) { r.File = nil },
		"file name":    func(r *Record) { r.File.Name = "x" },
		"file size":    func(r *Record) { r.File.Size = 0 },
		"file sha256":  func(r *Record) { r.File.SHA256[0] = 9 },
		"file cid":     func(r *Record) { r.File.CID = "x" },
		"file type":    func(r *Record) { r.File.ContentType = "" },
		"no shares":    func(r *Record) { r.ShareWith = nil },
		"share tenant": func(r *Record) { r.ShareWith[0].TenantID = "x" },
		"share mode":   func(r *Record) { r.ShareWith[0].Mode = "C" },
		"one more":     func(r *Record) { r.ShareWith = append(r.ShareWith, Share{"x", "A"}) },
		"text moved":   func(r *Record) { r.AttachedAt, r.ContentType = r.AttachedAt+"c", "" },
	}
	seen := map[RecordID]string{id: "the original"}
	for name, change := range covered {
		r := base()
		change(&r)
		if other, dup := seen[r.ComputeID()]; dup {
			t.Errorf("%s: the id is that of %s", name, other)
		}
		seen[r.ComputeID()] = name
	}
	free := map[string]func(*Record){
		"id":            func(r *Record) { r.ID = RecordID{9} },
		"file id":       func(r *Record) { r.File.ID = RecordID{9} },
		"storedAt":      func(r *Record) { r.StoredAt = "x" },
		"seq":           func(r *Record) { r.Seq = 9 },
		"body digest":   func(r *Record) { r.BodySHA256 = Digest{9} }, // the body is there and counts
		"body withheld": func(r *Record) { r.Body = nil },
	}
	for name, change := range free {
		r := base()
		change(&r)
		if r.ComputeID() != id {
			t.Errorf("%s changes the id", name)
		}
	}
}

func TestRecordAndPutAgreeOnTheID(t *testing.T) {
	for _, v := range vectors(t) {
		r := Record{
			Kind: v.Record.Kind, SHA256: v.Record.SHA256, TenantID: v.Record.TenantID, SubmissionID: v.Record.SubmissionID, Part: v.Record.Part,
			AttachedAt: v.Record.AttachedAt, ContentType: v.Record.ContentType, Body: v.Record.Body, BodySHA256: v.Record.BodySHA256(),
			File: v.Record.File, ShareWith: v.Record.ShareWith,
		}
		if r.ComputeID() != v.ID || r.Portable().ID() != v.ID {
			t.Errorf("%s: ids differ", v.Name)
		}
	}
}

func TestEmptyBodyIsNoBody(t *testing.T) {
	with, without := PutRecord{Kind: "note", Body: []byte{}}, PutRecord{Kind: "note"}
	if with.ID() != without.ID() || !with.BodySHA256().IsZero() {
		t.Error("an empty body counts")
	}
	if (PutRecord{Body: []byte("hello")}).BodySHA256().String() != helloHex {
		t.Error("the digest of a body is not its SHA-256")
	}
	if strings.Count(recordDomain, "") != 15 {
		t.Error("the domain has another length than documented")
	}
}
