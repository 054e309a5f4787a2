package splitter

import (
	"bytes"
	"crypto/sha256"
	"io"
	"testing"
	"time"

	"github.com/verae/archive/blob"
)

const benchSize = 64 << 20

// BenchmarkReadMultipart streams a file of 64 MiB. The limit is the hasher,
// which computes SHA-256, SHA-1 and the CID; bare SHA-256 over the same bytes is
// shown beside it. ratio-hasher and ratio-sha256 are time taken over the limit's.
func BenchmarkReadMultipart(b *testing.B) {
	whole, err := io.ReadAll(streamed(benchSize))
	if err != nil {
		b.Fatal(err)
	}
	perRun := func(f func()) time.Duration {
		best := time.Duration(1<<63 - 1)
		for range 3 {
			start := time.Now()
			f()
			best = min(best, time.Since(start))
		}
		return best
	}
	bare := perRun(func() { sha256.Sum256(whole) })
	hasher := perRun(func() {
		h := blob.NewHasher(blob.Default)
		for p := whole; len(p) > 0; p = p[min(len(p), 256<<10):] {
			if _, err := h.Write(p[:min(len(p), 256<<10)]); err != nil {
				b.Fatal(err)
			}
		}
		h.Sum()
	})
	b.SetBytes(benchSize)
	b.ReportAllocs()
	for b.Loop() {
		c := new(counting)
		if _, err := ReadMultipart(b.Context(), bytes.NewReader(whole), formType, Config{Uploader: c, SubmissionID: theSubmission}); err != nil {
			b.Fatal(err)
		}
	}
	own := b.Elapsed() / time.Duration(b.N)
	b.ReportMetric(float64(own)/float64(bare), "ratio-sha256")
	b.ReportMetric(float64(own)/float64(hasher), "ratio-hasher")
	b.ReportMetric(benchSize/bare.Seconds()/1e6, "sha256-MB/s")
}

// BenchmarkFramer is the cost of finding the structure alone, by this package's
// framer under mime/multipart.
func BenchmarkFramer(b *testing.B) {
	whole, err := io.ReadAll(streamed(benchSize))
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(benchSize)
	for b.Loop() {
		f := newFramer(bytes.NewReader(whole), boundary, 1<<10)
		for buf := make([]byte, 4096); ; {
			if _, err := f.Read(buf); err == io.EOF {
				break
			} else if err != nil {
				b.Fatal(err)
			}
		}
	}
}

// BenchmarkReadSmallForm reads a form of a digest and metadata, as most are.
func BenchmarkReadSmallForm(b *testing.B) {
	whole := []byte(body(value("sha256", digestOf("x").String()), value("publicMetadata", `{"title":"a contract","pages":12}`), value("includeAttached", "true")))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := ReadMultipart(b.Context(), bytes.NewReader(whole), formType, Config{SubmissionID: theSubmission}); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkReadJSON reads the same request as JSON.
func BenchmarkReadJSON(b *testing.B) {
	whole := []byte(`{"sha256":"` + digestOf("x").String() + `","publicMetadata":{"title":"a contract","pages":12},"includeAttached":true}`)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := ReadJSON(b.Context(), bytes.NewReader(whole), Config{SubmissionID: theSubmission}); err != nil {
			b.Fatal(err)
		}
	}
}
