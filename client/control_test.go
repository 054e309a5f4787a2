package client

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/wire"
)

// Each decision is the request of the contract, and says what it means.
func TestDecisionsAreTheRequestsOfTheContract(t *testing.T) {
	var got []string
	answer := `{"kind":"hold","status":"completed","copies":2,"archives":3,"changed":true,"retention":{"holds":[{"name":"a"}]}}`
	c := server(t, func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		got = append(got, strings.TrimSpace(r.Method+" "+r.URL.RequestURI()+" "+r.Header.Get("Content-Type")+" "+string(body)))
		if r.Header.Get("X-Api-Key") != "the-key" {
			t.Errorf("%v", r.Header)
		}
		reply(http.StatusCreated, "application/json", answer)(w, r)
	})
	all, one := Target{SHA256: wire.Digest{1}}, Target{SHA256: wire.Digest{1}, RecordID: wire.RecordID{2}}
	until := time.Date(2036, 11, 30, 1, 0, 0, 0, time.FixedZone("", 3600))
	for _, decide := range []func() (wire.Steered, error){
		func() (wire.Steered, error) { return c.Retain(t.Context(), all, until, "") },
		func() (wire.Steered, error) { return c.Retain(t.Context(), one, until, "tax law") },
		func() (wire.Steered, error) { return c.Hold(t.Context(), all, "", "") },
		func() (wire.Steered, error) { return c.Hold(t.Context(), one, "case 17", "x") },
		func() (wire.Steered, error) { return c.Release(t.Context(), all, "", "") },
		func() (wire.Steered, error) { return c.Release(t.Context(), one, "case 17", "x") },
	} {
		out, err := decide()
		if err != nil || out.Copies != 2 || out.Archives != 3 || !out.Changed || len(out.Retention.Holds) != 1 {
			t.Errorf("%+v, %v", out, err)
		}
	}
	sha, id := "01"+strings.Repeat("0", 62), "02"+strings.Repeat("0", 62)
	want := []string{
		`POST /zapier/v1/retentions application/json {"sha256":"` + sha + `","retainUntil":"2036-11-30T00:00:00.000000000Z"}`,
		`POST /zapier/v1/retentions application/json {"sha256":"` + sha + `","recordId":"` + id + `","retainUntil":"2036-11-30T00:00:00.000000000Z","reason":"tax law"}`,
		`POST /zapier/v1/holds application/json {"sha256":"` + sha + `"}`,
		`POST /zapier/v1/holds application/json {"sha256":"` + sha + `","recordId":"` + id + `","name":"case 17","reason":"x"}`,
		`DELETE /zapier/v1/holds/` + sha + `?`,
		`DELETE /zapier/v1/holds/` + sha + `?name=case+17&reason=x&recordId=` + id,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestRetentionsAndRefusals(t *testing.T) {
	c := server(t, reply(http.StatusOK, "application/json", `{"sha256":"`+strings.Repeat("0", 64)+`","retainUntil":"2036-11-30T00:00:00.000000000Z","holds":[],"records":[{"kind":"metadata"}],"archivesMissing":["archive-a"],"complete":false}`))
	state, err := c.Retentions(t.Context(), wire.Digest{})
	if err != nil || state.RetainUntil == "" || len(state.Records) != 1 || state.Complete || len(state.ArchivesMissing) != 1 {
		t.Errorf("%+v, %v", state, err)
	}
	c = server(t, reply(http.StatusConflict, "application/problem+json", `{"code":"RETENTION_SHORTER","detail":"retainUntil: it is retained until 2036"}`))
	if _, err := c.Retain(t.Context(), Target{}, time.Now(), ""); !fault.Is(err, fault.Conflict) || fault.CodeOf(err) != "RETENTION_SHORTER" || !strings.Contains(err.Error(), "2036") {
		t.Errorf("%v", err)
	}
}
