package blob

import (
	"crypto/sha256"
	"encoding/hex"
	"flag"
	"io"
	"strings"
	"testing"

	"golang.org/x/crypto/chacha20"

	"github.com/verae/archive/internal/need"
)

// huge runs the large vectors as the long run does: go test ./blob -huge (about
// 10 s).
var huge = flag.Bool("huge", false, "also hash the golden vectors of 174 MiB to 1 GiB")

// keystream returns n bytes of the ChaCha20 keystream under sha256(seed), the
// input of the public vectors of IPIP-499.
func keystream(t testing.TB, seed string, n int64) io.Reader {
	t.Helper()
	key := sha256.Sum256([]byte(seed))
	c, err := chacha20.NewUnauthenticatedCipher(key[:], make([]byte, chacha20.NonceSize))
	if err != nil {
		t.Fatal(err)
	}
	return io.LimitReader(cipherReader{c}, n)
}

type cipherReader struct{ c *chacha20.Cipher }

func (r cipherReader) Read(p []byte) (int, error) {
	clear(p)
	r.c.XORKeyStream(p, p)
	return len(p), nil
}

const mib = 1 << 20

// TestGoldenCIDs holds our CIDs to those of Kubo and of IPIP-499. They are
// frozen: a difference means that no other tool finds our files any more.
func TestGoldenCIDs(t *testing.T) {
	long := *huge || need.Rounds(0, 1) == 1
	tests := []struct {
		name    string
		seed    string
		size    int64
		profile Profile
		cid     string
		sha256  string
		dagSize int64
		when    bool
	}{
		{"empty", "", 0, Default, "bafkreihdwdcefgh4dqkjv67uzcmw7ojee6xedzdetojuzjevtenxquvyku", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855", 0, true},
		{"262144", "chunk-v1-seed", 262144, Default, "bafkreifvsarv3nxobf6hg5ymju7f7cveevl2hzg7k3ccb622jytkbiif64", "b590235db6ee097c73770c4d3e5f8aa42557a3e4df56c420fb5a4e26a0a105f7", 262144, true},
		{"262145", "chunk-v1-seed", 262145, Default, "bafkreia6wz46ptnagfawheep7ay3pcpi3ckctt7lparjn7f5z27i3rzrni", "1eb679e7cda0314163908ff831b789e8d89429cfeb782296fcbdcebe8dc7316a", 262145, true},
		{"1048576", "chunk-v1-seed", 1048576, Default, "bafkreiacndfy443ter6qr2tmbbdhadvxxheowwf75s6zehscklu6ezxmta", "0268cb8e7373247d08ea6c0846700eb7b9c8eb58bfecbd921e4252e9e266ec98", 1048576, true},
		{"1048577", "chunk-v1-seed", 1048577, Default, "bafybeigmix7t42i6jacydtquhet7srwvgpizfg7gjbq7627d35mjomtu64", "502d7b5660960a112aeb4c6f453c9d9f41b0e3a8aee6849b089b5c35cbd3c333", 0, true},
		{"174MiB", "v1-2025-seed", 174 * mib, Default, "bafybeicc7aygvjmifnbjdprviogereqgmu4fnsyrqjnq4e3qrzzo2aw6wa", "", 0, long},
		{"174MiB-174-links", "v1-2025-seed", 174 * mib, Profile{mib, 174}, "bafybeicc7aygvjmifnbjdprviogereqgmu4fnsyrqjnq4e3qrzzo2aw6wa", "", 0, long},
		{"175MiB", "v1-2025-seed", 175 * mib, Default, "bafybeifebclkiuzeyw4iymlwvik4x2n6rcmlajcgqvfinzxhwtyfqqttau", "", 0, long},
		{"175MiB-174-links", "v1-2025-seed", 175 * mib, Profile{mib, 174}, "bafybeid3dlmlpdvnud3s2yzbc4arnesvlkbhl2323biuukyjmrbkqv4mcq", "", 0, long},
		{"1024MiB", "v1-2025-seed", 1024 * mib, Default, "bafybeihmf37wcuvtx4hpu7he5zl5qaf2ineo2lqlfrapokkm5zzw7zyhvm", "", 0, long},
		{"1024MiB+1", "v1-2025-seed", 1024*mib + 1, Default, "bafybeibdsi225ugbkmpbdohnxioyab6jsqrmkts3twhpvfnzp77xtzpyhe", "", 0, long},
		{"legacy-262144", "chunk-v1-seed", 262144, Legacy, "bafkreifvsarv3nxobf6hg5ymju7f7cveevl2hzg7k3ccb622jytkbiif64", "", 262144, true},
		{"legacy-262145", "chunk-v1-seed", 262145, Legacy, "bafybeial7vb62qc4jfbps3fnvzk2asbki23tlhb3a54sqjpeg6d3waw6zq", "", 262249, true},
		{"legacy-1048576", "chunk-v1-seed", 1048576, Legacy, "bafybeic2h5iy3qr6kenis5u6o7rhjxlv4iopgfxhnkaohxn7qo7nkwdlbm", "", 1048784, true},
		{"legacy-1048577", "chunk-v1-seed", 1048577, Legacy, "bafybeidggqjmlziefwt6c7hqzfqxkvmibsjdcyufxrw2uxytriwjhglceu", "", 1048831, true},
	}
	for _, tt := range tests {
		if !tt.when {
			continue
		}
		t.Run(tt.name, func(t *testing.T) {
			got, err := SumReader(keystream(t, tt.seed, tt.size), tt.profile)
			if err != nil {
				t.Fatal(err)
			}
			if got.CID != tt.cid || got.Size != tt.size {
				t.Errorf("CID %s of %d bytes, want %s of %d", got.CID, got.Size, tt.cid, tt.size)
			}
			if sum := hex.EncodeToString(got.SHA256[:]); tt.sha256 != "" && sum != tt.sha256 {
				t.Errorf("SHA-256 %s, want %s", sum, tt.sha256)
			}
			if tt.dagSize != 0 && got.DAGSize != tt.dagSize {
				t.Errorf("DAG of %d bytes, want %d", got.DAGSize, tt.dagSize)
			}
		})
	}
}

func TestGoldenCIDOfText(t *testing.T) {
	got, err := SumReader(strings.NewReader("hello world"), Default)
	if err != nil {
		t.Fatal(err)
	}
	if want := "bafkreifzjut3te2nhyekklss27nh3k72ysco7y32koao5eei66wof36n5e"; got.CID != want {
		t.Errorf("CID %s, want %s", got.CID, want)
	}
	if got, want := hex.EncodeToString(got.SHA1[:]), "2aae6c35c94fcfb415dbe95f408b9ce91ee846ed"; got != want {
		t.Errorf("SHA-1 %s, want %s", got, want)
	}
}
