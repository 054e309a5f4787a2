package archive

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/verae/archive/blob"
	"github.com/verae/archive/internal/pebblex"
	"github.com/verae/archive/wire"
)

// BenchmarkCheck checks an archive on disk, in turns with a sequential read of
// the same files, both past what the system keeps of them in memory: "x-read" is
// the ratio of the two rates, the limit is 0.5 for what archives mostly hold,
// files. Records of 0.5 KiB alone show what a record costs.
func BenchmarkCheck(b *testing.B) {
	for _, mix := range []struct {
		name            string
		records, files  int
		fileSize, limit float64
	}{
		{"files-of-4MiB", 500, 100, 4 << 20, 0.5},
		{"files-of-256KiB", 4000, 1000, 256 << 10, 0.5},
		{"records-only", 200_000, 0, 0, 0},
	} {
		b.Run(mix.name, func(b *testing.B) {
			n, blobs, dir := benchArchive(b, mix.records, mix.files, int(mix.fileSize))
			var took, read time.Duration
			var bytes int64
			b.ResetTimer()
			for range b.N {
				b.StopTimer()
				began := time.Now()
				bytes = readAllOf(b, dir)
				read += time.Since(began)
				b.StartTimer()
				began = time.Now()
				r, err := n.CheckWith(context.Background(), CheckOptions{Blobs: blobs})
				took += time.Since(began)
				if err != nil || r.Found > 0 || r.Records != uint64(mix.records+mix.files) || r.Files != uint64(mix.files) {
					b.Fatalf("%v %+v", err, r)
				}
			}
			b.StopTimer()
			mustClose(b, n)
			if err := blobs.Close(); err != nil {
				b.Fatal(err)
			}
			rate := func(d time.Duration) float64 { return float64(bytes) * float64(b.N) / d.Seconds() / 1e6 }
			b.ReportMetric(rate(took), "check-MB/s")
			b.ReportMetric(rate(read), "read-MB/s")
			b.ReportMetric(read.Seconds()/took.Seconds(), "x-read")
			if mix.limit > 0 {
				b.ReportMetric(mix.limit, "x-read-limit")
			}
			b.ReportMetric(float64(b.N*(mix.records+mix.files))/took.Seconds(), "records/s")
		})
	}
}

func benchArchive(b *testing.B, records, files, size int) (*Node, *blob.Store, string) {
	b.Helper()
	dir := b.TempDir()
	blobs, err := blob.OpenStore(blob.StoreConfig{Dir: filepath.Join(dir, "files"), Create: true, DiskReserve: 1})
	if err != nil {
		b.Fatal(err)
	}
	c := Config{Dir: filepath.Join(dir, "records"), ID: "archive-a", Files: blobs}
	mustInit(b, c)
	n := mustOpen(b, c)
	spread(b, 256, 0, records, func(i uint64) error {
		_, err := n.Put(context.Background(), wire.Put{PutID: wire.NewPutID(), Record: benchRecord(i)})
		return err
	})
	data := make([]byte, size)
	for i := range files {
		rand.Read(data)
		h := blob.NewHasher(blob.Default)
		if _, err := h.Write(data); err != nil {
			b.Fatal(err)
		}
		sums := h.Sum()
		id := fmt.Sprint("u", i)
		if err := blobs.Open(id, blob.Default); err != nil {
			b.Fatal(err)
		}
		for off := 0; off < size; off += wire.FragmentSize {
			if _, err := blobs.Write(id, int64(off), data[off:min(off+wire.FragmentSize, size)]); err != nil {
				b.Fatal(err)
			}
		}
		if _, err := blobs.Commit(b.Context(), id, sums.Size, sums.SHA256, sums.CID); err != nil {
			b.Fatal(err)
		}
		r := benchRecord(uint64(records + i))
		r.Kind, r.Body, r.File = wire.KindFile, nil, &wire.File{Size: sums.Size, SHA256: sums.SHA256, CID: sums.CID}
		mustPut(b, n, r)
	}
	// Nothing is left in the log, where a check has no business, and no compaction
	// is under way.
	if err := n.db.Flush(); err != nil {
		b.Fatal(err)
	}
	if err := n.db.Compact(b.Context(), []byte{0}, []byte{0xff}, true); err != nil {
		b.Fatal(err)
	}
	return n, blobs, dir
}

// readAllOf reads every file that a check reads, from the disk, and returns how
// many bytes they have.
func readAllOf(b *testing.B, dir string) (sum int64) {
	b.Helper()
	buf := make([]byte, 1<<20)
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // a table that a compaction replaced
		}
		if err != nil || d.IsDir() || strings.HasSuffix(path, ".log") {
			return err
		}
		f, err := vfs.Default.Open(path, vfs.SequentialReadsOption)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		pebblex.Forget(f)
		n, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{f}, buf)
		sum += n
		return errors.Join(err, f.Close())
	})
	if err != nil {
		b.Fatal(err)
	}
	return sum
}
