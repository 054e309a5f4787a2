package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/wire"
)

// print prints v as one line of JSON, or calls text.
func (s *session) print(v any, text func()) error {
	if !s.json {
		text()
		return nil
	}
	line, err := json.Marshal(v)
	if err == nil {
		_, err = fmt.Fprintf(s.stdout, "%s\n", line)
	}
	return err
}

func (s *session) line(fields ...any) {
	text := make([]string, len(fields))
	for i, f := range fields {
		text[i] = fmt.Sprint(f)
	}
	fmt.Fprintln(s.stdout, strings.Join(text, "  "))
}

// job prints a job for people: the seal, what is attached, and which archives
// said so.
func (s *session) job(name string, job *wire.Job) {
	s.line(job.Status, job.SHA256, name)
	for _, r := range job.Receipts {
		switch r.Kind {
		case wire.ReceiptSeal:
			again := ""
			if job.AlreadySealed != nil && *job.AlreadySealed {
				again = " (was sealed before)"
			}
			s.line("  sealed  ", r.Timestamp, sealPlace(&r)+again)
		case wire.ReceiptMetadataAttach:
			s.line("  metadata", r.AttachedAt, "on "+archiveList(r.ArchiveIDs), metadataText(r))
		default:
			s.line("  "+r.Kind, r.AttachedAt, "on "+archiveList(r.ArchiveIDs), r.ContentType)
		}
		s.retention("          ", r.Retention)
		s.retention("   private", r.PrivateRetention)
	}
	for _, f := range job.Files {
		s.line("  file    ", f.AttachedAt, "on "+archiveList(f.ArchiveIDs), f.CID, f.Size, "bytes", f.Name)
		s.retention("          ", f.Retention)
	}
	if job.ArchivesQueried {
		s.line("  archives", archiveStates(job))
	}
}

// sealPlace says where on its chain a seal is, as far as the server told.
func sealPlace(r *wire.Receipt) string {
	var text []string
	if r.BlockIndex != nil {
		text = append(text, fmt.Sprintf("block %d", *r.BlockIndex))
	}
	if r.LeafIndex != nil {
		text = append(text, fmt.Sprintf("leaf %d", *r.LeafIndex))
	}
	if r.Chain != "" {
		text = append(text, "of "+r.Chain)
	}
	return strings.Join(text, " ")
}

func archiveList(ids []wire.ArchiveID) string {
	text := make([]string, len(ids))
	for i, id := range ids {
		text[i] = string(id)
	}
	return strings.Join(text, ", ")
}

func metadataText(r wire.Receipt) string {
	var parts []string
	if r.PublicMetadata != nil {
		parts = append(parts, "public "+string(r.PublicMetadata))
	}
	if r.PrivateMetadata != nil {
		parts = append(parts, "private "+string(r.PrivateMetadata))
	}
	return strings.Join(parts, "  ")
}

// archiveStates says of every enrolled archive whether it has records, has
// none, or did not answer.
func archiveStates(job *wire.Job) string {
	has := map[wire.ArchiveID]bool{}
	for _, r := range job.Receipts {
		for _, id := range r.ArchiveIDs {
			has[id] = true
		}
	}
	for _, f := range job.Files {
		for _, id := range f.ArchiveIDs {
			has[id] = true
		}
	}
	missing := map[wire.ArchiveID]bool{}
	for _, id := range job.ArchivesMissing {
		missing[id] = true
	}
	var parts []string
	for _, id := range job.ArchivesExpected {
		state := "no records"
		switch {
		case has[id]:
			state = "has records"
		case missing[id]:
			state = "did not answer"
		}
		parts = append(parts, string(id)+" "+state)
	}
	if !job.Complete {
		parts = append(parts, "the answer is not complete ("+job.CompleteReason+")")
	}
	return strings.Join(parts, ", ")
}

// progress opens a file whose reads move a bar on a terminal. What can not be
// opened, or is a directory, is the caller's slip.
func (s *session) progress(path string) (io.ReadCloser, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fault.Wrap(fault.Invalid, err)
	}
	info, err := f.Stat()
	if err == nil && info.IsDir() {
		err = fault.New(fault.Invalid, "USAGE", "%s is a directory: name the files in it", path)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return reader{io.TeeReader(f, s.bar(path, info.Size())), f}, nil
}

// bar is a progress bar on standard error if that is a terminal. A size of -1 is
// not known.
func (s *session) bar(name string, size int64) io.Writer {
	f, ok := s.stderr.(*os.File)
	if s.json || !ok || !term.IsTerminal(int(f.Fd())) {
		return io.Discard
	}
	return progressbar.NewOptions64(size, progressbar.OptionSetWriter(s.stderr), progressbar.OptionShowBytes(true),
		progressbar.OptionSetDescription(name), progressbar.OptionClearOnFinish())
}

type reader struct {
	io.Reader
	io.Closer
}
