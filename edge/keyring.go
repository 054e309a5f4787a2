package edge

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/wire"
)

// keyPoll is how often the key file is looked at for changes: a revoked key is
// refused after this time at the latest.
const keyPoll = time.Second

// Keyring holds the keys of a key file and follows its changes. A file that
// can not be read any more, or is damaged, changes nothing: the keys last read
// stay in force, one error is logged for each change for the worse, and Ready
// says so. All methods may be called from many goroutines.
type Keyring struct {
	path string
	log  *slog.Logger
	keys atomic.Pointer[map[string]*Key] // by id; the map is never changed

	checked atomic.Int64 // when the file was last looked at, Unix nanoseconds

	mu   sync.Mutex  // guards the fields below; held while the file is read
	seen os.FileInfo // the file as it was last read
	err  error       // why the file as it is now is not in force
}

// OpenKeyring reads the key file at path, which must exist, and must not be
// writable by others than its owner: whoever can write it is everybody. A nil
// log means none.
func OpenKeyring(path string, log *slog.Logger) (*Keyring, error) {
	k := &Keyring{path: path, log: cmp.Or(log, slog.New(slog.DiscardHandler))}
	if err := k.load(); err != nil {
		return nil, err
	}
	k.checked.Store(time.Now().UnixNano())
	return k, nil
}

// load reads the file if it is not the one last read. Its caller holds k.mu, or
// nobody else has k yet.
func (k *Keyring) load() error {
	info, err := os.Stat(k.path)
	if err != nil && !os.IsNotExist(err) {
		return fmt.Errorf("edge: key file: %w", err)
	}
	if err == nil && k.seen != nil && k.err == nil && sameFile(info, k.seen) {
		return nil
	}
	if err == nil && info.Mode().Perm()&0o022 != 0 {
		return fault.New(fault.Invalid, "KEY_FILE", "edge: key file %s may be written by others than its owner; chmod 600 it", k.path)
	}
	list, err := ListKeys(k.path)
	if err != nil {
		return err
	}
	keys := make(map[string]*Key, len(list))
	for i := range list {
		keys[list[i].ID] = &list[i]
	}
	k.keys.Store(&keys)
	k.seen = info
	return nil
}

// sameFile reports whether a file was left alone. A replaced file is another
// one, also if its time and size are equal.
func sameFile(a, b os.FileInfo) bool {
	return os.SameFile(a, b) && a.ModTime().Equal(b.ModTime()) && a.Size() == b.Size() && a.Mode() == b.Mode()
}

// refresh looks at the file if that was not done for keyPoll. One goroutine
// does; the others go on with what is known.
func (k *Keyring) refresh(ctx context.Context) {
	now, last := time.Now().UnixNano(), k.checked.Load()
	if now-last < int64(keyPoll) && now >= last || !k.checked.CompareAndSwap(last, now) {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	before, seen := k.err, k.seen
	k.err = k.load()
	switch {
	case k.err != nil && (before == nil || before.Error() != k.err.Error()):
		k.log.ErrorContext(ctx, "the key file is not usable; the keys read before stay in force", "err", k.err)
	case k.err == nil && k.seen != seen:
		k.log.InfoContext(ctx, "the key file was read", "keys", len(*k.keys.Load()))
	}
}

// Ready returns nil while the keys in force are those of the file.
func (k *Keyring) Ready(ctx context.Context) error {
	k.refresh(ctx)
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.err
}

// FetchesFiles reports whether a key is in force that may fetch files of the
// tenant.
func (k *Keyring) FetchesFiles(tenant wire.TenantID) bool {
	k.refresh(context.Background())
	now := time.Now()
	for _, key := range *k.keys.Load() {
		if key.May(ScopeFiles) && !key.expired(now) && slices.Contains(key.FileTenants(), tenant) {
			return true
		}
	}
	return false
}

// Authenticate returns the key with the given text. The errors are of kind
// Denied and never repeat the text; an unknown id, a revoked key and a wrong
// secret read alike. The Key is shared: callers do not change it.
func (k *Keyring) Authenticate(ctx context.Context, text string) (*Key, error) {
	parsed, err := parseKeyText(text)
	if err != nil {
		return nil, err
	}
	k.refresh(ctx)
	key, known := (*k.keys.Load())[parsed.id]
	var want [sha256.Size]byte
	if known {
		want = key.SHA256
	}
	if subtle.ConstantTimeCompare(parsed.hash[:], want[:]) == 0 || !known {
		return nil, fault.New(fault.Denied, codeKeyUnknown, "this API key is not known here: it may have been revoked, or belong to another installation")
	}
	if key.expired(time.Now()) {
		return nil, fault.New(fault.Denied, codeKeyExpired, "this API key expired at %s; ask for a new one", key.Expires)
	}
	return key, nil
}
