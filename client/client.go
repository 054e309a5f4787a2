// Package client is the Go client of the HTTP API: what the command line and
// the harness speak, and what a Go program elsewhere may import.
//
// Files are streamed: nothing is held in memory. Refusals come back as faults
// with the kind, code and text of the server's problem document.
package client

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/textproto"
	"net/url"
	"strings"
	"time"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/wire"
)

// DefaultURL is where an aggregator is unless told otherwise.
const DefaultURL = "http://127.0.0.1:8080"

// MaxAnswer bounds a JSON answer that is read into memory, in bytes.
const MaxAnswer = 64 << 20

// Client speaks to one aggregator with one API key. Its methods may be called
// from many goroutines.
type Client struct {
	URL  string       // of the aggregator, without a path; empty means DefaultURL
	Key  string       // API key
	HTTP *http.Client // nil means one without a timeout: contexts bound every call
}

// shared is the client of every Client that brings none of its own.
var shared = &http.Client{Transport: http.DefaultTransport.(*http.Transport).Clone()}

// Submission is what is to be sealed and attached. Exactly the fields that are
// set are sent.
type Submission struct {
	SHA256          wire.Digest // zero: the subject is Data or the only file
	Data            []byte      // hashed as it is; nil: none
	PublicMetadata  []byte      // a JSON object
	PrivateMetadata []byte      // a JSON object
	Files           []File
	IncludeAttached bool
	Public          bool
	IdempotencyKey  string
}

// File is a file to send. Open is called once a try.
type File struct {
	Name        string
	ContentType string // empty: the server's default
	Open        func() (io.ReadCloser, error)
}

// Outcome is the answer to a submission: the job if it ended in time, else
// what was accepted.
type Outcome struct {
	Job      *wire.Job
	Accepted *wire.Accepted
}

// Stamp submits s and waits for the job as long as the server waits.
func (c *Client) Stamp(ctx context.Context, s Submission) (Outcome, error) {
	resp, err := c.send(ctx, "/zapier/v1/timestamp/wait", s)
	if err != nil {
		return Outcome{}, err
	}
	return outcome(resp)
}

// Submit submits s and does not wait.
func (c *Client) Submit(ctx context.Context, s Submission) (wire.Accepted, error) {
	resp, err := c.send(ctx, "/zapier/v1/timestamp", s)
	if err != nil {
		return wire.Accepted{}, err
	}
	return decode[wire.Accepted](resp)
}

func outcome(resp *http.Response) (Outcome, error) {
	if resp.StatusCode == http.StatusAccepted {
		a, err := decode[wire.Accepted](resp)
		return Outcome{Accepted: &a}, err
	}
	job, err := decode[wire.Job](resp)
	return Outcome{Job: &job}, err
}

// Job returns the job that a submission's status URL names; with wait it waits
// for its end as long as the server does.
func (c *Client) Job(ctx context.Context, a wire.Accepted, wait bool) (Outcome, error) {
	path := a.StatusURL
	if wait {
		before, query, _ := strings.Cut(path, "?")
		path = before + "/wait?" + query
	}
	resp, err := c.get(ctx, path)
	if err != nil {
		return Outcome{}, err
	}
	return outcome(resp)
}

// Receipts returns what the chain and the archives know of a digest.
func (c *Client) Receipts(ctx context.Context, d wire.Digest) (wire.Job, error) {
	resp, err := c.get(ctx, "/zapier/v1/receipts/"+d.String())
	if err != nil {
		return wire.Job{}, err
	}
	return decode[wire.Job](resp)
}

// Archives returns the list of enrolled archives as the server sent it.
func (c *Client) Archives(ctx context.Context) (json.RawMessage, error) {
	resp, err := c.get(ctx, "/zapier/v1/archives")
	if err != nil {
		return nil, err
	}
	return decode[json.RawMessage](resp)
}

// File opens a file by its CID. The reader fails if the server breaks off, unlike
// that of Download: what was read until then is not the file. It must be closed.
func (c *Client) File(ctx context.Context, cid string) (body io.ReadCloser, size int64, err error) {
	resp, err := c.get(ctx, "/ipfs/"+url.PathEscape(cid))
	if err != nil {
		return nil, 0, err
	}
	return resp.Body, resp.ContentLength, nil
}

func (c *Client) get(ctx context.Context, path string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.base()+path, nil)
	if err != nil {
		return nil, fault.Wrap(fault.Invalid, fmt.Errorf("client: %w", err))
	}
	return c.do(req)
}

func (c *Client) base() string {
	if c.URL == "" {
		return DefaultURL
	}
	return strings.TrimRight(c.URL, "/")
}

// send posts s as multipart/form-data, streamed.
func (c *Client) send(ctx context.Context, path string, s Submission) (*http.Response, error) {
	return c.post(ctx, path, s.IdempotencyKey, s.write)
}

// post posts a form while it is written. It goes on being written until the body
// of the answer is closed: a server may begin to answer before it has read all.
func (c *Client) post(ctx context.Context, path, idempotencyKey string, fill func(*multipart.Writer) error) (*http.Response, error) {
	read, write := io.Pipe()
	form := multipart.NewWriter(write)
	written := make(chan struct{})
	go func() {
		defer close(written)
		err := fill(form)
		if err == nil {
			err = form.Close()
		}
		write.CloseWithError(err)
	}()
	end := func() {
		read.CloseWithError(io.ErrClosedPipe) // the server has answered: the rest is not needed
		<-written
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.base()+path, read)
	if err != nil {
		end()
		return nil, fault.Wrap(fault.Invalid, fmt.Errorf("client: %w", err))
	}
	req.Header.Set("Content-Type", form.FormDataContentType())
	if idempotencyKey != "" {
		req.Header.Set("Idempotency-Key", idempotencyKey)
	}
	resp, err := c.do(req)
	if err != nil {
		end()
		return nil, err
	}
	resp.Body = answer{resp.Body, end}
	return resp, nil
}

// answer is the body of an answer to a form. Closing it ends the form.
type answer struct {
	io.ReadCloser
	end func()
}

func (a answer) Close() error {
	a.end()
	return a.ReadCloser.Close()
}

// write writes the parts of the form. What the archives are chosen by comes
// first.
func (s Submission) write(form *multipart.Writer) error {
	var fields []struct{ name, value string }
	add := func(name, value string, given bool) {
		if given {
			fields = append(fields, struct{ name, value string }{name, value})
		}
	}
	add("sha256", s.SHA256.String(), !s.SHA256.IsZero())
	add("data", string(s.Data), s.Data != nil)
	add("publicMetadata", string(s.PublicMetadata), s.PublicMetadata != nil)
	add("privateMetadata", string(s.PrivateMetadata), s.PrivateMetadata != nil)
	add("includeAttached", "true", s.IncludeAttached)
	add("public", "true", s.Public)
	for _, f := range fields {
		if err := form.WriteField(f.name, f.value); err != nil {
			return err
		}
	}
	for _, f := range s.Files {
		if err := f.write(form); err != nil {
			return err
		}
	}
	return nil
}

func (f File) write(form *multipart.Writer) error {
	header := textproto.MIMEHeader{}
	header.Set("Content-Disposition", multipart.FileContentDisposition("files", f.Name))
	if f.ContentType != "" {
		header.Set("Content-Type", f.ContentType)
	}
	part, err := form.CreatePart(header)
	if err != nil {
		return err
	}
	body, err := f.Open()
	if err != nil {
		return fault.Wrap(fault.Invalid, fmt.Errorf("client: %w", err))
	}
	_, err = io.Copy(part, body)
	return errors.Join(err, body.Close())
}

// do sends a request and turns a refusal into a fault.
func (c *Client) do(req *http.Request) (*http.Response, error) {
	req.Header.Set("X-Api-Key", c.Key)
	hc := cmp.Or(c.HTTP, shared)
	resp, err := hc.Do(req)
	if err != nil {
		if own, ok := errors.AsType[*fault.Error](err); ok {
			return nil, own
		}
		return nil, fault.New(fault.Transient, CodeUnreachable, "client: %w", err)
	}
	if resp.StatusCode < 300 {
		return resp, nil
	}
	defer resp.Body.Close()
	return nil, problem(resp)
}

// CodeUnreachable is the code of a request that got no answer.
const CodeUnreachable = "UNREACHABLE"

// problem reads a refusal (RFC 9457), or one in the words of Kubo.
func problem(resp *http.Response) error {
	body, err := io.ReadAll(io.LimitReader(resp.Body, MaxAnswer))
	if err != nil {
		return fault.New(fault.Transient, CodeUnreachable, "client: %s: %w", resp.Status, err)
	}
	var p struct{ Code, Detail string }
	var kubo struct{ Message, Reason string }
	if json.Unmarshal(body, &p) != nil || p.Detail == "" {
		p.Code, p.Detail = "", string(bytes.TrimSpace(body))
		if json.Unmarshal(body, &kubo) == nil && kubo.Message != "" {
			p.Code, p.Detail = kubo.Reason, kubo.Message
		}
	}
	e := fault.New(kindOf(resp.StatusCode), p.Code, "%s: %s", resp.Status, p.Detail)
	if d, err := time.ParseDuration(resp.Header.Get("Retry-After") + "s"); err == nil {
		e = e.After(d)
	}
	return e
}

func kindOf(status int) fault.Kind {
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden:
		return fault.Denied
	case http.StatusNotFound:
		return fault.NotFound
	case http.StatusConflict:
		return fault.Conflict
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return fault.Transient
	}
	if status < 500 {
		return fault.Invalid
	}
	return fault.Internal
}

func decode[T any](resp *http.Response) (v T, err error) {
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, MaxAnswer+1))
	if err != nil {
		return v, fault.New(fault.Transient, CodeUnreachable, "client: %w", err)
	}
	if len(body) > MaxAnswer {
		return v, fmt.Errorf("client: the answer is longer than %d bytes", MaxAnswer)
	}
	if err := json.Unmarshal(body, &v); err != nil {
		return v, fmt.Errorf("client: the answer is not what the contract says: %w", err)
	}
	return v, nil
}
