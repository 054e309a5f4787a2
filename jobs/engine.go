package jobs

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/verae/archive/chain"
	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/internal/pebblex"
	"github.com/verae/archive/receipts"
	"github.com/verae/archive/vault"
	"github.com/verae/archive/wire"
)

// Archives is what jobs needs of the archives. Every method may be called from
// many goroutines, and every error carries a fault kind: Transient is tried
// again, NotFound of CommitUpload means that the archive does not know the
// upload and does not have the bytes.
type Archives interface {
	// Rank returns the archives that take puts now, best first for key.
	Rank(key [32]byte) []wire.ArchiveID
	// Enrolled returns all archives that may hold records, alive or not, sorted.
	Enrolled() []wire.ArchiveID
	// Version is the version of the roster behind Rank.
	Version() uint64
	// Put returns when the record is on the archive's disk.
	Put(ctx context.Context, id wire.ArchiveID, p wire.Put) (wire.PutAck, error)
	// CommitUpload returns when the file is on the archive's disk and verified.
	// Repeating it is harmless.
	CommitUpload(ctx context.Context, id wire.ArchiveID, uploadID string, c wire.BlobCommit) error
	// Copy brings a file that one archive holds to another.
	Copy(ctx context.Context, from, to wire.ArchiveID, tenant wire.TenantID, c wire.BlobCommit) error
}

// Gatherer asks the archives for what is kept under a digest.
type Gatherer interface {
	Gather(ctx context.Context, digest wire.Digest, tenant wire.TenantID, kinds []wire.Kind) (receipts.Gathered, error)
}

// Vault seals private metadata to its tenant.
type Vault interface {
	Seal(ctx context.Context, c vault.Context, plaintext []byte) ([]byte, error)
	Open(ctx context.Context, c vault.Context, sealed []byte) ([]byte, error)
	// MAC is keyed by the tenant: equal data of two tenants have nothing in common.
	MAC(tenant wire.TenantID, purpose string, data []byte) ([32]byte, error)
}

// Announcer tells others what happened. Losing what it is given costs time,
// never truth: the store knows better.
type Announcer interface {
	PublishWatch(w wire.Watch) error
	PublishEvent(event []byte) error
}

// Config says what an Engine works with. All interfaces are required.
type Config struct {
	Dir    string // the job store's own directory
	FS     vfs.FS // nil means the disk
	Create bool   // make the store; it must not be there yet

	Ledger   chain.Ledger
	Archives Archives
	Gatherer Gatherer
	Vault    Vault
	Announce Announcer
	Fetchers Fetchers // nil: nobody fetches files, and no text of one may be asked for
	Copies   Copies   // nil: lost records are not accounted for, and copies are made from the outbox only

	PutCopies    int // copies of every record; 0 means 2
	PutMinCopies int // acknowledgements before a submission counts as stored; 0 means 1

	PutWait        time.Duration // how long Accept waits for those; 0 means 5 s
	LookupWait     time.Duration // how long Accept waits for the chain; 0 means 200 ms
	ResubmitWindow time.Duration // equal content within it joins the first submission; negative: off; 0 means 24 h
	IdempotencyTTL time.Duration // how long idempotency keys are kept; 0 means 30 days
	UploadIdle     time.Duration // how long an archive keeps an upload; 0 means 60 s
	Late           time.Duration // how long replies are waited for after the deadline of a submission's question; 0: not at all

	// Room returns nil while there is room on the disks to record submissions,
	// and to end those that were; nil means that there always is. While it fails
	// no new submission is taken; a repeated one is answered, and all other work
	// goes on.
	Room func() error

	Log     *slog.Logger
	Now     func() time.Time
	OnFatal func(string) // see pebblex.Options
}

func (c Config) withDefaults() Config {
	c.PutCopies = cmp.Or(c.PutCopies, 2)
	c.PutMinCopies = cmp.Or(c.PutMinCopies, 1)
	c.PutWait = cmp.Or(c.PutWait, 5*time.Second)
	c.LookupWait = cmp.Or(c.LookupWait, 200*time.Millisecond)
	c.ResubmitWindow = cmp.Or(c.ResubmitWindow, 24*time.Hour)
	c.IdempotencyTTL = cmp.Or(c.IdempotencyTTL, 30*24*time.Hour)
	c.UploadIdle = cmp.Or(c.UploadIdle, time.Minute)
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Room == nil {
		c.Room = func() error { return nil }
	}
	return c
}

func (c Config) check() error {
	switch {
	case c.Ledger == nil || c.Archives == nil || c.Gatherer == nil || c.Vault == nil || c.Announce == nil:
		return errors.New("jobs: config: Ledger, Archives, Gatherer, Vault and Announce are all required")
	case c.PutMinCopies < 1 || c.PutMinCopies > c.PutCopies:
		return errors.New("jobs: config: PUT_MIN_COPIES must be at least 1 and at most PUT_COPIES")
	}
	return nil
}

// Engine takes submissions and brings them to their end. Its methods may be
// called from many goroutines.
type Engine struct {
	cfg     Config
	store   *store
	started time.Time
	hub     hub
	metrics *metrics

	ctx    context.Context // ends with Close; the parent of all background work
	cancel context.CancelFunc
	wg     sync.WaitGroup // background work
	slots  chan struct{}  // bounds the passes under way at a time

	wake     chan struct{} // of one: unfinished submissions shall be tried again
	returned chan struct{} // of one: archives came back, so copies may be made
	lacking  chan struct{} // of one: a copy was not made
	healing  chan struct{} // bounds the heals under way at a time

	ocr ocrOutbox // messages of OCR jobs

	steered atomic.Bool // a tenant ever retained or held something
	losses  atomic.Bool // a record was ever listed as lost
	spread  rosterSeen  // the last that control records were listed for; the healer's

	mu       sync.Mutex                  // guards the fields below
	open     map[ref]*task               // submissions that have not ended
	mending  map[ref]uint64              // ended submissions that are being healed, with the number of that work
	works    uint64                      // passes and heals that were begun; each has its number
	inFlight map[wire.Digest]wire.Digest // idempotency keys whose Accept has not answered yet, with the content
	closed   bool

	// step is called between any two steps that a crash may separate; an error
	// stops the work on the spot, as a crash would. Nil outside tests.
	step func(name string) error
}

// maxPasses is how many submissions are worked on at a time. More wait.
const maxPasses = 512

// Init makes the job store in dir, which must be absent or empty.
func Init(dir string, log *slog.Logger) error {
	st, err := openStore(pebblex.Options{Dir: dir, Create: true, Log: log})
	if err != nil {
		return err
	}
	return st.close()
}

// Open opens the job store, and resumes every submission that was not done
// when the store was last used.
func Open(c Config) (*Engine, error) { return openWith(c, nil) }

// openWith is Open with a step hook; see Engine.step.
func openWith(c Config, step func(string) error) (*Engine, error) {
	c = c.withDefaults()
	if err := c.check(); err != nil {
		return nil, err
	}
	st, err := openStore(pebblex.Options{Dir: c.Dir, FS: c.FS, Create: c.Create, Log: c.Log, OnFatal: c.OnFatal})
	if err != nil {
		return nil, err
	}
	e := &Engine{
		cfg: c, store: st, started: c.Now(), metrics: newMetrics(), step: step,
		slots: make(chan struct{}, maxPasses), healing: make(chan struct{}, maxHeals),
		wake: make(chan struct{}, 1), returned: make(chan struct{}, 1), lacking: make(chan struct{}, 1),
		ocr: ocrOutbox{leased: map[wire.EnvelopeID]time.Time{}}, open: map[ref]*task{}, mending: map[ref]uint64{}, inFlight: map[wire.Digest]wire.Digest{},
	}
	e.ctx, e.cancel = context.WithCancel(context.Background())
	if err := e.resume(); err != nil {
		return nil, errors.Join(err, e.Close())
	}
	e.wg.Go(e.sweep)
	e.wg.Go(e.waker)
	e.wg.Go(e.healer)
	if c.Copies != nil {
		e.wg.Go(e.accountant)
	}
	return e, nil
}

// Close stops the work and closes the store. What is not done is resumed by
// the next Open. Callers of Accept and Wait get an error.
func (e *Engine) Close() error {
	e.mu.Lock()
	already := e.closed
	e.closed = true
	for _, t := range e.open {
		t.stop()
	}
	e.mu.Unlock()
	if already {
		return nil
	}
	e.cancel()
	e.wg.Wait()
	return e.store.close()
}

// Ready says whether the engine can take submissions.
func (e *Engine) Ready() error {
	return e.store.view(func(pebble.Reader) error { return nil })
}

// Room returns nil if a new submission may be taken, else an error of kind
// fault.Transient, code DISK_FULL. Accept asks by itself; whoever reads a large
// body for it asks before.
func (e *Engine) Room() error {
	if err := e.cfg.Room(); err != nil {
		return errNoRoom
	}
	return nil
}

// errNoRoom tells a sender no more than concerns him. The operator finds the
// disk in the log and on the admin listener.
var errNoRoom = fault.New(fault.Transient, pebblex.CodeDiskFull,
	"there is no room to record new submissions now: try again later; lookups go on, and so does what was accepted").After(30 * time.Second)

// at is called between steps; see Engine.step.
func (e *Engine) at(name string) error {
	if e.step == nil {
		return nil
	}
	return e.step(name)
}

// resume sees that every submission of the work list can be read, announces
// the events that were not announced again, byte for byte, and has all
// submissions tried that are not done.
func (e *Engine) resume() error {
	err := e.eachPending(func(id []byte) error {
		_, err := e.loadKey(id)
		return err
	})
	if err == nil {
		err = e.findSteered()
	}
	if err != nil {
		return err
	}
	if err := errors.Join(e.countLost(), e.countOCR()); err != nil {
		return err
	}
	e.announceAgain()
	e.Nudge()
	return nil
}

// readSubmission reads the submission whose key form is id.
func readSubmission(r pebble.Reader, id []byte) (*submission, error) {
	key := rowKey(rowSubmission, id)
	row, ok, err := getRow(r, key)
	if err != nil {
		return nil, err
	}
	if !ok {
		return nil, fault.New(fault.NotFound, "SUBMISSION_NOT_FOUND", "jobs: there is no such submission")
	}
	s, err := decodeRow[submission](key, row)
	return &s, err
}

// load returns the durable state of a submission.
func (e *Engine) load(id ref) (*submission, error) { return e.loadKey(id.key()) }

// loadKey is load of the submission whose key form is id.
func (e *Engine) loadKey(id []byte) (s *submission, err error) {
	err = e.store.view(func(r pebble.Reader) error {
		s, err = readSubmission(r, id)
		return err
	})
	return s, err
}
