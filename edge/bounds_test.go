package edge

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/verae/archive/internal/fault"
)

// One key may have so many requests under way and not one more; what another
// key does is none of its business.
func TestRequestsInFlightAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		busy, idle := w.allKey(acme), w.allKey(acme)
		most := w.server.Limits.InFlight
		var wg sync.WaitGroup
		for range most {
			wg.Go(func() {
				r := w.request("POST", "/zapier/v1/timestamp/wait", simpleBody, "x-api-key", busy, "Content-Type", jsonType)
				if a := w.do(r); a.StatusCode != 200 {
					t.Errorf("status %d: %s", a.StatusCode, a.body)
				}
			})
		}
		synctest.Wait()
		if n := w.jobs.waiting(); n != most {
			t.Fatalf("%d wait", n)
		}
		if got := w.server.metricsOf(t, "verae_edge_in_flight_requests"); got != float64(most) {
			t.Errorf("%v in flight", got)
		}
		a := w.do(w.request("GET", "/zapier/v1/me", "", "x-api-key", busy))
		if p := a.problem(t); p.Status != 429 || p.Code != codeTooManyRequests || a.Header.Get("Retry-After") != "1" {
			t.Errorf("%d %s, Retry-After %q", p.Status, p.Code, a.Header.Get("Retry-After"))
		}
		if a := w.do(w.request("GET", "/zapier/v1/me", "", "x-api-key", idle)); a.StatusCode != 200 {
			t.Errorf("another key: status %d", a.StatusCode)
		}
		w.jobs.end()
		wg.Wait()
		if a := w.do(w.request("GET", "/zapier/v1/me", "", "x-api-key", busy)); a.StatusCode != 200 {
			t.Errorf("after the others: status %d", a.StatusCode)
		}
	})
}

// So many uploads and not one more; requests without a file go on.
func TestUploadsAreBounded(t *testing.T) {
	large := `{"data":"` + strings.Repeat("x", int(DefaultLimits().LargeBody)) + `"}`
	file := form(`name="files"; filename="a"`, "hello")
	for name, c := range map[string]struct{ contentType, body string }{
		"file":       {multiType, file},
		"large json": {jsonType, large},
		"large data": {multiType, form(`name="data"`, strings.Repeat("x", int(DefaultLimits().LargeBody)+1))},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.uploads.gate = make(chan struct{})
				key := w.allKey(acme)
				most := w.server.Limits.Uploads
				var wg sync.WaitGroup
				for range most {
					wg.Go(func() {
						if a := w.do(w.request("POST", "/zapier/v1/timestamp", file, "x-api-key", key, "Content-Type", multiType)); a.StatusCode != 202 {
							t.Errorf("status %d: %s", a.StatusCode, a.body)
						}
					})
				}
				synctest.Wait()
				if got := w.server.metricsOf(t, "verae_edge_open_uploads"); got != float64(most) {
					t.Fatalf("%v uploads under way", got)
				}
				a := w.do(w.request("POST", "/zapier/v1/timestamp", c.body, "x-api-key", key, "Content-Type", c.contentType))
				if p := a.problem(t); p.Status != 429 || p.Code != codeTooManyUploads || a.Header.Get("Retry-After") != "1" {
					t.Errorf("%d %s, Retry-After %q", p.Status, p.Code, a.Header.Get("Retry-After"))
				}
				if n := w.uploads.open(); n != most {
					t.Errorf("%d uploads open, want %d", n, most)
				}
				if a := w.do(w.request("POST", "/zapier/v1/timestamp", form(`name="data"`, "small"), "x-api-key", key, "Content-Type", multiType)); a.StatusCode != 202 {
					t.Errorf("without a file: status %d", a.StatusCode)
				}
				close(w.uploads.gate)
				wg.Wait()
				if a := w.do(w.request("POST", "/zapier/v1/timestamp", c.body, "x-api-key", key, "Content-Type", c.contentType)); a.StatusCode != 202 {
					t.Errorf("after the others: status %d: %s", a.StatusCode, a.body)
				}
			})
		})
	}
}

// A request that waits for its job does not hold its upload slot.
func TestWaitHoldsNoUploadSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		key := w.allKey(acme)
		var wg sync.WaitGroup
		for range 2 * w.server.Limits.Uploads {
			wg.Go(func() {
				r := w.request("POST", "/zapier/v1/timestamp/wait", form(`name="files"; filename="a"`, "hello"), "x-api-key", key, "Content-Type", multiType)
				if a := w.do(r); a.StatusCode != 200 {
					t.Errorf("status %d: %s", a.StatusCode, a.body)
				}
			})
			synctest.Wait()
		}
		w.jobs.end()
		wg.Wait()
	})
}

// A sender that vanishes in the middle frees all it held, and its upload.
func TestVanishedSenderLeavesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		key := w.allKey(acme)
		part := "--cut\r\nContent-Disposition: form-data; name=\"files\"; filename=\"a\"\r\n\r\n"
		content := strings.Repeat("x", 600<<10)
		for range 3 * w.server.Limits.Uploads {
			conn := w.dial()
			say(t, conn, postHead+"Content-Length: %d\r\n\r\n%s", key, multiType, 1<<20, part+content)
			synctest.Wait()
			if n := w.uploads.open(); n != 1 {
				t.Fatalf("%d uploads open while sending", n)
			}
			conn.Close()
			synctest.Wait()
			w.checkNothingOpen()
		}
		if n := len(w.jobs.acceptances()); n != 0 {
			t.Errorf("%d submissions accepted", n)
		}
	})
}

// Letting go twice of one request does not let go of another.
func TestLeavingTwiceCountsOnce(t *testing.T) {
	b := &bounds{inFlight: 2, uploads: 2}
	for _, take := range []func(string) (func(), error){b.enter, b.openUpload} {
		first, err := take("key")
		if err != nil {
			t.Fatal(err)
		}
		second, err := take("key")
		if err != nil {
			t.Fatal(err)
		}
		first()
		first()
		third, err := take("key")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := take("key"); err == nil {
			t.Error("one more than the limit was let in")
		}
		second()
		third()
		if len(b.loads) != 0 {
			t.Error("an idle key is remembered")
		}
	}
}

// Counting is exact under any interleaving, and forgets keys that do nothing.
func TestBoundsCountExactly(t *testing.T) {
	b := &bounds{inFlight: 8, uploads: 3}
	var mu sync.Mutex
	under, worst := 0, 0
	var wg sync.WaitGroup
	for i := range 64 {
		wg.Go(func() {
			for range 200 {
				leave, err := b.enter(fmt.Sprint("key", i%2))
				if err != nil {
					if fault.CodeOf(err) != codeTooManyRequests || fault.RetryAfter(err) != time.Second {
						t.Error(err)
					}
					continue
				}
				mu.Lock()
				under++
				worst = max(worst, under)
				mu.Unlock()
				mu.Lock()
				under--
				mu.Unlock()
				leave()
				leave() // a second call is nothing
			}
		})
	}
	wg.Wait()
	if worst > 16 || len(b.loads) != 0 {
		t.Errorf("%d under way at once; %d keys remembered", worst, len(b.loads))
	}
}

// A pipelined second request is answered after the first, whole.
func TestPipelinedRequestsAreAnsweredInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		key := w.allKey(acme)
		conn := w.dial()
		defer conn.Close()
		body := `{"data":"hello"}`
		go io.WriteString(conn, fmt.Sprintf(postHead+"Content-Length: %d\r\n\r\n%s", key, jsonType, len(body), body)+"GET /livez HTTP/1.1\r\nHost: edge\r\n\r\n")
		in := bufio.NewReader(conn)
		if a := hear(t, in, "POST"); a == nil || a.StatusCode != 202 {
			t.Fatalf("first: %+v", a)
		}
		if a := hear(t, in, "GET"); a == nil || a.StatusCode != 200 {
			t.Fatalf("second: %+v", a)
		}
	})
}

// Over a real connection a sender of a large file sees why he was refused,
// although he was not done speaking.
func TestRefusedUploadSeesTheAnswer(t *testing.T) {
	w := newWorld(t)
	w.uploads.gate = make(chan struct{})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := w.server.HTTPServer("")
	var serving sync.WaitGroup
	serving.Go(func() {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	transport := &http.Transport{}
	client := &http.Client{Transport: transport}
	key := w.allKey(acme)
	send := func(size int) (answered, error) {
		r, err := http.NewRequestWithContext(t.Context(), "POST", "http://"+listener.Addr().String()+"/zapier/v1/timestamp",
			strings.NewReader(form(`name="files"; filename="a"`, strings.Repeat("x", size))))
		if err != nil {
			return answered{}, err
		}
		r.Header.Set("x-api-key", key)
		r.Header.Set("Content-Type", multiType)
		res, err := client.Do(r)
		if err != nil {
			return answered{}, err
		}
		return readAll(res)
	}
	var wg sync.WaitGroup
	for range w.server.Limits.Uploads {
		wg.Go(func() {
			if a, err := send(10); err != nil || a.StatusCode != 202 {
				t.Errorf("status %v: %v", a.Response, err)
			}
		})
	}
	for w.server.metricsOf(t, "verae_edge_open_uploads") < float64(w.server.Limits.Uploads) {
		runtime.Gosched()
	}
	a, err := send(32 << 20)
	if err != nil {
		t.Fatal(err)
	}
	if p := a.problem(t); p.Status != 429 {
		t.Errorf("%d %s", p.Status, p.Code)
	}
	close(w.uploads.gate)
	wg.Wait()
	transport.CloseIdleConnections()
	if err := server.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	serving.Wait()
}
