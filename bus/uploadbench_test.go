package bus

import (
	"fmt"
	"testing"

	"github.com/verae/archive/blob"
	"github.com/verae/archive/wire"
)

// BenchmarkUploadToDisk uploads files over NATS to stores on disk and commits
// them. Compare it with BenchmarkUpload, which has no disk, and its publish-limit.
func BenchmarkUploadToDisk(b *testing.B) {
	for _, size := range []int{1 << 10, 1 << 20, 64 << 20} {
		for _, copies := range []int{1, 2} {
			b.Run(fmt.Sprintf("%dKiB/copies-%d", size>>10, copies), func(b *testing.B) {
				w := startWorld(b, 0, ArchivesConfig{Copies: copies}, nil)
				ids := static{}
				for i := range copies {
					id := wire.ArchiveID(fmt.Sprintf("archive-%c", 'a'+i))
					ids = append(ids, id)
					files, err := blob.OpenStore(blob.StoreConfig{Dir: b.TempDir(), Create: true})
					if err != nil {
						b.Fatal(err)
					}
					b.Cleanup(func() { files.Close() })
					service, err := ServeArchive(connect(b, w.server, string(id)), newFakeNode(b, id), files, ArchiveConfig{})
					if err != nil {
						b.Fatal(err)
					}
					b.Cleanup(func() { service.Drain(b.Context()) })
				}
				w.archives.ranker = ids
				data := content(size)
				b.SetBytes(int64(size))
				for n := byte(0); b.Loop(); n++ {
					for i := 0; i < len(data); i += 1 << 10 { // another file each time
						data[i] += 1 + n
					}
					id, on := send(b, w.archives, data)
					file := describe(data)
					for _, archive := range on {
						if err := w.archives.CommitUpload(b.Context(), archive, id, file); err != nil {
							b.Fatal(err)
						}
					}
				}
			})
		}
	}
}
