package wire

import (
	"bytes"
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// A sample is a golden file of one payload type. The part of its name before
// the first underscore that is followed by a variant selects the type.
type sample struct {
	typ    reflect.Type
	reread func(data []byte) (any, error)
}

func sampleOf[T any]() sample {
	return sample{
		typ:    reflect.TypeFor[T](),
		reread: func(data []byte) (any, error) { return Decode[T](data) },
	}
}

// payloads lists every payload type under the prefix of its golden files.
var payloads = map[string]sample{
	"query":       sampleOf[Query](),
	"reply":       sampleOf[Reply](),
	"record":      sampleOf[Record](),
	"put":         sampleOf[Put](),
	"put_ack":     sampleOf[PutAck](),
	"put_minimal": {typ: reflect.TypeFor[minimalPut](), reread: nil},
	"hello":       sampleOf[Hello](),
	"watch":       sampleOf[Watch](),
	"event":       sampleOf[Event](),
	"job":         sampleOf[Job](),
	"problem":     sampleOf[Problem](),
	"accepted":    sampleOf[Accepted](),
	"blob_open":   sampleOf[BlobOpen](),
	"blob_commit": sampleOf[BlobCommit](),
	"blob_read":   sampleOf[BlobRead](),
	"blob_ack":    sampleOf[BlobAck](),

	"sync_has":        sampleOf[SyncHas](),
	"sync_have":       sampleOf[SyncHave](),
	"sync_ids":        sampleOf[SyncIDs](),
	"sync_page":       sampleOf[SyncPage](),
	"sync_record":     sampleOf[SyncRecord](),
	"sync_file":       sampleOf[SyncFile](),
	"sync_remembered": sampleOf[SyncRemembered](),
	"sync_memory":     sampleOf[SyncMemory](),
	"ctl_pull":        sampleOf[CtlPull](),
	"ctl_pulled":      sampleOf[CtlPulled](),
	"ctl_reconcile":   sampleOf[CtlReconcile](),
	"ctl_progress":    sampleOf[ReconcileProgress](),
	"ctl_checkpoint":  sampleOf[CtlCheckpoint](),
	"ctl_proof":       sampleOf[CtlProof](),
	"ctl_status":      sampleOf[CtlStatus](),
	"roster_request":  sampleOf[RosterRequest](),
	"roster_reply":    sampleOf[RosterReply](),

	"mirror_delta":    sampleOf[Delta](),
	"mirror_lease":    sampleOf[LeaseRequest](),
	"mirror_grant":    sampleOf[LeaseGrant](),
	"mirror_acked":    sampleOf[DeltaAck](),
	"mirror_deltas":   sampleOf[DeltasRequest](),
	"mirror_snapshot": sampleOf[SnapshotRequest](),
	"mirror_head":     sampleOf[SnapshotHead](),

	"outbox_claim": sampleOf[OutboxClaim](),
	"outbox_items": sampleOf[OutboxItems](),
	"outbox_done":  sampleOf[OutboxDone](),
	"outbox_count": sampleOf[OutboxCount](),

	"witness_request": sampleOf[WitnessRequest](),
	"witness_reply":   sampleOf[WitnessReply](),
}

// minimalPut is the input form that DecodePut takes besides Put.
type minimalPut struct {
	SHA256   Digest   `json:"sha256"`
	TenantID TenantID `json:"tenantId"`
	Kind     Kind     `json:"kind"`
	Body     RawJSON  `json:"body"`
}

// payloadOf returns the entry of payloads with the longest matching prefix.
func payloadOf(t *testing.T, file string) sample {
	t.Helper()
	best := ""
	for prefix := range payloads {
		if (file == prefix || strings.HasPrefix(file, prefix+"_")) && len(prefix) > len(best) {
			best = prefix
		}
	}
	if best == "" {
		t.Fatalf("testdata/%s.json belongs to no payload type", file)
	}
	return payloads[best]
}

// samples returns the golden files by name without extension.
func samples(t testing.TB) map[string][]byte {
	t.Helper()
	paths, err := fs.Glob(os.DirFS("testdata"), "*.json")
	if err != nil || len(paths) == 0 {
		t.Fatalf("golden samples: %v, %d found", err, len(paths))
	}
	all := map[string][]byte{}
	for _, p := range paths {
		data, err := os.ReadFile(filepath.Join("testdata", p))
		if err != nil {
			t.Fatal(err)
		}
		all[strings.TrimSuffix(p, ".json")] = data
	}
	return all
}

// indent prints JSON as the golden files do.
func indent(t testing.TB, data []byte) string {
	t.Helper()
	var out bytes.Buffer
	if err := json.Indent(&out, data, "", "  "); err != nil {
		t.Fatal(err)
	}
	return out.String() + "\n"
}

func TestSamplesSurviveDecodeAndEncode(t *testing.T) {
	for name, data := range samples(t) {
		p := payloadOf(t, name)
		if p.reread == nil {
			continue // input only: TestMinimalPutSamples
		}
		t.Run(name, func(t *testing.T) {
			v, err := p.reread(data)
			if err != nil {
				t.Fatal(err)
			}
			out, err := Encode(v)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(data), indent(t, out)); diff != "" {
				t.Errorf("sample (-) and encoding of what it decodes to (+):\n%s", diff)
			}
		})
	}
}

// Ids and digests inside the samples are true, so that a reader can check his
// own implementation against them.
func TestSampleRecordsCheck(t *testing.T) {
	seen := map[Kind]bool{}
	for name, data := range samples(t) {
		var err error
		switch p := payloadOf(t, name); p.typ {
		case reflect.TypeFor[Record]():
			var r Record
			if r, err = Decode[Record](data); err == nil {
				err, seen[r.Kind] = r.Check(), true
			}
			if r.ID != r.ComputeID() {
				t.Errorf("%s: id %s, the fields give %s", name, r.ID, r.ComputeID())
			}
		case reflect.TypeFor[Reply]():
			r, _ := Decode[Reply](data)
			for _, rec := range r.Records {
				if e := rec.Check(); e != nil {
					err = e
				}
			}
		case reflect.TypeFor[Put](), reflect.TypeFor[minimalPut]():
			var p Put
			if p, err = DecodePut(data); err == nil {
				err = p.Check()
			}
		case reflect.TypeFor[Query]():
			q, _ := Decode[Query](data)
			err = q.Check()
		case reflect.TypeFor[Watch]():
			w, _ := Decode[Watch](data)
			err = w.Check()
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, k := range []Kind{KindMetadata, KindPrivateMetadata, KindFile, KindShare, KindRetain, KindHold, KindRelease, "approval"} {
		if !seen[k] {
			t.Errorf("no sample of a record of kind %q", k)
		}
	}
}

// Every field of every payload is set in some sample, so a field cannot be
// renamed, or added without a sample, unnoticed.
func TestSamplesShowEveryField(t *testing.T) {
	shown := map[string]bool{}
	for name, data := range samples(t) {
		p := payloadOf(t, name)
		var v any
		if err := json.Unmarshal(data, &v); err != nil {
			t.Fatal(name, err)
		}
		markShown(shown, p.typ, v)
	}
	done := map[reflect.Type]bool{}
	for _, p := range payloads {
		for _, key := range wantShown(done, p.typ) {
			if key == "Event.nextAttemptAt" {
				continue // no event announces a pending job
			}
			if !shown[key] {
				t.Errorf("no sample shows %s", key)
			}
		}
	}
}

// markShown notes "Type.key" for every known key of v.
func markShown(shown map[string]bool, typ reflect.Type, v any) {
	for typ.Kind() == reflect.Pointer || typ.Kind() == reflect.Slice {
		typ = typ.Elem()
	}
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			markShown(shown, typ, e)
		}
	case map[string]any:
		if typ.Kind() != reflect.Struct {
			return
		}
		for name, f := range jsonFields(typ) {
			if e, ok := v[name]; ok {
				shown[typ.Name()+"."+name] = true
				markShown(shown, f.typ, e)
			}
		}
	}
}

// wantShown lists "Type.key" for every key that typ or a type inside it knows.
func wantShown(done map[reflect.Type]bool, typ reflect.Type) (keys []string) {
	for typ.Kind() == reflect.Pointer || typ.Kind() == reflect.Slice {
		typ = typ.Elem()
	}
	if done[typ] || typ.Kind() != reflect.Struct {
		return nil
	}
	done[typ] = true
	for name, f := range jsonFields(typ) {
		keys = append(keys, typ.Name()+"."+name)
		keys = append(keys, wantShown(done, f.typ)...)
	}
	return keys
}

// A payload type added to the package without a golden sample fails here.
func TestEveryPayloadTypeHasASample(t *testing.T) {
	reached := map[string]bool{}
	done := map[reflect.Type]bool{}
	for _, p := range payloads {
		wantShown(done, p.typ)
	}
	for typ := range done {
		reached[typ.Name()] = true
	}
	fset := token.NewFileSet()
	for _, file := range []string{"wire.go", "values.go", "blob.go", "sync.go", "ctl.go", "mirror.go", "outbox.go"} {
		f, err := parser.ParseFile(fset, file, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(f, func(n ast.Node) bool {
			if ts, ok := n.(*ast.TypeSpec); ok && ts.Name.IsExported() {
				if _, isStruct := ts.Type.(*ast.StructType); isStruct && !reached[ts.Name.Name] {
					t.Errorf("%s: payload type %s has no golden sample", file, ts.Name.Name)
				}
			}
			return true
		})
	}
}

func TestMinimalPutSamples(t *testing.T) {
	all := samples(t)
	tests := []struct{ name, kind, body string }{
		{"put_minimal", "metadata", `{"title": "Agreement"}`},
		{"put_minimal_base64", "approval", "approved by both parties\n"},
	}
	for _, tt := range tests {
		p, err := DecodePut(all[tt.name])
		if err != nil {
			t.Fatal(tt.name, err)
		}
		want := Put{Record: PutRecord{Kind: Kind(tt.kind), SHA256: p.Record.SHA256, TenantID: "acme", Body: []byte(tt.body)}}
		if diff := cmp.Diff(want, p); diff != "" || p.Record.SHA256.IsZero() {
			t.Errorf("%s: %s", tt.name, diff)
		}
	}
}

// The example of the original contract, as printed, has ellipses for values.
// As it stands it is refused by name; with digests for the ellipses it reads,
// and every key of it survives.
func TestOriginalExampleJob(t *testing.T) {
	printed, err := os.ReadFile("testdata/seed/completed_job.json")
	if err != nil {
		t.Fatal(err)
	}
	_, err = Decode[Job](printed)
	wantError(t, err, "sha256", "64 hexadecimal")

	digest := strings.Repeat("5e", 32)
	filled := strings.ReplaceAll(string(printed), `"sha256": "…"`, `"sha256": "`+digest+`"`)
	filled = strings.ReplaceAll(filled, `"id": "…"`, `"id": "`+digest+`"`)
	job, err := Decode[Job]([]byte(filled))
	if err != nil {
		t.Fatal(err)
	}
	out, err := Encode(job)
	if err != nil {
		t.Fatal(err)
	}
	var before, after map[string]any
	if err := json.Unmarshal([]byte(filled), &before); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(out, &after); err != nil {
		t.Fatal(err)
	}
	requireKept(t, "", before, after)
}

// requireKept fails unless after has every key and value that before has.
func requireKept(t *testing.T, path string, before, after any) {
	t.Helper()
	switch b := before.(type) {
	case map[string]any:
		a, _ := after.(map[string]any)
		for _, k := range slices.Sorted(mapKeys(b)) {
			if _, ok := a[k]; !ok {
				t.Errorf("%s.%s was lost", path, k)
				continue
			}
			requireKept(t, path+"."+k, b[k], a[k])
		}
	case []any:
		a, _ := after.([]any)
		if len(a) != len(b) {
			t.Fatalf("%s has %d elements, had %d", path, len(a), len(b))
		}
		for i := range b {
			requireKept(t, path+index(i), b[i], a[i])
		}
	default:
		if !reflect.DeepEqual(before, after) {
			t.Errorf("%s is %v, was %v", path, after, before)
		}
	}
}

func mapKeys(m map[string]any) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}
