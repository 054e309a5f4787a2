package blob

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
)

func diskStore(b *testing.B) *Store {
	return openStore(b, StoreConfig{Dir: filepath.Join(b.TempDir(), "blobs"), FS: vfs.Default, Create: true, DiskReserve: 1})
}

// unique makes the bytes of every round differ, or the store would have them.
func unique(data []byte, round int) { copy(data, fmt.Sprintf("%20d", round)) }

// BenchmarkUpload compares storing 64 MiB in fragments of 256 KiB, hashed,
// indexed and on disk when it returns, with its limit: SHA-256 beside plain
// writes and one fsync.
func BenchmarkUpload(b *testing.B) {
	const size, piece = 64 << 20, 256 << 10
	data := content(b, "bench", size)
	b.Run("limit=write+sha256+fsync", func(b *testing.B) {
		b.SetBytes(size)
		dir, round := b.TempDir(), 0
		for b.Loop() {
			round++
			unique(data, round)
			f, err := os.Create(filepath.Join(dir, fmt.Sprint(round)))
			if err != nil {
				b.Fatal(err)
			}
			h := sha256.New()
			for off := 0; off < size; off += piece {
				h.Write(data[off : off+piece])
				if _, err := f.Write(data[off : off+piece]); err != nil {
					b.Fatal(err)
				}
			}
			if err := f.Sync(); err != nil {
				b.Fatal(err)
			}
			if err := f.Close(); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("store", func(b *testing.B) {
		b.SetBytes(size)
		s, round := diskStore(b), 0
		for b.Loop() {
			round++
			b.StopTimer()
			unique(data, round)
			sums := sumsOf(b, data, Default)
			b.StartTimer()
			if err := s.Open("u", Default); err != nil {
				b.Fatal(err)
			}
			for off := 0; off < size; off += piece {
				if _, err := s.Write("u", int64(off), data[off:off+piece]); err != nil {
					b.Fatal(err)
				}
			}
			if _, err := s.Commit(b.Context(), "u", sums.Size, sums.SHA256, sums.CID); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkSmallUploads stores files of 4 KiB from many senders at once. The
// limit is one fsynced file each, from as many.
func BenchmarkSmallUploads(b *testing.B) {
	const senders = 64
	b.Run("limit=fsync", func(b *testing.B) {
		dir := b.TempDir()
		var n atomic.Int64
		b.SetParallelism(senders / 2)
		b.RunParallel(func(pb *testing.PB) {
			data := make([]byte, 4<<10)
			for pb.Next() {
				f, err := os.Create(filepath.Join(dir, fmt.Sprint(n.Add(1))))
				if err != nil {
					b.Error(err)
					return
				}
				_, err = f.Write(data)
				if err := join(err, f.Sync(), f.Close()); err != nil {
					b.Error(err)
				}
			}
		})
	})
	b.Run("store", func(b *testing.B) {
		s := diskStore(b)
		var n atomic.Int64
		b.SetParallelism(senders / 2)
		b.RunParallel(func(pb *testing.PB) {
			data := make([]byte, 4<<10)
			for pb.Next() {
				round := int(n.Add(1))
				unique(data, round)
				id, sum := fmt.Sprint(round), sha256.Sum256(data)
				err := s.Open(id, Default)
				_, err2 := s.Write(id, 0, data)
				_, err3 := s.Commit(b.Context(), id, int64(len(data)), sum, CID{sum, true}.String())
				if err := join(err, err2, err3); err != nil {
					b.Error(err)
				}
			}
		})
	})
}

func join(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// BenchmarkRead compares verified reading of 64 MiB, as a stream, in ranges of
// 256 KiB and over HTTP, with plain reading of the same file.
func BenchmarkRead(b *testing.B) {
	const size = 64 << 20
	data := content(b, "bench", size)
	s := diskStore(b)
	sums, _ := store(b, s, "u", bytes.Clone(data), Default)
	b.Run("limit=plain", func(b *testing.B) {
		b.SetBytes(size)
		buf := make([]byte, 256<<10)
		for b.Loop() {
			f, err := os.Open(s.filePath(sums.SHA256))
			if err != nil {
				b.Fatal(err)
			}
			n, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{f}, buf)
			if err := join(err, f.Close()); err != nil || n != size {
				b.Fatal(n, err)
			}
		}
	})
	b.Run("limit=plain+sha256", func(b *testing.B) {
		b.SetBytes(size)
		for b.Loop() {
			if err := s.verifyFile(sums.SHA256, size); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("reader", func(b *testing.B) {
		b.SetBytes(size)
		b.ReportAllocs()
		for b.Loop() {
			r, err := s.NewReader(b.Context(), sums.CID)
			if err != nil {
				b.Fatal(err)
			}
			n, err := r.WriteTo(io.Discard)
			if err := join(err, r.Close()); err != nil || n != size {
				b.Fatal(n, err)
			}
		}
	})
	b.Run("ranges", func(b *testing.B) {
		b.SetBytes(size)
		b.ReportAllocs()
		for b.Loop() {
			for off := int64(0); off < size; off += 256 << 10 {
				if _, _, err := s.Read(b.Context(), sums.CID, off, 256<<10); err != nil {
					b.Fatal(err)
				}
			}
		}
	})
	b.Run("http", func(b *testing.B) {
		b.SetBytes(size)
		c, err := ParseCID(sums.CID)
		if err != nil {
			b.Fatal(err)
		}
		h := NewHandler(HandlerConfig{Source: storeSource{s, sums.CID}})
		srv := httptest.NewServer(h)
		defer srv.Close()
		for b.Loop() {
			resp, err := srv.Client().Get(srv.URL + "/ipfs/" + c.String())
			if err != nil {
				b.Fatal(err)
			}
			n, err := io.Copy(io.Discard, resp.Body)
			if err := join(err, resp.Body.Close()); err != nil || n != size {
				b.Fatal(n, err)
			}
		}
	})
}
