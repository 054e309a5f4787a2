package daemon

import (
	"context"
	"crypto/ed25519"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/verae/archive/archive"
	"github.com/verae/archive/blob"
	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/internal/serve"
	"github.com/verae/archive/wire"
)

// Bounds of an archive's HTTP, the same as an aggregator's where both have them.
const (
	maxFileRequests = 256 // under way at a time
	fileHeaderTime  = 10 * time.Second
	fileKeepAlive   = 2 * time.Minute
	fileHeaderBytes = 32 << 10
	retryUnreadable = 5 * time.Second
)

// startFiles serves signed URLs over HTTP, if the archive is to.
func (c *Archived) startFiles(node *archive.Node, files *blob.Store, log *slog.Logger, stack *serve.Stack) (tasks []serve.Task, url string, err error) {
	if c.HTTPAddr == "" {
		return nil, "", nil
	}
	keys, err := parseURLKeys(c.URLKeys)
	if err != nil {
		return nil, "", err
	}
	listener, err := net.Listen("tcp", c.HTTPAddr)
	if err != nil {
		return nil, "", fault.New(fault.Invalid, "LISTEN", "ARCHIVE_HTTP_ADDR: %w", err).InField("ARCHIVE_HTTP_ADDR")
	}
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true) // the write deadline that moves is per connection
	srv := &http.Server{
		Handler: newFileDoor(node, files, keys, log), Protocols: protocols,
		ReadHeaderTimeout: fileHeaderTime, ReadTimeout: fileHeaderTime, IdleTimeout: fileKeepAlive, MaxHeaderBytes: fileHeaderBytes,
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
	url = "http://" + listener.Addr().String()
	log.Info("signed URLs of files are served", "http", url)
	tasks = []serve.Task{{Name: "http", Run: func(context.Context) error { return served(srv.Serve(listener)) }}}
	return tasks, url, stack.Push("http", httpLimit, func(ctx context.Context) error { return cut(ctx, srv, listener) })
}

// A fileDoor serves the files of one archive to whoever has a signed URL. What a
// tenant may not read any more is not served with a URL that was signed before.
type fileDoor struct {
	node    *archive.Node
	files   *blob.Store
	keys    []ed25519.PublicKey
	gateway *blob.Handler
	slots   chan struct{}
	log     *slog.Logger
}

func newFileDoor(node *archive.Node, files *blob.Store, keys []ed25519.PublicKey, log *slog.Logger) *fileDoor {
	d := &fileDoor{node: node, files: files, keys: keys, slots: make(chan struct{}, maxFileRequests), log: log}
	d.gateway = blob.NewHandler(blob.HandlerConfig{Source: signedSource{d}, Log: log})
	return d
}

// ServeHTTP implements http.Handler.
func (d *fileDoor) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	select {
	case d.slots <- struct{}{}:
		defer func() { <-d.slots }()
	default:
		w.Header().Set("Retry-After", strconv.Itoa(1))
		w.Header().Set("Cache-Control", "no-store")
		http.Error(w, "as many requests as this archive takes are under way: try again", http.StatusServiceUnavailable)
		return
	}
	if !strings.HasPrefix(r.URL.Path, "/ipfs/") {
		w.Header().Set("Cache-Control", "no-store")
		http.Error(w, "an archive serves nothing but signed URLs of /ipfs/", http.StatusNotFound)
		return
	}
	d.gateway.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), requestKey{}, r)))
}

type requestKey struct{} // of the request, in the context of its look-ups

// signedSource finds files for the tenants of signed URLs.
type signedSource struct{ *fileDoor }

// viewer is the tenant in whose name a request reads.
func (d signedSource) viewer(ctx context.Context, digest [32]byte) (wire.TenantID, error) {
	r := ctx.Value(requestKey{}).(*http.Request)
	text, err := blob.CheckURL(d.keys, r.Method, digest, r.URL.Query(), time.Now())
	if err != nil {
		return "", &blob.StatusError{Status: http.StatusForbidden, Err: err}
	}
	return wire.ParseTenantID(text)
}

// File implements blob.Source.
func (d signedSource) File(ctx context.Context, c blob.CID) (blob.File, error) {
	viewer, err := d.viewer(ctx, c.Digest)
	if err != nil {
		return blob.File{}, err
	}
	file, visible, err := d.node.FileOf(ctx, viewer, c.String(), c.Digest)
	if err != nil {
		return blob.File{}, err
	}
	if !visible || file.CID != c.String() { // a block of a file is not that file
		return blob.File{}, errNoFile
	}
	return blob.File{
		Size: file.Size, SHA256: file.SHA256, ContentType: file.ContentType, Name: file.Name,
		Open: func(off, length int64) (io.ReadCloser, error) {
			in, err := d.files.NewSection(ctx, file.CID, off, length)
			if err != nil {
				return nil, d.unreadable(file, err)
			}
			return in, nil
		},
	}, nil
}

// Block implements blob.Source.
func (d signedSource) Block(ctx context.Context, digest [32]byte) (blob.File, error) {
	viewer, err := d.viewer(ctx, digest)
	if err != nil {
		return blob.File{}, err
	}
	file, visible, err := d.node.FileOf(ctx, viewer, "", digest)
	if err != nil {
		return blob.File{}, err
	}
	if !visible {
		return blob.File{}, errNoFile
	}
	_, size, err := d.files.ReadBlock(ctx, file.CID, digest, 0, 0)
	if err != nil {
		return blob.File{}, d.unreadable(file, err)
	}
	return blob.File{Size: size, SHA256: digest, Open: func(off, length int64) (io.ReadCloser, error) {
		data, _, err := d.files.ReadBlock(ctx, file.CID, digest, off, int(length)) // a block has 1 MiB at most
		if err != nil {
			return nil, d.unreadable(file, err)
		}
		return io.NopCloser(strings.NewReader(string(data))), nil
	}}, nil
}

var errNoFile = fault.New(fault.NotFound, blob.CodeUnknownCID, "the file is not here")

// unreadable is what a caller is told of a file that is his and can not be read
// here: it is never "not there", and another archive may have it whole.
func (d *fileDoor) unreadable(file wire.File, err error) error {
	d.log.Error("a file that was asked for can not be delivered", "cid", file.CID, "err", err)
	return fault.New(fault.Transient, "ARCHIVES_MISSING", "archives: the file %s is stored, and this archive can not deliver it: ask the aggregator, or another archive", file.CID).After(retryUnreadable)
}
