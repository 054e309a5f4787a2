package client

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"mime/multipart"
	"net/url"
	"strconv"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/wire"
)

// AddOptions say how a file is added. Their zero values are the server's defaults.
type AddOptions struct {
	ChunkSize int  // bytes in a block
	MaxLinks  int  // links in an inner node
	Seal      bool // as a submission is; otherwise the file is kept and not sealed
}

// Added is what the server says became of a file. Who wants to be sure of the CID
// computes it while the file is read.
type Added struct {
	CID      string
	DAGSize  int64          // bytes of all blocks together
	Accepted *wire.Accepted // of a file that is to be sealed; nil otherwise
}

// Add stores one file under its own digest. It speaks as to Kubo's RPC, and to a
// Kubo if that is where URL leads.
func (c *Client) Add(ctx context.Context, f File, o AddOptions) (Added, error) {
	query := url.Values{"cid-version": {"1"}, "raw-leaves": {"true"}}
	if o.ChunkSize != 0 {
		query.Set("chunker", "size-"+strconv.Itoa(o.ChunkSize))
	}
	if o.MaxLinks != 0 {
		query.Set("max-file-links", strconv.Itoa(o.MaxLinks))
	}
	if o.Seal {
		query.Set("seal", "true")
	}
	f.Name = url.QueryEscape(f.Name) // as clients of Kubo do
	resp, err := c.post(ctx, "/api/v0/add?"+query.Encode(), "", func(form *multipart.Writer) error { return f.write(form) })
	if err != nil {
		return Added{}, err
	}
	defer resp.Body.Close()
	line, err := lastLine(resp.Body)
	if err != nil {
		return Added{}, err
	}
	out := Added{CID: line.Hash}
	if out.DAGSize, err = strconv.ParseInt(line.Size, 10, 64); err != nil {
		return Added{}, fmt.Errorf("client: the answer is not what the contract says: %w", err)
	}
	if line.JobID != "" {
		out.Accepted = &wire.Accepted{JobID: line.JobID, Status: wire.StatusPending, StatusURL: line.StatusURL}
	}
	return out, nil
}

// addLine is the line of an answer that names the file.
type addLine struct {
	Hash, Size string
	JobID      wire.JobID `json:"JobId"`
	StatusURL  string     `json:"StatusUrl"`
}

// lastLine returns the last line of an answer. A server that breaks off, or tells
// of an error in a trailer only, has not sent it.
func lastLine(body io.Reader) (last addLine, err error) {
	lines := json.NewDecoder(io.LimitReader(body, MaxAnswer))
	for err == nil {
		var line addLine
		if err = lines.Decode(&line); err == nil {
			last = line
		}
	}
	if err != io.EOF {
		return last, fault.New(fault.Transient, CodeUnreachable, "client: the answer broke off: %w", err)
	}
	if last.Hash == "" {
		return last, fmt.Errorf("client: the answer names no file")
	}
	return last, nil
}
