package client

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/wire"
)

func TestOrdersAboutArchives(t *testing.T) {
	var got []string
	c := server(t, func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		got = append(got, r.Method+" "+r.URL.RequestURI()+" "+r.Header.Get("Content-Type")+" "+string(body))
		reply(http.StatusOK, "application/json", `{"archives":[],"archiveId":"archive-a","records":[{"recordId":"`+strings.Repeat("1", 64)+`"}],"more":true}`)(w, r)
	})
	if _, err := c.AcceptArchive(t.Context(), "archive-a", 2, "KEY"); err != nil {
		t.Error(err)
	}
	if raw, err := c.RetireArchive(t.Context(), "archive-a", true); err != nil || !strings.Contains(string(raw), `"archives":[]`) {
		t.Errorf("%s, %v", raw, err)
	}
	page, err := c.LostRecords(t.Context(), "archive-a", wire.RecordID{})
	if err != nil || !page.More || len(page.Records) != 1 {
		t.Fatalf("%+v, %v", page, err)
	}
	if _, err := c.LostRecords(t.Context(), "archive-a", page.Records[0].RecordID); err != nil {
		t.Error(err)
	}
	want := []string{
		`POST /zapier/v1/archives/archive-a/accept application/json {"generation":2,"key":"KEY"}`,
		`POST /zapier/v1/archives/archive-a/retire application/json {"force":true}`,
		`GET /zapier/v1/archives/archive-a/lost  `,
		`GET /zapier/v1/archives/archive-a/lost?after=` + strings.Repeat("1", 64) + `  `,
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("asked\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	c = server(t, reply(http.StatusConflict, "application/problem+json", `{"code":"ARCHIVE_NEEDED","detail":"no"}`))
	if _, err := c.RetireArchive(t.Context(), "archive-a", false); !fault.Is(err, fault.Conflict) || fault.CodeOf(err) != "ARCHIVE_NEEDED" {
		t.Errorf("got %v", err)
	}
}
