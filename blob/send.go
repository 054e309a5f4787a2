package blob

import (
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"
)

// Entity is a file as it is sent at one address.
type Entity struct {
	File   // ContentType is sent as it is: see the function ContentType
	ETag   string
	Vary   string      // the request headers that chose it, beside those that say who asks
	Header http.Header // more headers of 200, 206 and 304; nil: none
}

// Send answers GET or HEAD of e, which the caller may see: conditional requests
// and one range of bytes included. It returns an error while nothing was sent
// yet, with Content-Range set if that is a range behind the end. When bytes fail
// later it breaks the connection off by panicking with http.ErrAbortHandler.
func (h *Handler) Send(w http.ResponseWriter, r *http.Request, e Entity) error {
	if match := r.Header.Values("If-Match"); len(match) > 0 && !MatchesETag(match, e.ETag, true) {
		return refuse(http.StatusPreconditionFailed, "PRECONDITION_FAILED", "the file is %s and no other, which If-Match excludes", e.ETag)
	}
	if MatchesETag(r.Header.Values("If-None-Match"), e.ETag, false) {
		e.common(w.Header())
		w.WriteHeader(http.StatusNotModified)
		return nil
	}
	s, ok := sectionOf(r, e.ETag, e.Size)
	if !ok {
		w.Header().Set("Content-Range", fmt.Sprintf("bytes */%d", e.Size))
		return refuse(http.StatusRequestedRangeNotSatisfiable, "RANGE_NOT_SATISFIABLE", "the range begins behind the end: there are %d bytes", e.Size)
	}
	if r.Method == http.MethodHead {
		e.describe(w, s)
		return nil
	}
	return h.sendBytes(w, r, e, s)
}

// sendBytes answers with a section.
func (h *Handler) sendBytes(w http.ResponseWriter, r *http.Request, e Entity, s section) error {
	body, err := e.Open(s.off, s.length)
	if err != nil {
		return fmt.Errorf("blob: send %s: %w", e.ETag, err)
	}
	defer func() {
		if err := body.Close(); err != nil {
			h.cfg.Log.WarnContext(r.Context(), "closing a file", "etag", e.ETag, "err", err)
		}
	}()
	p := &pieces{left: s.length, body: body, buf: h.buf.Get().(*[]byte)}
	defer h.buf.Put(p.buf)
	// What fails at once can still be told in words.
	if err := p.next(); err != nil {
		return fmt.Errorf("blob: send %s: %w", e.ETag, err)
	}
	e.describe(w, s)
	if err := h.stream(w, p); err != nil {
		h.cfg.Log.WarnContext(r.Context(), "download broken off", "etag", e.ETag, "err", err)
		panic(http.ErrAbortHandler) // a clean end would make the part a file
	}
	return nil
}

// describe begins the answer with a section.
func (e *Entity) describe(w http.ResponseWriter, s section) {
	h := w.Header()
	e.common(h)
	h.Set("Content-Length", strconv.FormatInt(s.length, 10))
	h.Set("Content-Type", e.ContentType)
	h.Set("Content-Disposition", Disposition(e.Name))
	h.Set("Repr-Digest", "sha-256=:"+base64.StdEncoding.EncodeToString(e.SHA256[:])+":") // RFC 9530: of the whole, also beside a part
	status := http.StatusOK
	if s.part {
		h.Set("Content-Range", s.contentRange(e.Size))
		status = http.StatusPartialContent
	}
	w.WriteHeader(status)
}

// stream sends the piece at hand and all others, each under a deadline of its
// own. The server takes the last one back when the answer is out.
func (h *Handler) stream(w http.ResponseWriter, p *pieces) error {
	rc := http.NewResponseController(w)
	for {
		if err := rc.SetWriteDeadline(time.Now().Add(h.cfg.WriteTimeout)); err != nil && !errors.Is(err, http.ErrNotSupported) {
			return err
		}
		if _, err := w.Write(p.piece); err != nil {
			return err
		}
		if p.left == 0 {
			return nil
		}
		if err := p.next(); err != nil {
			return err
		}
	}
}

// pieces cuts a body into pieces and holds it to its length: the last piece is
// given out only after the reader ended cleanly, at the right place.
type pieces struct {
	left  int64 // bytes behind piece
	body  io.Reader
	buf   *[]byte
	piece []byte
}

var errLength = errors.New("blob: the file has not the length of its record")

func (p *pieces) next() error {
	p.piece = (*p.buf)[:min(p.left, sendStep)]
	if _, err := io.ReadFull(p.body, p.piece); errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("%w: %d bytes are missing, or fewer", errLength, p.left)
	} else if err != nil {
		return err
	}
	if p.left -= int64(len(p.piece)); p.left > 0 {
		return nil
	}
	var more [1]byte
	switch n, err := io.ReadFull(p.body, more[:]); {
	case n > 0:
		return fmt.Errorf("%w: there are more bytes", errLength)
	case !errors.Is(err, io.EOF):
		return err
	}
	return nil
}
