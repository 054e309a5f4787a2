package receipts_test

import (
	"reflect"
	"testing"
	"testing/synctest"
	"time"

	"github.com/verae/archive/receipts"
	"github.com/verae/archive/wire"
)

// A copy of a record that is held already is judged by all that it says: one that
// differs in anything but what is local to an archive is no copy of it.
func TestACopyThatDiffersIsNoCopy(t *testing.T) {
	local := map[string]bool{"StoredAt": true, "Seq": true, "Retention": true}
	for _, whole := range []wire.Record{
		record("note", "hello", part(1), shared(globex, "B"), func(r *wire.Record) { r.ContentType = "text/plain" }),
		record(wire.KindFile, "a.pdf", part(1), shared(globex, "C"), func(r *wire.Record) { r.ContentType = "text/plain" }),
	} {
		for i := range reflect.TypeFor[wire.Record]().NumField() {
			name := reflect.TypeFor[wire.Record]().Field(i).Name
			changed := whole
			if f := whole.File; f != nil {
				other := *f
				changed.File = &other
			}
			change(t, reflect.ValueOf(&changed).Elem().Field(i))
			got := heldBy(t, whole, changed)
			if want := 1 + map[bool]int{true: 1}[local[name]]; len(got.Records) != 1 || len(got.Records[0].ArchiveIDs) != want {
				t.Errorf("%s of a %s: %+v", name, whole.Kind, got.Records)
			}
		}
	}
	r := record("note", "hello")
	r.Retention = &wire.Retention{RetainUntil: "x"} // is judged with every copy
	if got := heldBy(t, record("note", "hello"), r); len(got.Missing) != 1 {
		t.Errorf("%+v", got)
	}
}

// heldBy is what comes of two archives that answer with one record each.
func heldBy(t *testing.T, a, b wire.Record) (got receipts.Gathered) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		got, _ = gather(t, &asker{script: []says{{1 * time.Millisecond, reply("archive-a", a)}, {2 * time.Millisecond, reply("archive-b", b)}}},
			roster{"archive-a", "archive-b"})
	})
	return got
}

// change makes a value another one.
func change(t *testing.T, v reflect.Value) {
	t.Helper()
	switch {
	case v.Kind() == reflect.String:
		v.SetString(v.String() + "2")
	case v.CanInt():
		v.SetInt(v.Int() + 1)
	case v.CanUint():
		v.SetUint(v.Uint() + 1)
	case v.Kind() == reflect.Array:
		v.Index(0).SetUint(v.Index(0).Uint() ^ 1)
	case v.Kind() == reflect.Slice && v.Type().Elem().Kind() == reflect.Uint8:
		v.SetBytes(append([]byte("x"), v.Bytes()...))
	case v.Kind() == reflect.Slice:
		v.Set(v.Slice(0, 0))
	case v.Type() == reflect.TypeFor[*wire.File]() && !v.IsNil():
		change(t, v.Elem().FieldByName("Name"))
	case v.Type() == reflect.TypeFor[*wire.File]():
		v.Set(reflect.ValueOf(&wire.File{Name: "x", SHA256: wire.Digest{1}, CID: "bafkreifzjut3te2nhyekklss27nh3k72ysco7y32koao5eei66wof36n5e"}))
	case v.Type() == reflect.TypeFor[*wire.Retention]():
		v.Set(reflect.ValueOf(&wire.Retention{RetainUntil: "2030-01-01T00:00:00Z"}))
	default:
		t.Fatalf("a field of type %v", v.Type())
	}
}
