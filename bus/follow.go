package bus

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/verae/archive/bloom"
	"github.com/verae/archive/internal/boottime"
	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/mirror"
	"github.com/verae/archive/wire"
)

// How mirrors are kept.
const (
	followInterval = HelloInterval / 5 // between two looks at an archive
	maxLoads       = 4                 // filters that are copied at a time
)

// MirrorConfig configures the mirrors of an aggregator.
type MirrorConfig struct {
	// Secret is the fleet's filter key. Filters under another one can not be
	// mirrored.
	Secret bloom.Secret
	// Holder names this process to archives, with a random part behind it: of two
	// with one name each would be taken for the other. Empty: the connection's name.
	Holder string
	// MaxBytes bounds the memory of all mirrors together, those that are being
	// loaded beside an older one among them; 0 means no limit. An archive whose
	// filter finds no room is asked every time.
	MaxBytes uint64
	// Clock is nil for the machine's.
	Clock mirror.Clock
	// Log gets what became of mirrors; nil discards.
	Log *slog.Logger
}

// Mirrors are the mirrors of an aggregator, one of each enrolled archive that can
// be mirrored. Its methods may be called from many goroutines; Close ends it.
type Mirrors struct {
	conn   *Conn
	roster *Roster
	cfg    MirrorConfig
	log    *slog.Logger
	keyID  string   // of cfg.Secret, as hellos have it
	public [16]byte // the key of the pairs that everybody may see

	metrics followMetrics
	failed  throttle // log lines about what others do wrong
	loads   chan struct{}
	work    context.Context
	stop    context.CancelFunc
	done    sync.WaitGroup
	sub     *nats.Subscription
	unhook  func()        // of the connection's return
	names   atomic.Uint64 // numbers mirrors

	followers atomic.Pointer[map[wire.ArchiveID]*follower] // the map is never changed

	mu     sync.Mutex // guards all below
	used   uint64     // of cfg.MaxBytes
	wrongs int        // contradictions so far
	pause  time.Time  // when loading may go on after one
}

// Follow begins to mirror the filters of the enrolled archives of a roster that
// listens. When it returns deltas are heard, or will be as soon as there is a
// connection; the mirrors come one after another, and none is waited for.
func Follow(conn *Conn, roster *Roster, cfg MirrorConfig) (*Mirrors, error) {
	cfg.Holder = ownName(cmp.Or(cfg.Holder, conn.name))
	if cfg.Clock == nil {
		cfg.Clock = boottime.Now
	}
	if cfg.Secret.ID == 0 {
		return nil, fault.New(fault.Invalid, "", "bus: filters are mirrored under the fleet's key only; set FILTER_KEY_FILE").InField("FILTER_KEY_FILE")
	}
	if err := (wire.LeaseRequest{Holder: cfg.Holder + "-0.0", Feed: "feed"}).Check(); err != nil {
		return nil, fault.New(fault.Invalid, "", "bus: mirrors: %w", err)
	}
	m := &Mirrors{
		conn: conn, roster: roster, cfg: cfg, log: orDiscard(cfg.Log),
		keyID: fmt.Sprintf("%08x", cfg.Secret.ID), public: mirror.ViewerKey(cfg.Secret.Key, wire.Public),
		loads: make(chan struct{}, maxLoads),
	}
	m.work, m.stop = context.WithCancel(context.Background())
	m.followers.Store(new(map[wire.ArchiveID]*follower))
	m.unhook = conn.onUp(func() { // who knows what was sent meanwhile
		for _, f := range *m.followers.Load() {
			f.miss()
		}
	})
	m.metrics = newFollowMetrics(m)
	var err error
	if m.sub, err = conn.subscribe(conn.ctl, wire.SubjectFilterPrefix+"*", "", m.onDelta); err == nil {
		err = settle(conn.ctl)
	}
	if err != nil {
		return nil, errors.Join(err, m.Close())
	}
	roster.mirrors.Store(m)
	m.enrolled()
	m.done.Go(m.watch)
	return m, nil
}

// ownName is a name that no other process has, nor this one a second time.
func ownName(name string) string { return name + "." + rand.Text()[:13] }

// Close gives the leases back and forgets the mirrors. Nobody is silent any more.
func (m *Mirrors) Close() error {
	m.roster.mirrors.CompareAndSwap(m, nil)
	m.unhook()
	m.stop()
	m.done.Wait()
	if m.sub != nil {
		m.conn.unsubscribe(m.sub)
	}
	if !m.conn.ctl.IsConnected() {
		return nil // the leases run out
	}
	return flush(context.Background(), m.conn.ctl)
}

// watch follows archives that are enrolled, until the end.
func (m *Mirrors) watch() {
	tick := time.NewTicker(followInterval)
	defer tick.Stop()
	version := uint64(0)
	for {
		if v := m.roster.Version(); v != version {
			version = v
			m.enrolled()
		}
		select {
		case <-tick.C:
		case <-m.work.Done():
			return
		}
	}
}

// enrolled begins to follow the archives that are new in the roster. Those that
// were retired end by themselves, and are forgotten here.
func (m *Mirrors) enrolled() {
	m.mu.Lock()
	defer m.mu.Unlock()
	old := *m.followers.Load()
	now := make(map[wire.ArchiveID]*follower, len(old))
	for _, id := range m.roster.Enrolled() {
		f := old[id]
		if f == nil {
			f = newFollower(m, id)
			m.done.Go(f.run)
		}
		now[id] = f
	}
	for id, f := range old {
		if now[id] == nil {
			f.stop()
		}
	}
	if !maps.Equal(old, now) {
		m.followers.Store(&now)
	}
}

// onDelta hands a delta to the follower of its archive.
func (m *Mirrors) onDelta(msg *nats.Msg) {
	id := wire.ArchiveID(strings.TrimPrefix(msg.Subject, wire.SubjectFilterPrefix))
	f := (*m.followers.Load())[id]
	if f == nil {
		m.metrics.deltas.WithLabelValues("stranger").Inc()
		return
	}
	f.take(msg)
}

// reserve takes memory for a filter of size bytes, and for its growth within the
// archive's share. It returns how much; 0 if there is not enough.
func (m *Mirrors) reserve(size uint64) uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	want := growth * size
	if m.cfg.MaxBytes > 0 {
		share := m.cfg.MaxBytes / uint64(max(1, len(*m.followers.Load())))
		free := m.cfg.MaxBytes - min(m.used, m.cfg.MaxBytes)
		if want = min(want, max(size, share), free); want < size {
			return 0
		}
	}
	m.used += want
	return want
}

func (m *Mirrors) release(bytes uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.used -= bytes
}

// mayLoad reports whether filters may be copied now: not for a while after a
// contradiction, lest an archive that is wrong time and again be copied as often.
func (m *Mirrors) mayLoad() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return !time.Now().Before(m.pause)
}
