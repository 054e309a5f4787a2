package wire

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestVisible(t *testing.T) {
	shares := func(s ...Share) []Share { return s }
	tests := []struct {
		name   string
		rec    Record
		viewer TenantID
		mode   string
		ok     bool
	}{
		{"owner", Record{Kind: KindMetadata, TenantID: "acme"}, "acme", ModeFiles, true},
		{"owner of private metadata", Record{Kind: KindPrivateMetadata, TenantID: "acme"}, "acme", ModeFiles, true},
		{"owner of a file", Record{Kind: KindFile, TenantID: "acme"}, "acme", ModeFiles, true},
		{"owner of a control record", Record{Kind: KindShare, TenantID: "acme"}, "acme", "", false},
		{"owner beside a weaker share of his own", Record{Kind: KindMetadata, TenantID: "acme", ShareWith: shares(Share{"acme", ModeProofs})}, "acme", ModeFiles, true},
		{"stranger", Record{Kind: KindMetadata, TenantID: "acme"}, "globex", "", false},
		{"tenant id in another case", Record{Kind: KindMetadata, TenantID: "acme"}, "Acme", "", false},
		{"tenant id as a prefix", Record{Kind: KindMetadata, TenantID: "acme"}, "acme2", "", false},
		{"nobody", Record{Kind: KindMetadata, TenantID: "acme", ShareWith: shares(Share{"globex", ModeFiles})}, "", "", false},
		{"grantee", Record{Kind: KindMetadata, TenantID: "acme", ShareWith: shares(Share{"globex", ModeMetadata})}, "globex", ModeMetadata, true},
		{"beside a grantee", Record{Kind: KindMetadata, TenantID: "acme", ShareWith: shares(Share{"globex", ModeMetadata})}, "initech", "", false},
		{"public", Record{Kind: "approval", TenantID: "acme", ShareWith: shares(Share{Public, ModeProofs})}, "initech", ModeProofs, true},
		{"best of public and own", Record{Kind: "approval", TenantID: "acme", ShareWith: shares(Share{Public, ModeProofs}, Share{"globex", ModeFiles})}, "globex", ModeFiles, true},
		{"best in the other order", Record{Kind: "approval", TenantID: "acme", ShareWith: shares(Share{"globex", ModeProofs}, Share{Public, ModeMetadata})}, "globex", ModeMetadata, true},
		{"best comes first", Record{Kind: "approval", TenantID: "acme", ShareWith: shares(Share{"globex", ModeFiles}, Share{Public, ModeProofs})}, "globex", ModeFiles, true},
		{"revoked", Record{Kind: "approval", TenantID: "acme", ShareWith: shares(Share{"globex", ModeNone})}, "globex", "", false},
		{"revoked but public", Record{Kind: "approval", TenantID: "acme", ShareWith: shares(Share{"globex", ModeNone}, Share{Public, ModeProofs})}, "globex", ModeProofs, true},
		{"mode of a newer peer", Record{Kind: "approval", TenantID: "acme", ShareWith: shares(Share{"globex", "Z"})}, "globex", "", false},
		{"private metadata shared", Record{Kind: KindPrivateMetadata, TenantID: "acme", ShareWith: shares(Share{"globex", ModeFiles}, Share{Public, ModeFiles})}, "globex", "", false},
		{"file in mode A", Record{Kind: KindFile, TenantID: "acme", ShareWith: shares(Share{"globex", ModeProofs})}, "globex", "", false},
		{"file in mode B", Record{Kind: KindFile, TenantID: "acme", ShareWith: shares(Share{"globex", ModeMetadata})}, "globex", "", false},
		{"file in mode C", Record{Kind: KindFile, TenantID: "acme", ShareWith: shares(Share{"globex", ModeFiles})}, "globex", ModeFiles, true},
		{"shared control record", Record{Kind: KindHold, TenantID: "acme", ShareWith: shares(Share{Public, ModeFiles})}, "globex", "", false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			mode, ok := Visible(&tt.rec, tt.viewer)
			if mode != tt.mode || ok != tt.ok {
				t.Errorf("got %q, %v; want %q, %v", mode, ok, tt.mode, tt.ok)
			}
			if rec, forOK := tt.rec.For(tt.viewer); forOK != ok || !ok && rec.TenantID != "" {
				t.Errorf("For says %v and gives %+v", forOK, rec)
			}
		})
	}
}

func TestForStripsWhatTheModeDoesNotAdmit(t *testing.T) {
	put := PutRecord{
		Kind: KindMetadata, SHA256: helloDigest, TenantID: "acme", Body: []byte(`{"a":1}`),
		ShareWith: []Share{{"proofs", ModeProofs}, {"meta", ModeMetadata}, {"files", ModeFiles}},
	}
	for _, digested := range []bool{true, false} {
		rec := Record{ID: put.ID(), Kind: put.Kind, SHA256: put.SHA256, TenantID: put.TenantID, Body: put.Body, ShareWith: put.ShareWith}
		if digested {
			rec.BodySHA256 = put.BodySHA256()
		}
		for viewer, body := range map[TenantID]string{"acme": `{"a":1}`, "files": `{"a":1}`, "meta": `{"a":1}`, "proofs": ""} {
			got, ok := rec.For(viewer)
			if !ok || string(got.Body) != body {
				t.Errorf("%s sees %q, %v", viewer, got.Body, ok)
			}
			// Whoever sees it can check it.
			if err := got.Check(); err != nil || got.ComputeID() != rec.ID {
				t.Errorf("%s: %v, id %s of %s", viewer, err, got.ComputeID(), rec.ID)
			}
		}
		if string(rec.Body) != `{"a":1}` {
			t.Error("the record itself was stripped")
		}
	}
}

func TestParseShares(t *testing.T) {
	tests := []struct {
		in   string
		want []Share
	}{
		{`[]`, nil},
		{`["globex"]`, []Share{{"globex", ModeFiles}}},
		{`["*"]`, []Share{{Public, ModeFiles}}},
		{`[{"tenantId":"globex","mode":"A"},"initech",{"tenantId":"*","mode":"B","since":1}]`, []Share{{"globex", "A"}, {"initech", "C"}, {"*", "B"}}},
	}
	for _, tt := range tests {
		got, err := ParseShares([]byte(tt.in))
		if err != nil {
			t.Errorf("%s: %v", tt.in, err)
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s: %s", tt.in, diff)
		}
	}
}

func shareList(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `,"t%d"`, i)
	}
	return "[" + b.String()[1:] + "]"
}

func TestParseSharesRefusals(t *testing.T) {
	if _, err := ParseShares([]byte(shareList(MaxShares))); err != nil {
		t.Errorf("%d shares: %v", MaxShares, err)
	}
	tests := []struct{ in, field, says string }{
		{``, "", "a list is expected"},
		{`null`, "", "null"},
		{`"globex"`, "", "a string where a list"},
		{`{"tenantId":"globex","mode":"A"}`, "", "an object where a list"},
		{`[1]`, "[0]", "number"},
		{`[null]`, "[0]", "null; an object"},
		{`["a",""]`, "[1].tenantId", "missing"},
		{`["a b"]`, "[0].tenantId", "' '"},
		{`["**"]`, "[0].tenantId", "'*'"},
		{`[{"tenantId":"globex"}]`, "[0].mode", `""; give A`},
		{`[{"mode":"A"}]`, "[0].tenantId", "missing"},
		{`[{"tenantId":"globex","mode":"a"}]`, "[0].mode", `"a"; give A`},
		{`[{"tenantId":"globex","mode":"none"}]`, "[0].mode", `"none"; give A`},
		{`["globex",{"tenantId":"globex","mode":"A"}]`, "[1].tenantId", "twice"},
		{`[{"tenantId":"globex","tenantId":"x","mode":"A"}]`, "[0].tenantId", "twice"},
		{`[{"tenantid":"globex","mode":"A"}]`, "[0].tenantid", "only in case"},
		{`["\ud800"]`, "[0]", "lone surrogate"},
		{shareList(MaxShares + 1), "", "at most 64"},
	}
	for _, tt := range tests {
		_, err := ParseShares([]byte(tt.in))
		wantError(t, err, tt.field, tt.says)
	}
}

// Of every kind, under every two shares: who is not the owner may see what one
// share that names him or everybody admits, and nothing else.
func TestAdmitsIsVisible(t *testing.T) {
	modes := []string{ModeNone, ModeProofs, ModeMetadata, ModeFiles, "Z", ""}
	names := []TenantID{"globex", Public, "initech"}
	for _, kind := range []Kind{KindMetadata, KindPrivateMetadata, KindFile, KindShare, KindRetain, KindHold, KindRelease, "approval"} {
		for i := range len(modes) * len(names) * len(modes) * len(names) {
			one, two := i%(len(modes)*len(names)), i/(len(modes)*len(names))
			shares := []Share{{names[one%len(names)], modes[one/len(names)]}, {names[two%len(names)], modes[two/len(names)]}}
			want := false
			for _, s := range shares {
				want = want || (s.TenantID == "globex" || s.TenantID == Public) && s.Admits(kind)
			}
			if _, ok := Visible(&Record{Kind: kind, TenantID: "acme", ShareWith: shares}, "globex"); ok != want {
				t.Errorf("%s shared %v: visible %v, admitted %v", kind, shares, ok, want)
			}
		}
	}
}
