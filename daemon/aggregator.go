package daemon

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"time"

	"github.com/verae/archive/chain/ledger"
	"github.com/verae/archive/edge"
	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/internal/serve"
	"github.com/verae/archive/jobs"
	"github.com/verae/archive/splitter"
	"github.com/verae/archive/vault"
)

// Aggregator is the configuration of an aggregator.
type Aggregator struct {
	Common `embed:""`

	HTTPAddr   string `name:"http-addr" env:"HTTP_ADDR" default:"127.0.0.1:8080" help:"host:port of the HTTP API. Port 0 takes a free one and logs it."`
	NATSListen string `name:"nats-listen" env:"NATS_LISTEN" default:"127.0.0.1:4222" help:"host:port of the embedded NATS server, which runs when NATS_URL is empty. Port 0 takes a free one."`

	APIKeysFile string `name:"api-keys-file" env:"API_KEYS_FILE" help:"File of API keys, kept by verae keys; empty: keys.json in the data directory."`
	URLKeyFile  string `name:"url-key-file" env:"URL_KEY_FILE" help:"File with the Ed25519 key, in PEM, that signs URLs of files, and that nobody but its owner may read; empty: url-key.pem in the data directory, made when it is not there. Archives serve what it signs if they have its public key in URL_KEYS."`
	VaultDir    string `env:"VAULT_DIR" help:"Directory of the tenants' keys; empty: vault in the data directory. Whoever has it and the records can read private metadata; whoever loses it never can again."`

	GuardFile string `env:"GUARD_FILE" help:"The ledger's fork guard, which has the newest checkpoint that was signed; empty: ledger/ledger.checkpoint in the data directory. On another disk it finds out a data directory that was put back as a whole. One file for each aggregator."`

	Chain     string `env:"CHAIN" enum:"ledger" default:"ledger" help:"Which chain seals: the embedded ledger."`
	LogOrigin string `env:"LOG_ORIGIN" default:"verae.local/ledger" help:"Name of the embedded ledger's log, part of every certificate; fixed when the ledger is made."`
	Enrol     string `env:"ENROL" enum:"auto,open,closed" default:"auto" help:"open enrols every archive that says hello, closed none that is not listed; auto is open on the embedded loopback server, else closed."`
	EnrolKeys string `env:"ENROL_KEYS" help:"Ed25519 public keys, in standard base64 and separated by commas, of archives that may enrol."`

	UnlistedArchives string `env:"UNLISTED_ARCHIVES" enum:"auto,census,wait,none" default:"auto" help:"How to know of archives that only know the original contract, and are not enrolled: census asks the embedded NATS server who listens, wait takes them to be there always, none says that there are none; auto is census on the embedded server, else wait. While there may be one, every lookup takes the whole wait and is not complete."`

	FilterKeyFile  string `env:"FILTER_KEY_FILE" help:"File with the filter key of the archives, the same as theirs, which nobody but its owner may read. With it the aggregator mirrors their filters, and waits for no archive that surely has nothing for the caller. Empty: every lookup waits for the answers of all archives."`
	Mirrors        string `env:"MIRRORS" enum:"on,off" default:"on" help:"Whether the aggregator mirrors the filters of the archives, if it has FILTER_KEY_FILE. off: every lookup waits for the answers of all archives, and archives never wait for this aggregator before they acknowledge a record."`
	MirrorMaxBytes uint64 `env:"MIRROR_MAX_BYTES" default:"0" help:"Most memory, in bytes, for the mirrors of all archives, which need as much as the archives' own views filters. An archive whose filter finds no room is asked every time. 0: a quarter of the memory that the process may have by GOMEMLIMIT or its control group; without those no limit."`
	QueryMode      string `env:"QUERY_MODE" enum:"auto,broadcast,directed" default:"auto" help:"Who gets a query: broadcast sends it to every archive, directed to each of those alone of which an answer is expected; auto is directed with more than 16 enrolled archives, and with fewer where that takes no more messages, else broadcast. While an archive that is not enrolled may be listening, and might miss it, every query is broadcast."`

	WaitArchive int `name:"wait-archive-ms" env:"WAIT_ARCHIVE_MS" default:"1500" help:"Milliseconds that a query waits for archives, at most."`
	Late        int `name:"late-ms" env:"LATE_MS" default:"10000" help:"Milliseconds after that wait in which a submission with includeAttached still takes replies; if they add records, one event job.updated tells. 0 turns that off."`
	WaitJob     int `name:"wait-job-ms" env:"WAIT_JOB_MS" default:"25000" help:"Milliseconds that a client may wait for a job, at most; Zapier cuts at 30000."`

	PutCopies    int `env:"PUT_COPIES" default:"2" help:"Copies of every record and file, on as many archives."`
	PutMinCopies int `env:"PUT_MIN_COPIES" default:"1" help:"Copies that must rest before a submission counts as stored; the others follow."`
	PutWait      int `name:"put-wait-ms" env:"PUT_WAIT_MS" default:"5000" help:"Milliseconds that a submission waits for those."`

	ResubmitWindow time.Duration `env:"RESUBMIT_WINDOW" default:"24h" help:"Equal content within it joins the first submission; 0 turns that off."`
	IdempotencyTTL time.Duration `name:"idempotency-ttl" env:"IDEMPOTENCY_TTL" default:"720h" help:"How long idempotency keys are remembered."`
	UploadIdle     int           `name:"upload-idle-s" env:"UPLOAD_IDLE_S" default:"60" help:"Seconds that archives keep an upload whose sender is silent; the same for all programs."`

	MaxBody        int64 `env:"MAX_BODY" default:"4294967296" help:"Largest multipart body, in bytes."`
	MaxJSONBody    int64 `name:"max-json-body" env:"MAX_JSON_BODY" default:"8388608" help:"Largest JSON body, in bytes; it is held in memory."`
	MaxData        int64 `env:"MAX_DATA" default:"8388608" help:"Largest data part of a form, in bytes."`
	MaxField       int   `env:"MAX_FIELD" default:"256" help:"Largest scalar field of a form, in bytes."`
	MaxMetadata    int   `env:"MAX_METADATA" default:"262144" help:"Largest publicMetadata, and privateMetadata, in bytes."`
	MaxAttachment  int   `env:"MAX_ATTACHMENT" default:"262144" help:"Largest attachment, in bytes."`
	MaxAttachments int   `env:"MAX_ATTACHMENTS" default:"32" help:"Attachments of one request."`
	MaxFiles       int   `env:"MAX_FILES" default:"32" help:"Files of one request."`
	MaxParts       int   `env:"MAX_PARTS" default:"64" help:"Parts of a multipart body."`
	MaxPartHeader  int   `env:"MAX_PART_HEADER" default:"16384" help:"Largest header of one part, in bytes."`
	MaxFileName    int   `env:"MAX_FILE_NAME" default:"255" help:"Longest file name, in bytes."`
	MaxContentType int   `env:"MAX_CONTENT_TYPE" default:"255" help:"Longest content type, in bytes."`
	MaxShares      int   `env:"MAX_SHARES" default:"64" help:"Tenants that one request is shared with."`
	MaxCallbackURL int   `name:"max-callback-url" env:"MAX_CALLBACK_URL" default:"2048" help:"Longest callbackUrl, in bytes."`

	MaxRequests    int `name:"max-requests-per-key" env:"MAX_REQUESTS_PER_KEY" default:"64" help:"Requests of one key under way at a time."`
	MaxUploads     int `name:"max-uploads-per-key" env:"MAX_UPLOADS_PER_KEY" default:"4" help:"Uploads of one key under way at a time."`
	MaxHeaderBytes int `env:"MAX_HEADER_BYTES" default:"32768" help:"Largest request header, in bytes."`
}

// maxLate is the most that LATE_MS may be: what waits holds memory.
const maxLate = 600_000

// Check refuses values that the aggregator can not work with.
func (c *Aggregator) Check() error {
	for _, v := range []struct {
		name  string
		value int64
	}{
		{"WAIT_ARCHIVE_MS", int64(c.WaitArchive)}, {"WAIT_JOB_MS", int64(c.WaitJob)}, {"PUT_COPIES", int64(c.PutCopies)},
		{"PUT_MIN_COPIES", int64(c.PutMinCopies)}, {"PUT_WAIT_MS", int64(c.PutWait)}, {"IDEMPOTENCY_TTL", int64(c.IdempotencyTTL)},
		{"UPLOAD_IDLE_S", int64(c.UploadIdle)}, {"MAX_BODY", c.MaxBody}, {"MAX_JSON_BODY", c.MaxJSONBody},
		{"MAX_REQUESTS_PER_KEY", int64(c.MaxRequests)}, {"MAX_UPLOADS_PER_KEY", int64(c.MaxUploads)}, {"MAX_HEADER_BYTES", int64(c.MaxHeaderBytes)},
	} {
		if err := positive(v.name, v.value); err != nil {
			return err
		}
	}
	if err := cmp.Or(c.checkReserve(), c.checkUnlisted()); err != nil {
		return err
	}
	switch {
	case c.PutMinCopies > c.PutCopies:
		return fault.New(fault.Invalid, "OUT_OF_RANGE", "PUT_MIN_COPIES: %d is more than PUT_COPIES, %d", c.PutMinCopies, c.PutCopies).InField("PUT_MIN_COPIES")
	case c.Late < 0 || c.Late > maxLate:
		return fault.New(fault.Invalid, "OUT_OF_RANGE", "LATE_MS: %d is out of range: it must be from 0, which turns it off, to %d", c.Late, maxLate).InField("LATE_MS")
	case c.ResubmitWindow < 0:
		return fault.New(fault.Invalid, "OUT_OF_RANGE", "RESUBMIT_WINDOW: %s is below 0, which turns it off", c.ResubmitWindow).InField("RESUBMIT_WINDOW")
	}
	return c.limits().Check()
}

// Parts of an aggregator's directory.
const (
	dirLedger  = "ledger"
	dirJobs    = "jobs"
	dirVault   = "vault"
	fileRoster = "roster.json"
	fileKeys   = "keys.json"
)

func (c *Aggregator) path(name string) string { return filepath.Join(c.DataDir, name) }

// KeysFile is where the API keys are.
func (c *Aggregator) KeysFile() string {
	if c.APIKeysFile != "" {
		return c.APIKeysFile
	}
	return c.path(fileKeys)
}

func (c *Aggregator) vaultDir() string {
	if c.VaultDir != "" {
		return c.VaultDir
	}
	return c.path(dirVault)
}

// InitAggregator makes the directory of a new aggregator: its ledger with a new
// signing key, its job store, its roster, and the vault unless VAULT_DIR names
// one that is there. It fails if there is anything at DataDir.
func InitAggregator(c Aggregator, log *slog.Logger) error {
	if err := c.Check(); err != nil {
		return err
	}
	return create(c.DataDir, func(dir string) error {
		c.DataDir = dir
		if err := jobs.Init(c.path(dirJobs), log); err != nil {
			return err
		}
		if err := initRoster(c.path(fileRoster)); err != nil {
			return err
		}
		if err := c.initVault(); err != nil {
			return err
		}
		return ledger.Init(c.ledgerConfig(log)) // last: its guard may be outside, and outlive what fails here
	})
}

// initVault makes a vault unless there is one.
func (c *Aggregator) initVault() error {
	there, err := exists(c.vaultDir())
	if err != nil || there {
		return err
	}
	v, err := vault.Open(vault.Config{Dir: c.vaultDir(), Create: true})
	if err != nil {
		return err
	}
	return v.Close()
}

func (c *Aggregator) ledgerConfig(log *slog.Logger) ledger.Config {
	return ledger.Config{Dir: c.path(dirLedger), Guard: c.GuardFile, Origin: c.LogOrigin, Log: log, OnFatal: exitOnFatal(log)}
}

// limits are the bounds of request bodies.
func (c *Aggregator) limits() splitter.Limits {
	return splitter.Limits{
		Body: c.MaxBody, JSONBody: c.MaxJSONBody, Data: c.MaxData, Field: c.MaxField, Metadata: c.MaxMetadata,
		Attachment: c.MaxAttachment, Attachments: c.MaxAttachments, Files: c.MaxFiles, Parts: c.MaxParts,
		PartHeader: c.MaxPartHeader, FileName: c.MaxFileName, ContentType: c.MaxContentType,
		Shares: c.MaxShares, CallbackURL: c.MaxCallbackURL,
	}
}

func (c *Aggregator) edgeLimits() edge.Limits {
	return edge.Limits{HeaderBytes: c.MaxHeaderBytes, InFlight: c.MaxRequests, Uploads: c.MaxUploads}
}

// window is the resubmission window in the form of jobs.Config, where zero
// means the default.
func (c *Aggregator) window() time.Duration {
	if c.ResubmitWindow == 0 {
		return -1
	}
	return c.ResubmitWindow
}

func (c *Aggregator) enrolKeys() []string {
	return strings.FieldsFunc(c.EnrolKeys, func(r rune) bool { return r == ',' || r == ' ' })
}

// RunAggregator runs an aggregator until ctx ends.
func RunAggregator(ctx context.Context, c Aggregator, log *slog.Logger, level *slog.LevelVar) error {
	if err := c.Check(); err != nil {
		return err
	}
	if err := mustExist(c.DataDir, dirJobs, "aggregator"); err != nil {
		return err
	}
	log = log.With("program", "aggregator")
	stack := &serve.Stack{Log: log}
	a := &aggregator{Aggregator: c, log: log, level: level, stack: stack, asked: ctx}
	if _, err := starting(ctx, func() (struct{}, error) { return struct{}{}, a.start() }); err != nil {
		return closeAfter(stack, fmt.Errorf("aggregator: %w", err))
	}
	log.Info("the aggregator serves", "http", a.running.HTTPURL, "nats", a.running.NATSURL, "dir", c.DataDir, "version", serve.Version().String())
	if err := c.announceReady(a.running); err != nil {
		return closeAfter(stack, err)
	}
	return stack.Run(ctx, a.tasks...)
}
