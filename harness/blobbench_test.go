package main

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/verae/archive/blob"
	"github.com/verae/archive/client"
	"github.com/verae/archive/harness/world"
	"github.com/verae/archive/wire"
)

// The benchmarks of files run in turns what is compared: the limit, which is what
// this machine does without us, ourselves, and a Kubo, if KUBO_URL names its RPC.
// They print the median of each, how many times the limit it is, and how many
// times ours Kubo's is.

// contender does the same as the others of its benchmark. do returns what is to
// be counted: its own time, without preparations.
type contender struct {
	name string
	do   func(turn int) time.Duration
}

// inTurns runs the contenders b.N times in turns, and returns their medians. The
// first is the limit, the second ourselves.
func inTurns(b *testing.B, contenders ...contender) []time.Duration {
	b.Helper()
	took := make([][]time.Duration, len(contenders))
	for turn := range b.N {
		for i := range contenders {
			at := (turn + i) % len(contenders) // nobody is always the first after somebody else
			took[at] = append(took[at], contenders[at].do(turn))
		}
	}
	medians := make([]time.Duration, len(contenders))
	for i := range took {
		medians[i] = quantile(took[i], 0.5)
	}
	limit, ours := medians[0], medians[1]
	for i, c := range contenders {
		median := medians[i]
		b.ReportMetric(float64(median.Nanoseconds())/1e3, c.name+"-us")
		if i > 0 {
			b.ReportMetric(float64(median)/float64(limit), c.name+"/limit")
		}
		if i > 1 {
			b.ReportMetric(float64(median)/float64(ours), c.name+"/verae")
		}
	}
	b.ReportMetric(0, "ns/op") // of all of them together: it says nothing
	return medians
}

// blobWorld is a system for many uploads at a time, and the Kubo, if there is one.
type blobWorld struct {
	*world.World
	http *http.Client
	kubo *client.Client // nil: none
}

func startBlobWorld(b *testing.B) blobWorld {
	b.Helper()
	w, err := world.Start(b.Context(), world.Config{Dir: b.TempDir(), Env: []string{"NATS_URL=", "MAX_UPLOADS_PER_KEY=64", "MAX_REQUESTS_PER_KEY=128"}})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { stopWorld(b, w) })
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConns, transport.MaxIdleConnsPerHost = 0, 128
	b.Cleanup(transport.CloseIdleConnections)
	out := blobWorld{World: w, http: &http.Client{Transport: transport}}
	if url := os.Getenv("KUBO_URL"); url != "" {
		out.kubo = &client.Client{URL: url, HTTP: out.http}
	}
	return out
}

func (w blobWorld) client(tenant wire.TenantID) *client.Client {
	c := w.Client(tenant)
	c.HTTP = w.http
	return c
}

// withKubo adds a contender if there is a Kubo.
func (w blobWorld) withKubo(all []contender, do func(c *client.Client, turn int) time.Duration) []contender {
	if w.kubo == nil {
		return all
	}
	return append(all, contender{"kubo", func(turn int) time.Duration { return do(w.kubo, turn) }})
}

var filesMade atomic.Int64

// fresh is a file that nobody has.
func fresh(size int) nodeFile {
	return nodeFile{fmt.Sprint(time.Now().UnixNano(), " ", filesMade.Add(1)), size, blob.Default.ChunkSize, blob.Default.MaxLinks}
}

func add(b *testing.B, c *client.Client, f nodeFile) string {
	added, err := c.Add(b.Context(), client.File{
		Name: "file", Open: func() (io.ReadCloser, error) { return io.NopCloser(f.bytes(b)), nil },
	}, client.AddOptions{ChunkSize: f.ChunkSize, MaxLinks: f.MaxLinks})
	if err != nil {
		b.Error(err)
	}
	return added.CID
}

func timed(do func()) time.Duration {
	begin := time.Now()
	do()
	return time.Since(begin)
}

// keep is the limit of an upload: the bytes, their SHA-256, and their fsync.
func keep(b *testing.B, dir string, f nodeFile) {
	file, err := os.CreateTemp(dir, "kept")
	if err != nil {
		b.Error(err)
		return
	}
	_, err = io.CopyBuffer(struct{ io.Writer }{io.MultiWriter(file, sha256.New())}, f.bytes(b), make([]byte, 256<<10))
	if err := errors.Join(err, file.Sync(), file.Close()); err != nil {
		b.Error(err)
	}
}

// BenchmarkBlobAdd adds new files, one after the other.
func BenchmarkBlobAdd(b *testing.B) {
	w := startBlobWorld(b)
	dir := b.TempDir()
	for _, size := range []int{1 << 10, 1 << 20, 100 << 20} {
		b.Run(fmt.Sprintf("KiB=%d", size>>10), func(b *testing.B) {
			of := func(c *client.Client, _ int) time.Duration {
				f := fresh(size)
				return timed(func() { add(b, c, f) })
			}
			ours := w.client("acme")
			inTurns(b, w.withKubo([]contender{
				{"limit", func(int) time.Duration {
					f := fresh(size)
					return timed(func() { keep(b, dir, f) })
				}},
				{"verae", func(turn int) time.Duration { return of(ours, turn) }},
			}, of)...)
		})
	}
}

// filesATurn is how many small files each contender adds before the next one does.
const filesATurn = 256

// BenchmarkBlobSmallFiles adds files of 1 KiB from 1 client and from 64, and
// prints files per second. Beside them are records: the same clients attach 1 KiB
// of metadata to the digests of files.
func BenchmarkBlobSmallFiles(b *testing.B) {
	w := startBlobWorld(b)
	dir := b.TempDir()
	for _, clients := range []int{1, 64} {
		b.Run(fmt.Sprintf("clients=%d", clients), func(b *testing.B) {
			each := func(do func(client int)) func(int) time.Duration {
				return func(int) time.Duration {
					var next atomic.Int64
					var wg sync.WaitGroup
					return timed(func() {
						for i := range clients {
							wg.Go(func() {
								for next.Add(1) <= filesATurn {
									do(i)
								}
							})
						}
						wg.Wait()
					}) / filesATurn
				}
			}
			both := []*client.Client{w.client("acme"), w.client("globex")}
			note := fmt.Appendf(nil, `{"note":"%01000d"}`, 1)
			contenders := w.withKubo([]contender{
				{"limit", each(func(int) { keep(b, dir, fresh(1<<10)) })},
				{"verae", each(func(i int) { add(b, both[i%2], fresh(1<<10)) })},
				{"records", each(func(i int) {
					if _, err := both[i%2].Submit(b.Context(), client.Submission{SHA256: unique(), PublicMetadata: note}); err != nil {
						b.Error(err)
					}
				})},
			}, nil)
			if w.kubo != nil {
				contenders[3].do = each(func(int) { add(b, w.kubo, fresh(1<<10)) })
			}
			for i, median := range inTurns(b, contenders...) {
				b.ReportMetric(float64(time.Second)/float64(median), contenders[i].name+"/s")
			}
		})
	}
}

// get reads the answer to a request to its end, and returns how long it took.
func (w blobWorld) get(b *testing.B, want int64, method, url string, header ...string) time.Duration {
	return timed(func() {
		req, err := http.NewRequestWithContext(b.Context(), method, url, nil)
		if err != nil {
			b.Error(err)
			return
		}
		for i := 0; i < len(header); i += 2 {
			req.Header.Set(header[i], header[i+1])
		}
		resp, err := w.http.Do(req)
		if err != nil {
			b.Error(err)
			return
		}
		defer resp.Body.Close()
		if n, err := io.Copy(io.Discard, resp.Body); err != nil || n != want || resp.StatusCode > http.StatusPartialContent {
			b.Errorf("%s %s: %s, %d bytes, %v", method, url, resp.Status, n, err)
		}
	})
}

// BenchmarkBlobGet reads whole files of 1 and 100 MiB, and random ranges of 64 KiB
// of one of 200 MiB. The limit is the file server of net/http, which leaves the
// bytes to the kernel and checks nothing.
func BenchmarkBlobGet(b *testing.B) {
	w := startBlobWorld(b)
	dir := b.TempDir()
	plain := httptest.NewServer(http.FileServer(http.Dir(dir)))
	b.Cleanup(plain.Close)
	const piece = 64 << 10
	for _, tc := range []struct {
		name string
		size int
		part bool
	}{{"whole/MiB=1", 1 << 20, false}, {"whole/MiB=100", 100 << 20, false}, {"range/MiB=200", 200 << 20, true}} {
		b.Run(tc.name, func(b *testing.B) {
			f := fresh(tc.size)
			stored(b, filepath.Join(dir, "file"), f)
			cid := add(b, w.client("acme"), f)
			begin, length := make([]int, b.N), tc.size
			if tc.part {
				length = piece
				for i := range begin {
					begin[i] = rand.IntN(tc.size - piece)
				}
			}
			of := func(url string, turn int) time.Duration {
				header := []string{"X-Api-Key", w.Ready().APIKeys["acme"]}
				if tc.part {
					header = append(header, "Range", fmt.Sprintf("bytes=%d-%d", begin[turn], begin[turn]+piece-1))
				}
				return w.get(b, int64(length), http.MethodGet, url, header...)
			}
			contenders := []contender{
				{"limit", func(turn int) time.Duration { return of(plain.URL+"/file", turn) }},
				{"verae", func(turn int) time.Duration { return of(w.Ready().HTTPURL+"/ipfs/"+cid, turn) }},
			}
			if w.kubo != nil {
				if theirs := add(b, w.kubo, f); theirs != cid {
					b.Fatalf("Kubo says %s, and we say %s", theirs, cid)
				}
			}
			contenders = w.withKubo(contenders, func(c *client.Client, turn int) time.Duration {
				return w.get(b, int64(length), http.MethodPost, fmt.Sprintf("%s/api/v0/cat?arg=%s&offset=%d&length=%d", c.URL, cid, begin[turn], length))
			})
			inTurns(b, contenders...)
		})
	}
}

func stored(b *testing.B, path string, f nodeFile) {
	b.Helper()
	file, err := os.Create(path)
	if err != nil {
		b.Fatal(err)
	}
	_, err = io.Copy(file, f.bytes(b))
	if err := errors.Join(err, file.Close()); err != nil {
		b.Fatal(err)
	}
}
