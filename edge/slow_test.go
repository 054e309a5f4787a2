package edge

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/verae/archive/jobs"
	"github.com/verae/archive/wire"
)

// dial opens a connection that the test speaks HTTP on by itself.
func (w *world) dial() net.Conn {
	w.t.Helper()
	c, err := w.listener.dial(w.t.Context(), "", "")
	if err != nil {
		w.t.Fatal(err)
	}
	return c
}

// say writes on a connection.
func say(t *testing.T, c net.Conn, format string, args ...any) {
	t.Helper()
	if _, err := fmt.Fprintf(c, format, args...); err != nil {
		t.Errorf("write: %v", err)
	}
}

// hear reads one answer from a connection. A nil response means that it was
// closed without one.
func hear(t *testing.T, in *bufio.Reader, method string) *answered {
	t.Helper()
	res, err := http.ReadResponse(in, &http.Request{Method: method})
	if err != nil {
		return nil
	}
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Errorf("read the answer: %v", err)
	}
	return &answered{res, body}
}

const postHead = "POST /zapier/v1/timestamp HTTP/1.1\r\nHost: edge\r\nx-api-key: %s\r\nContent-Type: %s\r\n"

// A sender that stops in the middle is answered 400 when its time has passed,
// wherever it stopped, and its upload is gone.
func TestStalledBodyIsRefusedInTime(t *testing.T) {
	part := "--cut\r\nContent-Disposition: form-data; name=\"files\"; filename=\"a\"\r\n\r\n"
	for name, c := range map[string]struct{ contentType, length, sent string }{
		"json by length":       {jsonType, "Content-Length: 100", `{"data":"x`},
		"json in chunks":       {jsonType, "Transfer-Encoding: chunked", "5\r\n{\"dat\r\n"},
		"nothing at all":       {jsonType, "Content-Length: 100", ""},
		"inside a file":        {multiType, "Content-Length: 500", part + "abc"},
		"inside part headers":  {multiType, "Content-Length: 500", part[:20]},
		"behind the delimiter": {multiType, "Content-Length: 500", part + "abc\r\n--cut\r\n"},
		"after the end":        {multiType, "Content-Length: 500", part + "abc\r\n--cut--\r\n"},
		"no last chunk":        {multiType, "Transfer-Encoding: chunked", fmt.Sprintf("%x\r\n%s\r\n", len(part)+14, part+"abc\r\n--cut--\r\n")},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				conn := w.dial()
				defer conn.Close()
				start := time.Now()
				say(t, conn, postHead+"%s\r\n\r\n%s", w.allKey(acme), c.contentType, c.length, c.sent)
				a := hear(t, bufio.NewReader(conn), "POST")
				if a == nil {
					t.Fatal("no answer")
				}
				if p := a.problem(t); p.Status != 400 || p.Code != "INCOMPLETE_BODY" {
					t.Errorf("%d %s: %s", p.Status, p.Code, p.Detail)
				}
				limits := DefaultLimits()
				if took := time.Since(start); took > limits.BodyIdle+limits.DrainTime {
					t.Errorf("answered after %v", took)
				}
				if n := len(w.jobs.acceptances()); n != 0 {
					t.Errorf("%d submissions accepted", n)
				}
			})
		})
	}
}

// The body of a GET means nothing, but has to arrive.
func TestStalledBodyOfAGetIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		conn := w.dial()
		defer conn.Close()
		say(t, conn, "GET /zapier/v1/me HTTP/1.1\r\nHost: edge\r\nx-api-key: %s\r\nContent-Length: 5\r\n\r\nab", w.allKey(acme))
		a := hear(t, bufio.NewReader(conn), "GET")
		if a == nil {
			t.Fatal("no answer")
		}
		if p := a.problem(t); p.Status != 400 || p.Code != "INCOMPLETE_BODY" {
			t.Errorf("%d %s: %s", p.Status, p.Code, p.Detail)
		}
	})
}

// A sender that trickles one byte a second never pauses, but is too slow; one
// that is just fast enough may take as long as it needs.
func TestTricklingBodyHasAnEnd(t *testing.T) {
	for _, c := range []struct {
		name   string
		size   int // of a piece, sent once a second
		pieces int
		ok     bool
	}{
		{"one byte a second", 1, 400, false},
		{"just fast enough", 8<<10 + 1, 400, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				conn := w.dial()
				defer conn.Close()
				key := w.allKey(acme)
				head := "--cut\r\nContent-Disposition: form-data; name=\"files\"; filename=\"a\"\r\n\r\n"
				tail := "\r\n--cut--\r\n"
				answer := make(chan *answered, 1)
				go func() { answer <- hear(t, bufio.NewReader(conn), "POST") }()
				start := time.Now()
				say(t, conn, postHead+"Content-Length: %d\r\n\r\n%s", key, multiType, len(head)+c.size*c.pieces+len(tail), head)
				piece := strings.Repeat("x", c.size)
				for range c.pieces {
					time.Sleep(time.Second)
					if _, err := io.WriteString(conn, piece); err != nil {
						break
					}
				}
				if c.ok {
					say(t, conn, "%s", tail)
				}
				a := <-answer
				if a == nil {
					t.Fatal("no answer")
				}
				if ok := a.StatusCode == 202; ok != c.ok {
					t.Errorf("status %d after %v: %s", a.StatusCode, time.Since(start), a.body)
				}
				if !c.ok && time.Since(start) > time.Duration(c.pieces)*time.Second+DefaultLimits().BodyIdle {
					t.Errorf("refused only after %v", time.Since(start))
				}
			})
		})
	}
}

// A refusal does not wait for a body that nobody reads.
func TestRefusalDoesNotWaitForTheBody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		conn := w.dial()
		defer conn.Close()
		start := time.Now()
		say(t, conn, postHead+"Content-Length: 1000\r\n\r\n{", "wrong", jsonType)
		a := hear(t, bufio.NewReader(conn), "POST")
		if a == nil || a.StatusCode != 401 {
			t.Fatalf("answer: %+v", a)
		}
		if took := time.Since(start); took > DefaultLimits().DrainTime {
			t.Errorf("answered after %v", took)
		}
	})
}

// The client is told to go on only when its key is good.
func TestContinueOnlyAfterAuthentication(t *testing.T) {
	for name, good := range map[string]bool{"good key": true, "wrong key": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				key := w.allKey(acme)
				if !good {
					key = strings.ToUpper(key)
				}
				conn := w.dial()
				defer conn.Close()
				in := bufio.NewReader(conn)
				say(t, conn, postHead+"Expect: 100-continue\r\nContent-Length: 16\r\n\r\n", key, jsonType)
				first := hear(t, in, "POST")
				if !good {
					if first == nil || first.StatusCode != 401 {
						t.Fatalf("answer: %+v", first)
					}
					return
				}
				if first == nil || first.StatusCode != 100 {
					t.Fatalf("answer: %+v", first)
				}
				say(t, conn, `{"data":"hello"}`)
				if a := hear(t, in, "POST"); a == nil || a.StatusCode != 202 {
					t.Fatalf("answer: %+v", a)
				}
			})
		})
	}
}

// A connection on which nothing is said, or half a header, is closed.
func TestSilentConnectionsAreClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		limits := DefaultLimits()
		for _, c := range []struct {
			said string
			most time.Duration
		}{
			{"", limits.HeaderTime},
			{"GET /livez HTTP/1.1\r\nHost", limits.HeaderTime},
			{"GET /livez HTTP/1.1\r\nHost: edge\r\n\r\n", limits.KeepAlive},
		} {
			conn := w.dial()
			say(t, conn, "%s", c.said)
			start := time.Now()
			if _, err := io.Copy(io.Discard, conn); err != nil {
				t.Errorf("%q: %v", c.said, err)
			}
			if took := time.Since(start); took != c.most {
				t.Errorf("%q: closed after %v, want %v", c.said, took, c.most)
			}
			conn.Close()
		}
	})
}

// A client that stops reading a download is let go; one that reads slowly is
// not.
func TestDownloadDeadlineMovesWithTheReader(t *testing.T) {
	for _, c := range []struct {
		name  string
		pause time.Duration // before each 64 KiB
		whole bool
	}{
		{"slow", 20 * time.Second, true},
		{"stuck", time.Hour, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				id, content := w.addFile(acme, strings.Repeat("0123456789abcdef", 64<<10)) // 1 MiB
				conn := w.dial()
				defer conn.Close()
				say(t, conn, "GET /zapier/v1/files/%s HTTP/1.1\r\nHost: edge\r\nx-api-key: %s\r\n\r\n", id, w.allKey(acme))
				res, err := http.ReadResponse(bufio.NewReaderSize(conn, 16), nil)
				if err != nil {
					t.Fatal(err)
				}
				got, buf := 0, make([]byte, writeChunk)
				for err == nil {
					time.Sleep(c.pause)
					var n int
					n, err = io.ReadFull(res.Body, buf)
					got += n
				}
				if whole := got == len(content); whole != c.whole {
					t.Errorf("got %d of %d bytes: %v", got, len(content), err)
				}
				if !c.whole {
					synctest.Wait()
					if n := w.store.open(); n != 0 {
						t.Errorf("%d readers are still open", n)
					}
					if log := w.log.String(); strings.Contains(log, `"level":"ERROR"`) || !strings.Contains(log, `"gone":true`) {
						t.Errorf("a client that left is no fault of ours: %s", log)
					}
				}
			})
		})
	}
}

// addFile gives a tenant a file and returns its id.
func (w *world) addFile(tenant wire.TenantID, content string, change ...func(*jobs.File)) (wire.RecordID, []byte) {
	f := jobs.File{ArchiveIDs: []wire.ArchiveID{"archive-a"}}
	f.ID = wire.RecordID(digestOf("id of " + content))
	f.SHA256 = digestOf(content)
	f.Size, f.Name, f.ContentType = int64(len(content)), "a.bin", "application/pdf"
	f.CID = "bafkreibm6jg3ux5qumhcn2b3flc3tyu6dmlb4xa7u5bf44yegnrjhc4yeq" // of "hello"; every file here has the same
	for _, change := range change {
		change(&f)
	}
	if w.store.files == nil {
		w.store.files = map[wire.RecordID]map[wire.TenantID]jobs.File{}
		w.store.content = map[string][]byte{}
	}
	w.store.files[f.ID] = map[wire.TenantID]jobs.File{tenant: f}
	w.store.content[f.CID] = []byte(content)
	return f.ID, []byte(content)
}
