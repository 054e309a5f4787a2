package edge

import (
	"cmp"
	"context"
	"net/http"
	"strconv"

	"github.com/verae/archive/blob"
	"github.com/verae/archive/jobs"
	"github.com/verae/archive/splitter"
	"github.com/verae/archive/wire"
)

// postAdd takes one file, as Kubo's add does, and answers once the file and its
// record are acknowledged by PUT_MIN_COPIES archives. It is a submission under
// the file's own digest, which is sealed only if the caller says so.
func (s *Server) postAdd(x *exchange) error {
	q, err := x.query()
	if err != nil {
		return err
	}
	o, err := addOptionsOf(q)
	if err != nil {
		return err
	}
	caller := jobs.Caller{TenantID: x.tenant(), SubmissionID: wire.NewSubmissionID()}
	if caller.IdempotencyKey, err = idempotencyKey(x.r.Header); err != nil {
		return err
	}
	lines := &addLines{x: x, options: o}
	req, err := s.readAdded(x, caller, o, lines)
	if err != nil {
		return err
	}
	file := req.Files[0] // Accept owns req
	var accepted wire.Accepted
	if o.onlyHash {
		req.Abort()
	} else if accepted, err = s.Jobs.Accept(x.r.Context(), caller, req); err != nil {
		return err
	}
	x.endUpload()
	return lines.end(&file, accepted)
}

// readAdded reads the file, to the end of the body. The error leaves no upload
// open.
func (s *Server) readAdded(x *exchange, c jobs.Caller, o addOptions, lines *addLines) (*splitter.Request, error) {
	contentType, _, err := oneHeader(x.r.Header, "Content-Type")
	if err != nil {
		return nil, err
	}
	if err := plainEncoding(x.r.Header); err != nil {
		return nil, err
	}
	config := splitter.FileConfig{
		Config:  splitter.Config{Limits: s.Body, Uploader: countedUploader{s, x}, SubmissionID: c.SubmissionID, TenantID: c.TenantID},
		Profile: o.profile, Sealed: o.seal, Progress: lines.progress,
	}
	if o.onlyHash {
		config.Uploader = nowhere{}
	} else if err := s.Jobs.Room(); err != nil {
		return nil, err
	}
	if err := x.limitBody("MAX_BODY", s.Body.Body, "send a smaller file"); err != nil {
		return nil, err
	}
	return splitter.ReadFile(x.r.Context(), x.body, contentType, config)
}

// addLine is one line of the answer: progress has Bytes, the file itself the
// rest. Size is that of the whole DAG.
type addLine struct {
	Name  string
	Bytes int64  `json:",omitzero"`
	Hash  string `json:",omitzero"`
	Size  string `json:",omitzero"`

	// Ours, of a file that is sealed.
	JobID     wire.JobID `json:"JobId,omitzero"`
	StatusURL string     `json:"StatusUrl,omitzero"`
}

// addLines writes the answer of add, line by line.
type addLines struct {
	x       *exchange
	options addOptions
	told    int64 // bytes, in the last line of progress
	broken  bool  // a line could not be sent: the client left, or does not listen
}

// Lines of progress are sent every progressStep bytes, and the less often the
// larger the file is: a client that listens only after it has spoken must be able
// to leave all of them in its buffers.
const (
	progressStep  = wire.FragmentSize
	progressShare = 32
)

// progress tells how much was taken, once there is enough to tell. The answer
// begins with it, and the body is still being read.
func (l *addLines) progress(name string, n int64) {
	if !l.options.progress || l.options.silent || l.broken || n < l.told+max(progressStep, l.told/progressShare) {
		return
	}
	if l.x.status == 0 {
		if err := l.x.conn.EnableFullDuplex(); err != nil {
			l.broken = true // the answer waits for the body's end
			return
		}
		l.begin()
	}
	l.told = n
	l.write(addLine{Name: name, Bytes: n})
	l.broken = l.broken || l.x.conn.Flush() != nil
}

func (l *addLines) begin() {
	h := l.x.Header()
	h.Set("Content-Type", typeJSON)
	h.Set("X-Chunked-Output", "1")
	l.x.WriteHeader(http.StatusOK)
}

// write sends a line. Whoever does not take it is noticed when the answer ends.
func (l *addLines) write(v addLine) {
	line, err := wire.Encode(v)
	if err == nil {
		_, err = l.x.Write(append(line, '\n'))
	}
	l.broken = l.broken || err != nil
}

// end tells that the file is kept, or hashed.
func (l *addLines) end(f *splitter.File, a wire.Accepted) error {
	if l.x.status == 0 {
		l.begin()
	}
	if l.options.silent {
		return nil
	}
	if l.options.progress && (l.told != f.Size || f.Size == 0) {
		l.write(addLine{Name: f.Name, Bytes: f.Size})
	}
	l.write(addLine{
		Name: cmp.Or(f.Name, f.CID), Hash: f.CID, Size: strconv.FormatInt(f.DAGSize, 10), JobID: a.JobID, StatusURL: a.StatusURL,
	})
	return nil
}

// nowhere takes the bytes of a file that is only hashed.
type nowhere struct{}

func (nowhere) OpenUpload(context.Context, [32]byte, blob.Profile) (splitter.Upload, error) {
	return nowhere{}, nil
}

func (nowhere) ID() string                                       { return "" }
func (nowhere) Write(p []byte) (int, error)                      { return len(p), nil }
func (nowhere) Finish(context.Context) ([]wire.ArchiveID, error) { return nil, nil }
func (nowhere) Abort()                                           {}
