// Package edge is the door for HTTP: it knows routes, keys, media types and
// status codes, and nothing of how a timestamp is made.
//
// A request passes, in this order: its id and the security headers; the route,
// 404 or 405; the key, 401; the key's scope, 403; the key's bounds, 429; and
// only then is a byte of its body read, which is when net/http answers an
// Expect: 100-continue. Handlers return errors; one place turns them into
// RFC 9457 problems and one line a request goes to the log. Every refusal is
// complete: nothing was accepted and no upload is left open.
//
// A POST is read and checked by package splitter, taken by package jobs and
// answered 202; the caller may wait for the end, for WaitJob at the most,
// counted from the moment the request's headers were there. When that time
// has passed the answer is the 202 again, never an error: the work goes on.
//
// Promises about time: no client can hold a connection, a goroutine or an
// upload by doing nothing. Headers, bodies and answers have deadlines, those of
// bodies and answers move on with progress; see [Limits].
//
// API keys are in a file of their own, hashed; see [CreateKey] and [Keyring].
package edge

import (
	"cmp"
	"context"
	"crypto/ed25519"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/verae/archive/blob"
	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/internal/serve"
	"github.com/verae/archive/jobs"
	"github.com/verae/archive/splitter"
	"github.com/verae/archive/wire"
)

// Jobs is what the edge needs of package jobs to take a submission and tell how
// it stands. All methods may be called from many goroutines; their errors carry
// a fault kind.
type Jobs interface {
	// Room returns nil if a new submission may be taken, else a Transient error.
	// It is asked before a large body is read; Accept asks by itself.
	Room() error
	// Accept takes a request and owns its uploads from then on: it commits them
	// or aborts them. When it returns without error the submission is durable.
	Accept(ctx context.Context, c jobs.Caller, req *splitter.Request) (wire.Accepted, error)
	// Wait returns without error once the submission has ended, however it
	// ended, also when that was before the call; else the error of ctx. What it
	// returns goes into the view of the job that is asked for next.
	Wait(ctx context.Context, tenant wire.TenantID, submission wire.SubmissionID) (jobs.Ended, error)
	// Job returns a job as the tenant may see it. For a tenant without a
	// submission of the digest it has no submission id.
	Job(ctx context.Context, tenant wire.TenantID, id wire.JobID, v jobs.View) (wire.Job, error)
	// Receipts returns what is known under a digest; NotFound if it is not sealed.
	Receipts(ctx context.Context, tenant wire.TenantID, d wire.Digest, includeAttached bool, kinds []wire.Kind) (wire.Job, error)
}

// Contents finds what archives keep. What is not there and what is not for the
// tenant are one error, NotFound with the same words; archives that can not say
// are Transient.
type Contents interface {
	Record(ctx context.Context, tenant wire.TenantID, id wire.RecordID, sealed bool) (jobs.Body, error)
	File(ctx context.Context, tenant wire.TenantID, id wire.RecordID) (jobs.File, error)
	FileByCID(ctx context.Context, tenant wire.TenantID, cid string, digest wire.Digest) (jobs.File, error)
	// Block returns the archives that may have a block with this digest.
	Block(ctx context.Context, tenant wire.TenantID, digest wire.Digest) (jobs.Block, error)
}

// Files reads the bytes of files, and of their blocks, from one of the archives
// that hold them. The readers yield exactly length bytes from off and then io.EOF,
// or another error; they give up when ctx ends, and must be closed. A tenant may
// be wire.Public, here and in Contents.
type Files interface {
	ReadFile(ctx context.Context, ids []wire.ArchiveID, tenant wire.TenantID, cid string, off, length int64) (io.ReadCloser, error)
	StatBlock(ctx context.Context, ids []wire.ArchiveID, tenant wire.TenantID, digest wire.Digest) (wire.Block, error)
	ReadBlock(ctx context.Context, ids []wire.ArchiveID, tenant wire.TenantID, digest wire.Digest, off, length int64) (io.ReadCloser, error)
}

// Keys tells whose key a text is. The errors are of kind Denied and do not
// repeat the text. The Key is shared and not changed.
type Keys interface {
	Authenticate(ctx context.Context, text string) (*Key, error)
}

// Config says what a Server works with. Jobs, Contents, Controls, Files,
// Uploader, Keys and Roster are required.
type Config struct {
	Jobs     Jobs
	Contents Contents
	Controls Controls
	Files    Files
	Uploader splitter.Uploader
	Keys     Keys
	Roster   Roster

	URLKey ed25519.PrivateKey // signs URLs of files; nil: none are signed or served

	Health  *serve.Health   // behind /livez and /readyz; nil means one of its own, without checks
	Body    splitter.Limits // of request bodies; zero fields mean defaults
	Limits  Limits          // of everything else; zero fields mean defaults
	WaitJob time.Duration   // longest wait for a job [WAIT_JOB_MS]; 0 means 25 s: Zapier cuts at 30 s
	Log     *slog.Logger    // nil means none
}

// Server answers HTTP. Its methods may be called from many goroutines.
type Server struct {
	Config
	mux     *http.ServeMux
	gateway *blob.Handler
	bounds  *bounds
	metrics *metrics

	running context.Context // ends with Drain; not the parent of any request
	drain   context.CancelFunc
}

// New returns a Server, or an error that names what is missing or out of range.
func New(c Config) (*Server, error) {
	c.Limits = c.Limits.withDefaults()
	c.WaitJob = cmp.Or(c.WaitJob, 25*time.Second)
	c.Health = cmp.Or(c.Health, new(serve.Health))
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	if c.Jobs == nil || c.Contents == nil || c.Controls == nil || c.Files == nil || c.Uploader == nil || c.Keys == nil || c.Roster == nil {
		return nil, errors.New("edge: config: Jobs, Contents, Controls, Files, Uploader, Keys and Roster are all required")
	}
	if c.WaitJob < 0 {
		return nil, fault.New(fault.Invalid, "BAD_LIMIT", "edge: WAIT_JOB_MS is below 0").InField("WAIT_JOB_MS")
	}
	if err := errors.Join(c.Limits.Check(), c.Body.Check()); err != nil {
		return nil, err
	}
	c.Body.Body = cmp.Or(c.Body.Body, splitter.DefaultLimits().Body)
	c.Body.JSONBody = cmp.Or(c.Body.JSONBody, splitter.DefaultLimits().JSONBody)
	s := &Server{
		Config: c, metrics: newMetrics(),
		bounds: &bounds{inFlight: c.Limits.InFlight, uploads: c.Limits.Uploads},
	}
	s.running, s.drain = context.WithCancel(context.Background())
	s.gateway = newGateway(s)
	s.mux = s.newMux()
	return s, nil
}

// HTTPServer returns a server for addr with every deadline and bound in place.
// The caller listens, serves, and on the way out calls Drain, then Shutdown.
func (s *Server) HTTPServer(addr string) *http.Server {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true) // deadlines that move are per connection
	return &http.Server{
		Addr: addr, Handler: s, Protocols: protocols,
		ReadHeaderTimeout: s.Limits.HeaderTime,
		IdleTimeout:       s.Limits.KeepAlive,
		MaxHeaderBytes:    s.Limits.HeaderBytes,
		ErrorLog:          slog.NewLogLogger(s.Log.Handler(), slog.LevelDebug),
	}
}

// Drain prepares the end: /readyz says no from now on, and who waits for a job
// gets the 202. Other requests are answered as before. Calling it again does
// nothing more.
func (s *Server) Drain() {
	s.Health.Stopping()
	s.drain()
}

// Metrics returns the server's collectors.
func (s *Server) Metrics() []prometheus.Collector { return s.metrics.collectors() }
