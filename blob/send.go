package blob

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"
)

func sendProbe(w http.ResponseWriter, req request) {
	h := w.Header()
	commonHeaders(h, probeCID)
	h.Set("Content-Type", typeOctetStream)
	if req.raw {
		h.Set("Content-Type", typeRaw)
		h.Set("ETag", `"`+probeCID+`.raw"`)
	}
	h.Set("Content-Length", "0")
	w.WriteHeader(http.StatusOK)
}

// send answers for a file that the caller may see.
func (h *Handler) send(w http.ResponseWriter, r *http.Request, req request, file File, body io.Reader) error {
	cid := req.cid.String()
	etag := `"` + cid + `"`
	if match := r.Header.Values("If-Match"); len(match) > 0 && !MatchesETag(match, etag, true) {
		return refuse(http.StatusPreconditionFailed, "PRECONDITION_FAILED", "the file is %s and no other, which If-Match excludes", etag)
	}
	if MatchesETag(r.Header.Values("If-None-Match"), etag, false) {
		commonHeaders(w.Header(), cid)
		w.WriteHeader(http.StatusNotModified)
		return nil
	}
	p := &pieces{left: file.Size, body: body}
	if r.Method != http.MethodHead {
		p.buf = h.buf.Get().(*[]byte)
		defer h.buf.Put(p.buf)
		// What fails at once can still be told in words.
		if err := p.next(); err != nil {
			return fmt.Errorf("blob: send %s: %w", cid, err)
		}
	}
	header := w.Header()
	commonHeaders(header, cid)
	header.Set("Content-Length", strconv.FormatInt(file.Size, 10))
	header.Set("Content-Type", ContentType(file.ContentType))
	header.Set("Content-Disposition", Disposition(firstOf(req.filename, file.Name, cid)))
	w.WriteHeader(http.StatusOK)
	if r.Method != http.MethodHead {
		if err := h.stream(w, p); err != nil {
			h.cfg.Log.WarnContext(r.Context(), "download broken off", "cid", cid, "err", err)
			panic(http.ErrAbortHandler) // a clean end would make the part a file
		}
	}
	return nil
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

func firstOf(names ...string) string {
	for _, n := range names {
		if n != "" {
			return n
		}
	}
	return ""
}
