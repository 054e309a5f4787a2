package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/verae/archive/client"
	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/internal/serve"
	"github.com/verae/archive/wire"
)

// archivesCmd shows the archives, and carries out what is decided about them.
type archivesCmd struct {
	List   archivesList   `cmd:"" default:"1" help:"Show the archives, their state, and what to do about it."`
	Accept archivesAccept `cmd:"" help:"Let an archive in that was restored as a new generation. Older generations are fenced for ever."`
	Retire archivesRetire `cmd:"" help:"Take an archive out of the roster, for good."`
	Lost   archivesLost   `cmd:"" help:"List records that an archive acknowledged and that no archive has."`
}

type archivesList struct{}

// Run prints the archives.
func (archivesList) Run(s *session) error {
	raw, err := s.client.Archives(s.ctx)
	if err != nil {
		return err
	}
	return s.archives(raw)
}

type archivesAccept struct {
	Archive string `arg:"" name:"id/gN" help:"Archive and generation, such as archive-a/g2."`
	Key     string `help:"Ed25519 public key of the generation, in base64; default: that of the process which says hello." placeholder:"BASE64"`
}

// Run accepts a generation.
func (c *archivesAccept) Run(s *session) error {
	id, generation, err := parseGeneration(c.Archive)
	if err != nil {
		return err
	}
	raw, err := s.client.AcceptArchive(s.ctx, id, generation, c.Key)
	if err != nil {
		return err
	}
	return s.archives(raw)
}

// parseGeneration reads an archive with a generation.
func parseGeneration(text string) (wire.ArchiveID, int, error) {
	name, number, found := strings.Cut(text, "/g")
	generation, err := strconv.Atoi(number)
	if !found || err != nil || generation < 1 {
		return "", 0, fault.New(fault.Invalid, "", "%q is no archive with a generation; write it like archive-a/g2", text)
	}
	id, err := wire.ParseArchiveID(name)
	return id, generation, fault.Wrap(fault.Invalid, err)
}

type archivesRetire struct {
	Archive string `arg:"" name:"id" help:"Archive to retire."`
	Force   bool   `help:"Also if records have too few copies without it."`
}

// Run retires an archive.
func (c *archivesRetire) Run(s *session) error {
	id, err := wire.ParseArchiveID(c.Archive)
	if err != nil {
		return fault.Wrap(fault.Invalid, err)
	}
	raw, err := s.client.RetireArchive(s.ctx, id, c.Force)
	if err != nil {
		return err
	}
	return s.archives(raw)
}

type archivesLost struct {
	Archive string `arg:"" name:"id" help:"Archive that lost them."`
}

// Run prints the lost records, a line each. While the list may grow, the exit
// code says so.
func (c *archivesLost) Run(s *session) error {
	id, err := wire.ParseArchiveID(c.Archive)
	if err != nil {
		return fault.Wrap(fault.Invalid, err)
	}
	loss, err := s.loss(id) // before the list: what is settled meanwhile is accounted for there
	if err != nil {
		return err
	}
	var pending error
	for after, first := (wire.RecordID{}), true; ; first = false {
		page, err := s.client.LostRecords(s.ctx, id, after)
		if err != nil {
			return err
		}
		if first {
			pending = s.accounting(id, page.Accounting, loss)
		}
		if s.json {
			if err := s.print(page, nil); err != nil {
				return err
			}
		} else {
			for _, r := range page.Records {
				s.line(r.RecordID, r.Kind, r.TenantID, "submission", r.SubmissionID, "about", r.SHA256)
			}
		}
		if !page.More || len(page.Records) == 0 {
			return pending
		}
		after = page.Records[len(page.Records)-1].RecordID
	}
}

// loss is what is known of a loss of an archive.
type loss struct {
	known bool
	at    wire.Time // when it showed; empty: unknown
}

// loss asks whether an archive lost something. One that is not enrolled is not
// known to have.
func (s *session) loss(id wire.ArchiveID) (l loss, err error) {
	raw, err := s.client.Archives(s.ctx)
	if err != nil {
		return l, err
	}
	var list struct {
		Archives []struct {
			ArchiveID   wire.ArchiveID
			LostRecords uint64
			Lost        *struct{ At wire.Time }
		}
	}
	if err := json.Unmarshal(raw, &list); err != nil {
		return l, fmt.Errorf("the answer is not what the contract says: %w", err)
	}
	for _, a := range list.Archives {
		if a.ArchiveID != id {
			continue
		}
		l.known = a.Lost != nil || a.LostRecords > 0
		if a.Lost != nil {
			l.at = a.Lost.At
		}
	}
	return l, nil
}

// accounting prints how far an archive is accounted for. Its error says that this
// has not ended.
func (s *session) accounting(id wire.ArchiveID, a *client.Accounting, l loss) error {
	say := func(parts ...any) {
		if !s.json {
			s.line(append([]any{id}, parts...)...)
		}
	}
	switch {
	case a == nil && !l.known:
		say("was never accounted for: nothing is known to be lost")
		return nil
	case a == nil || a.DoneAt != "" && earlier(a.StartedAt, l.at):
		say("lost records, and is not accounted for yet: that begins by itself, and until it has ended the list may lack some")
	case a.DoneAt == "":
		say("is being accounted for since", a.StartedAt, fmt.Sprintf("%d submissions looked at, %d records acknowledged, %d absent, %d lost, %d undecided so far", a.Submissions, a.Records, a.Absent, a.Lost, a.Undecided))
	default:
		say("was accounted for at", a.DoneAt, fmt.Sprintf("%d records acknowledged, %d absent, %d lost", a.Records, a.Absent, a.Lost))
		return nil
	}
	return &serve.ExitError{Code: serve.ExitPending, Err: errors.New("the archive is not accounted for yet: ask again later")}
}

// earlier reports whether a is before b, as far as both are known.
func earlier(a, b wire.Time) bool {
	x, known := a.Instant()
	y, ok := b.Instant()
	return known && ok && x.Before(y)
}

// archives prints a list of archives as the server sent it.
func (s *session) archives(raw json.RawMessage) error {
	if s.json {
		var line bytes.Buffer
		if err := json.Compact(&line, raw); err != nil {
			return err
		}
		s.line(line.String())
		return nil
	}
	var list struct {
		Archives []struct {
			ArchiveID          wire.ArchiveID
			State, Reason      string
			Records            uint64
			LastHelloAt        wire.Time
			AcceptedGeneration int
			LostRecords        uint64
			Lost               *struct{ Reason, Detail string }
			Advice             string
			Mirror             *struct{ State, Reason string }
		}
	}
	if err := json.Unmarshal(raw, &list); err != nil {
		return fmt.Errorf("the answer is not what the contract says: %w", err)
	}
	for _, a := range list.Archives {
		if a.Reason != "" {
			a.State += " (" + a.Reason + ")"
		}
		s.line(a.ArchiveID, a.State, a.Records, "records, generation", a.AcceptedGeneration, "last heard", a.LastHelloAt)
		if a.Lost != nil {
			s.line("  lost records:", a.Lost.Reason, a.Lost.Detail)
		}
		if a.LostRecords > 0 {
			s.line("  lost the bytes of", a.LostRecords, "records")
		}
		if m := a.Mirror; m != nil && m.State != "trusted" {
			s.line("  asked by every lookup, its filter is not mirrored now:", strings.TrimSuffix(m.State+", "+m.Reason, ", "))
		}
		if a.Advice != "" {
			s.line("  what to do:", a.Advice)
		}
	}
	return nil
}
