package edge

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/jobs"
	"github.com/verae/archive/wire"
)

const simpleBody = `{"data":"hello","includeAttached":true}`

// timed sends a request and says how long the answer took.
func (w *world) timed(r *http.Request) (answered, time.Duration) {
	start := time.Now()
	a := w.do(r)
	return a, time.Since(start)
}

// The wait of a POST is absolute, counted from the request, and ends in the
// 202 it would have been without it.
func TestWaitEndsInTheJobOrTheAccepted(t *testing.T) {
	for _, c := range []struct {
		name    string
		path    string
		prefer  string
		ends    time.Duration // of the job; 0: never
		status  int
		after   time.Duration
		applied string
	}{
		{"no wait", "", "", time.Second, 202, 0, ""},
		{"wait", "/wait", "", time.Second, 200, time.Second, ""},
		{"wait in vain", "/wait", "", 0, 202, 25 * time.Second, ""},
		{"ends at the last moment", "/wait", "", 25*time.Second - 1, 200, 25*time.Second - 1, ""},
		{"prefer", "", "wait=10", 4 * time.Second, 200, 4 * time.Second, "wait=10"},
		{"prefer in vain", "", "respond-async, wait=10", 0, 202, 10 * time.Second, "wait=10"},
		{"prefer too long", "", "wait=600", 0, 202, 25 * time.Second, "wait=25"},
		{"prefer less", "/wait", "wait=2", 0, 202, 2 * time.Second, "wait=2"},
		{"prefer nothing", "/wait", "wait=0", 0, 202, 0, "wait=0"},
		{"first preference counts", "", "wait=3, wait=9", 0, 202, 3 * time.Second, "wait=3"},
		{"unreadable preference", "", "wait=soon", 0, 202, 0, ""},
		{"unreadable preference of a wait", "/wait", "wait=-1", 0, 202, 25 * time.Second, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				r := w.request("POST", "/zapier/v1/timestamp"+c.path, simpleBody, "x-api-key", w.allKey(acme), "Content-Type", jsonType)
				if c.prefer != "" {
					r.Header.Set("Prefer", c.prefer)
				}
				if c.ends > 0 {
					time.AfterFunc(c.ends, w.jobs.end)
				}
				a, took := w.timed(r)
				if a.StatusCode != c.status || took != c.after || a.Header.Get("Preference-Applied") != c.applied {
					t.Errorf("status %d after %v, applied %q: %s", a.StatusCode, took, a.Header.Get("Preference-Applied"), a.body)
				}
				switch c.status {
				case 200:
					if job, err := wire.Decode[wire.Job](a.body); err != nil || job.Status != wire.StatusCompleted || !job.ArchivesQueried {
						t.Errorf("job: %v: %s", err, a.body)
					}
				case 202:
					if got, err := wire.Decode[wire.Accepted](a.body); err != nil || a.Header.Get("Location") != got.StatusURL || a.Header.Get("Retry-After") != "1" {
						t.Errorf("accepted: %v, %v: %s", err, a.Header, a.body)
					}
				}
			})
		})
	}
}

// Includes of the request count for its own answer.
func TestWaitHonoursIncludeAttachedOfTheRequest(t *testing.T) {
	w := newWorld(t)
	w.jobs.ended = true
	for body, want := range map[string]bool{`{"data":"x"}`: false, `{"data":"x","includeAttached":true}`: true} {
		a := w.do(w.request("POST", "/zapier/v1/timestamp/wait", body, "x-api-key", w.allKey(acme), "Content-Type", jsonType))
		job, err := wire.Decode[wire.Job](a.body)
		if err != nil || job.ArchivesQueried != want {
			t.Errorf("%s: %v: %s", body, err, a.body)
		}
	}
}

// Work of 55 s, with the client's repetition, is two 202s before 26 s each, and
// never an error (case WH-09).
func TestLongWorkIsNeverATimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		key := w.allKey(acme)
		time.AfterFunc(55*time.Second, w.jobs.end)
		var job string
		for range 2 {
			a, took := w.timed(w.request("POST", "/zapier/v1/timestamp/wait", simpleBody, "x-api-key", key, "Content-Type", jsonType, "Idempotency-Key", "k"))
			if a.StatusCode != 202 || took >= 26*time.Second {
				t.Fatalf("status %d after %v", a.StatusCode, took)
			}
			job = a.Header.Get("Location")
		}
		for status, want := range map[string]int{"": 200, "missing": 404} {
			path := strings.Replace(job, "?", "/wait?", 1)
			if status == "missing" {
				path = "/zapier/v1/timestamp/" + string(fakeJobID) + "/wait?submission=01890a5d-ac96-774b-bcce-b302099a8058"
			}
			if a := w.do(w.request("GET", path, "", "x-api-key", key)); a.StatusCode != want {
				t.Errorf("%s: status %d: %s", path, a.StatusCode, a.body)
			}
		}
	})
}

// A job that ended in time but can not be put together in time is a 202 too.
func TestSlowAssemblyIsNotWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.jobs.assemble = 10 * time.Second
		time.AfterFunc(24*time.Second, w.jobs.end)
		a, took := w.timed(w.request("POST", "/zapier/v1/timestamp/wait", simpleBody, "x-api-key", w.allKey(acme), "Content-Type", jsonType))
		if a.StatusCode != 202 || took != 26*time.Second {
			t.Errorf("status %d after %v", a.StatusCode, took)
		}
	})
}

// A slow upload uses up the wait: what counts is when the client began.
func TestWaitIsCountedFromTheRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.uploads.gate = make(chan struct{})
		time.AfterFunc(20*time.Second, func() { close(w.uploads.gate) })
		body := form(`name="files"; filename="a"`, "hello")
		a, took := w.timed(w.request("POST", "/zapier/v1/timestamp/wait", body, "x-api-key", w.allKey(acme), "Content-Type", multiType))
		if a.StatusCode != 202 || took != 25*time.Second {
			t.Errorf("status %d after %v: %s", a.StatusCode, took, a.body)
		}
	})
}

// An accepted submission is never answered with an error, whatever keeps its
// job from being shown.
func TestAcceptedStandsWhenTheJobCanNotBeShown(t *testing.T) {
	w := newWorld(t)
	w.jobs.ended = true
	w.jobs.jobErr = errors.New("the disk is on fire")
	a := w.do(w.request("POST", "/zapier/v1/timestamp/wait", simpleBody, "x-api-key", w.allKey(acme), "Content-Type", jsonType))
	if a.StatusCode != 202 || strings.Contains(string(a.body), "fire") {
		t.Errorf("status %d: %s", a.StatusCode, a.body)
	}
	if !strings.Contains(w.log.String(), "on fire") {
		t.Errorf("nobody hears of the fire: %s", w.log)
	}
}

// A client that leaves ends its wait at once.
func TestLeavingClientEndsItsWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		key := w.allKey(acme)
		for _, r := range []*http.Request{
			w.request("POST", "/zapier/v1/timestamp/wait", simpleBody, "x-api-key", key, "Content-Type", jsonType),
			w.request("GET", "/zapier/v1/timestamp/"+string(fakeJobID)+"/wait", "", "x-api-key", key),
		} {
			ctx, leave := context.WithCancel(t.Context())
			time.AfterFunc(3*time.Second, leave)
			start := time.Now()
			if _, err := w.client.Do(r.WithContext(ctx)); !errors.Is(err, context.Canceled) {
				t.Fatalf("%s: %v", r.URL, err)
			}
			synctest.Wait()
			if n, took := w.jobs.waiting(), time.Since(start); n != 0 || took != 3*time.Second {
				t.Errorf("%d waits left after %v", n, took)
			}
		}
		if strings.Contains(w.log.String(), `"level":"ERROR"`) || !strings.Contains(w.log.String(), `"gone":true`) {
			t.Errorf("log: %s", w.log)
		}
	})
}

// Draining ends waits with their 202 and turns /readyz, but nothing else.
func TestDrainEndsWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		key := w.allKey(acme)
		time.AfterFunc(7*time.Second, w.server.Drain)
		a, took := w.timed(w.request("POST", "/zapier/v1/timestamp/wait", simpleBody, "x-api-key", key, "Content-Type", jsonType))
		if a.StatusCode != 202 || took != 7*time.Second {
			t.Errorf("status %d after %v", a.StatusCode, took)
		}
		if a := w.do(w.request("GET", "/readyz", "")); a.StatusCode != 503 {
			t.Errorf("/readyz: status %d: %s", a.StatusCode, a.body)
		}
		if a := w.do(w.request("GET", "/livez", "")); a.StatusCode != 200 {
			t.Errorf("/livez: status %d", a.StatusCode)
		}
		if a := w.do(w.request("POST", "/zapier/v1/timestamp", simpleBody, "x-api-key", key, "Content-Type", jsonType)); a.StatusCode != 202 {
			t.Errorf("a submission during the drain: status %d", a.StatusCode)
		}
	})
}

func TestJobIsShownAsItIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		key := w.allKey(acme)
		location := w.do(w.request("POST", "/zapier/v1/timestamp", simpleBody, "x-api-key", key, "Content-Type", jsonType)).Header.Get("Location")

		a, took := w.timed(w.request("GET", location, "", "x-api-key", key))
		if job, err := wire.Decode[wire.Job](a.body); err != nil || a.StatusCode != 200 || took != 0 || job.Status != wire.StatusPending || a.Header.Get("Retry-After") != "1" {
			t.Errorf("pending: status %d after %v, %v: %s", a.StatusCode, took, a.Header, a.body)
		}
		a, took = w.timed(w.request("GET", strings.Replace(location, "?", "/wait?includeAttached=true&", 1), "", "x-api-key", key))
		if job, err := wire.Decode[wire.Job](a.body); err != nil || a.StatusCode != 202 || took != 25*time.Second || job.Status != wire.StatusPending ||
			a.Header.Get("Location") != location+"&includeAttached=true" {
			t.Errorf("waited in vain: status %d after %v, %v: %s", a.StatusCode, took, a.Header, a.body)
		}
		time.AfterFunc(time.Second, w.jobs.end)
		a, took = w.timed(w.request("GET", "/zapier/v1/timestamp/"+string(fakeJobID), "", "x-api-key", key, "Prefer", "wait=5"))
		if job, err := wire.Decode[wire.Job](a.body); err != nil || a.StatusCode != 200 || took != time.Second || job.Status != wire.StatusCompleted {
			t.Errorf("waited: status %d after %v: %s", a.StatusCode, took, a.body)
		}
		tag := a.Header.Get("ETag")
		if tag == "" || a.Header.Get("Cache-Control") != "private, no-cache" {
			t.Errorf("headers of a completed job: %v", a.Header)
		}
		a = w.do(w.request("GET", location, "", "x-api-key", key, "If-None-Match", `"x", W/`+tag))
		if a.StatusCode != 304 || len(a.body) != 0 || a.Header.Get("ETag") != tag {
			t.Errorf("unchanged job: status %d, %v", a.StatusCode, a.Header)
		}
		a = w.do(w.request("HEAD", location, "", "x-api-key", key))
		if a.StatusCode != 200 || len(a.body) != 0 || a.ContentLength <= 0 || a.Header.Get("ETag") != tag {
			t.Errorf("HEAD: status %d, %v", a.StatusCode, a.Header)
		}
	})
}

// The view that was asked for reaches package jobs.
func TestViewOfAJob(t *testing.T) {
	w := newWorld(t)
	w.jobs.ended = true
	key := w.allKey(acme)
	id := w.do(w.request("POST", "/zapier/v1/timestamp", simpleBody, "x-api-key", key, "Content-Type", jsonType)).Header.Get("Location")
	_, submission, _ := strings.Cut(id, "=")
	for query, want := range map[string]jobs.View{
		"":                          {},
		"?includeAttached=false":    {IncludeAttached: new(false)},
		"?includeAttached=1&z=1":    {IncludeAttached: new(true)},
		"?submission=" + submission: {SubmissionID: wire.SubmissionID(submission)},
	} {
		w.jobs.views = nil
		if a := w.do(w.request("GET", "/zapier/v1/timestamp/"+string(fakeJobID)+query, "", "x-api-key", key)); a.StatusCode != 200 {
			t.Fatalf("%s: status %d: %s", query, a.StatusCode, a.body)
		}
		got := w.jobs.views[0]
		if got.SubmissionID != want.SubmissionID || (got.IncludeAttached == nil) != (want.IncludeAttached == nil) ||
			got.IncludeAttached != nil && *got.IncludeAttached != *want.IncludeAttached {
			t.Errorf("%s: view %+v", query, got)
		}
	}
}

// A failed job is shown as it is; it is no error of the request.
func TestErrorsOfJobsBecomeProblems(t *testing.T) {
	w := newWorld(t)
	w.jobs.jobErr = fault.New(fault.NotFound, "JOB_NOT_FOUND", "jobId: there is no such job for this key's tenant")
	key := w.allKey(acme)
	for _, path := range []string{"/zapier/v1/timestamp/" + string(fakeJobID), "/zapier/v1/timestamp/" + string(fakeJobID) + "/wait"} {
		if p := w.do(w.request("GET", path, "", "x-api-key", key)).problem(t); p.Status != 404 || p.Code != "JOB_NOT_FOUND" {
			t.Errorf("%s: %d %s", path, p.Status, p.Code)
		}
	}
}

// A deadline of the body's must not end a wait that comes after the body: to
// net/http it would look as if the client had left.
func TestBodyDeadlineDoesNotEndTheWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const wait = 5 * time.Minute
		w := newWorld(t, func(c *Config) { c.WaitJob = wait })
		key := w.allKey(acme)
		for contentType, body := range map[string]string{jsonType: simpleBody, multiType: form(`name="files"; filename="a"`, "hello")} {
			for _, length := range []int64{int64(len(body)), -1} { // -1: in chunks
				r := w.request("POST", "/zapier/v1/timestamp/wait", body, "x-api-key", key, "Content-Type", contentType)
				r.ContentLength = length
				if a, took := w.timed(r); a.StatusCode != 202 || took != wait {
					t.Errorf("%s, length %d: status %d after %v: %s", contentType, length, a.StatusCode, took, a.body)
				}
			}
		}
	})
}
