package splitter

import (
	"context"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/url"
	"strings"

	"github.com/verae/archive/blob"
)

// FileConfig is what [ReadFile] needs.
type FileConfig struct {
	Config
	Profile blob.Profile // how the file's DAG is built; it has passed Check
	Sealed  bool         // the request is one like all others; else it is Unsealed
	// Progress is told how many bytes of the file the archives' side has taken so
	// far, with the file's name, by the goroutine that reads. Nil means nobody
	// asks.
	Progress func(name string, sent int64)
}

// ReadFile reads a request that is one file and nothing else from a
// multipart/form-data body, as clients of Kubo send it: in a part of any name,
// its file name escaped as in the query of a URL. A name that does not unescape
// is taken as it is; one slash before it means nothing. The subject is the
// file's own digest.
//
// Promises and errors are those of [ReadMultipart]. A second part, a directory
// or link, and a path in place of a name are refused: they would need a
// directory, which is not kept.
func ReadFile(ctx context.Context, r io.Reader, contentType string, cfg FileConfig) (*Request, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	return cfg.read(ctx, func(d *draft) error {
		boundary, err := boundaryOf(contentType, "multipart/form-data")
		if err != nil {
			return err
		}
		d.profile, d.unsealed, d.in.progress = cfg.Profile, !cfg.Sealed, cfg.Progress
		src := &source{ctx: ctx, r: r, left: d.limits.Body,
			limit: tooLarge("", "MAX_BODY", d.limits.Body, "bytes for a body", "send a smaller file")}
		m := &form{draft: d, frames: newFramer(src, boundary, d.limits.PartHeader)}
		if err := m.onlyFile(multipart.NewReader(m.frames, boundary)); err != nil {
			return err
		}
		return d.check()
	})
}

// onlyFile reads the one part of a body, and the body to its end.
func (m *form) onlyFile(r *multipart.Reader) error {
	for n := 1; ; n++ {
		raw, err := r.NextRawPart()
		switch {
		case m.frames.state == closed && err == io.EOF && n == 1:
			return refuse(CodeBadPart, "", "file argument 'path' is required")
		case m.frames.state == closed && err == io.EOF:
			return m.frames.rest()
		case err != nil:
			return m.explain(n, err)
		case n > 1:
			return refuse(CodeManyFiles, "", "there is more than one part; send one file a request")
		}
		p, err := readPart(n, raw)
		if err != nil {
			return err
		}
		if err := m.takeFile(&p); err != nil {
			return p.locate(err)
		}
	}
}

// takeFile reads a part as a file, whatever its field's name.
func (m *form) takeFile(p *part) error {
	name, err := unescapedName(p)
	if err != nil {
		return err
	}
	f, err := m.newFile(p.field, name, p.contentType)
	if err != nil {
		return err
	}
	m.addSlot(0).file = f
	m.place()
	first, last, err := m.in.fragment(p.body)
	if err != nil {
		return err
	}
	return m.in.pass(m.ctx, f, first, last, p.body)
}

// unescapedName returns the name of a file as its sender means it.
func unescapedName(p *part) (string, error) {
	if media, _, err := mime.ParseMediaType(p.contentType); err == nil && notAFile[media] || strings.HasPrefix(media, "multipart/") {
		return "", refuse(CodeBadPart, p.field, "%s is no file; send one file, directories and links are not kept", media)
	}
	name, err := url.QueryUnescape(p.fileName)
	if err != nil {
		name = p.fileName
	}
	name = strings.TrimPrefix(name, "/")
	if strings.Contains(name, "/") || name == "." || name == ".." {
		return "", refuse(CodeBadPart, p.field, "the file name %s is a path; send the name alone, directories are not kept", clip(name))
	}
	return name, nil
}

// notAFile are the content types by which senders mark what is no file.
var notAFile = map[string]bool{"application/x-directory": true, "application/symlink": true}

// check refuses a configuration. The sender is not to blame for it.
func (c *FileConfig) check() error {
	if err := c.Profile.Check(); err != nil {
		return fmt.Errorf("splitter: FileConfig.Profile: %v", err) // not wrapped, as in Config.read
	}
	return nil
}
