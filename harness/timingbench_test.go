package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"testing"
	"time"

	"github.com/verae/archive/client"
	"github.com/verae/archive/harness/world"
	"github.com/verae/archive/wire"
)

// A sealedClass is a class of sealed digests of which a caller may see the seal
// alone.
type sealedClass struct {
	name    string
	share   string // with whom the attachments are shared; "-": there are none
	digests []wire.Digest
	took    []time.Duration
}

// BenchmarkLaw5OverHTTP is GET /zapier/v1/receipts, over one connection, in random
// order, of digests that are sealed and nothing more, of those with attachments of
// another tenant on two archives, and of those with attachments that are shared with
// a third one. The medians are to lie within 2 % of each other, and the answers are
// alike but for digest, seal and job. Run it with -benchtime 20000x; "wait" takes 5
// ms a round.
func BenchmarkLaw5OverHTTP(b *testing.B) {
	for _, mode := range []struct {
		name string
		env  []string
	}{
		{"mirrors", []string{"UNLISTED_ARCHIVES=none"}},
		{"all named", []string{"UNLISTED_ARCHIVES=none", "MIRRORS=off"}},
		{"wait", []string{"UNLISTED_ARCHIVES=wait", "WAIT_ARCHIVE_MS=5"}},
	} {
		w, err := world.Start(b.Context(), world.Config{
			Dir: b.TempDir(), Tenants: []wire.TenantID{"acme", "globex", "initech"},
			Env: append(mode.env, "PUT_COPIES=2", "PUT_MIN_COPIES=2"),
		})
		if err != nil {
			b.Fatal(err)
		}
		classes := sealedClasses(b, w)
		if mode.name == "mirrors" {
			waitMirrors(b, w)
		}
		b.Run(mode.name, func(b *testing.B) { lookAtClasses(b, w, classes) })
		stopWorld(b, w)
	}
}

// lookAtClasses measures lookups of the classes by globex.
func lookAtClasses(b *testing.B, w *world.World, classes []*sealedClass) {
	var alike []byte
	for _, c := range classes {
		c.took = nil
		for _, d := range c.digests[:min(len(c.digests), b.N)] {
			_, body := receiptsOf(b, w, "globex", d)
			body = common(b, body)
			if alike == nil {
				alike = body
			}
			if !bytes.Equal(alike, body) {
				b.Fatalf("%s:\n%s\nwhat is absent:\n%s", c.name, body, alike)
			}
		}
	}
	random := rand.New(rand.NewPCG(5, 0))
	b.ResetTimer()
	for range b.N {
		c := classes[random.IntN(len(classes))]
		took, _ := receiptsOf(b, w, "globex", c.digests[random.IntN(len(c.digests))])
		c.took = append(c.took, took)
	}
	b.StopTimer()
	for _, c := range classes {
		if len(c.took) == 0 || len(classes[0].took) == 0 {
			continue
		}
		p50 := quantile(c.took, 0.5)
		b.ReportMetric(float64(p50.Nanoseconds())/1e3, "us-p50-"+c.name)
		b.ReportMetric(float64(quantile(c.took, 0.99).Nanoseconds())/1e3, "us-p99-"+c.name)
		b.ReportMetric(float64(p50)/float64(quantile(classes[0].took, 0.5)), "x-absent-"+c.name)
	}
}

// sealedClasses has acme seal 100 digests of each class, in turns.
func sealedClasses(b *testing.B, w *world.World) []*sealedClass {
	b.Helper()
	classes := []*sealedClass{{name: "absent", share: "-"}, {name: "private"}, {name: "shared", share: "initech"}}
	for i := range 100 {
		for _, c := range classes {
			d := sum(fmt.Append(nil, c.name, i))
			c.digests = append(c.digests, d)
			request := map[string]any{"sha256": d}
			if c.share != "-" {
				request["publicMetadata"] = map[string]any{"title": "Agreement", "n": i}
			}
			if c.share == "initech" {
				request["shareWith"] = []string{c.share}
			}
			submit(b, w.Client("acme"), request)
		}
	}
	return classes
}

// submit sends a request as JSON, and expects that it is completed at once.
func submit(b *testing.B, c *client.Client, request any) {
	b.Helper()
	text, err := json.Marshal(request)
	if err != nil {
		b.Fatal(err)
	}
	req, err := http.NewRequestWithContext(b.Context(), http.MethodPost, c.URL+"/zapier/v1/timestamp/wait", bytes.NewReader(text))
	if err != nil {
		b.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	if _, body := exchange(b, c, req); !bytes.Contains(body, []byte(`"completed"`)) {
		b.Fatalf("%s", body)
	}
}

// receiptsOf looks a digest up, and returns how long it took to have the answer.
func receiptsOf(b *testing.B, w *world.World, tenant wire.TenantID, d wire.Digest) (time.Duration, []byte) {
	b.Helper()
	c := w.Client(tenant)
	req, err := http.NewRequestWithContext(b.Context(), http.MethodGet, c.URL+"/zapier/v1/receipts/"+d.String(), nil)
	if err != nil {
		b.Fatal(err)
	}
	return exchange(b, c, req)
}

// warm keeps its connections, so that none is made while something is measured.
var warm = &http.Client{Timeout: time.Minute}

func exchange(b *testing.B, c *client.Client, req *http.Request) (time.Duration, []byte) {
	b.Helper()
	req.Header.Set("X-Api-Key", c.Key)
	begin := time.Now()
	resp, err := warm.Do(req)
	if err != nil {
		b.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	took := time.Since(begin)
	if err := resp.Body.Close(); err != nil {
		b.Fatal(err)
	}
	if err != nil || resp.StatusCode >= 300 {
		b.Fatalf("%s: %s, %v", resp.Status, body, err)
	}
	return took, body
}

// common is an answer without the digest, the seal and the job, which differ between
// any two digests.
func common(b *testing.B, body []byte) []byte {
	b.Helper()
	var answer map[string]any
	if err := json.Unmarshal(body, &answer); err != nil {
		b.Fatal(err)
	}
	delete(answer, "sha256")
	delete(answer, "jobId")
	list, ok := answer["receipts"].([]any)
	if !ok || len(list) != 1 {
		b.Fatalf("receipts that globex may not see: %s", body)
	}
	answer["receipts"] = len(list)
	text, err := json.Marshal(answer)
	if err != nil {
		b.Fatal(err)
	}
	return text
}
