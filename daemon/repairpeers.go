package daemon

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/verae/archive/archive"
	"github.com/verae/archive/blob"
	"github.com/verae/archive/bus"
	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/wire"
)

// helpers are the archives that a repair asks. They stay the same until it ends:
// one that falls silent meanwhile does not answer, which is not the same as one
// that has nothing.
type helpers struct {
	archive.Peers
	alive []wire.ArchiveID
}

// Alive is that of archive.Peers.
func (h helpers) Alive() []wire.ArchiveID { return h.alive }

// meetPeers begins to hear the other archives, waits until all have been heard
// that can be, and calls the roll.
func (r *archiveRepair) meetPeers(ctx context.Context) (leave func() error, err error) {
	conn, err := bus.Connect(bus.Config{URL: r.cfg.NATSURL, Name: "repair-" + r.cfg.ArchiveID, NKeyFile: r.cfg.NKeyFile, Log: r.log})
	if err != nil {
		return nil, err
	}
	peers, err := bus.NewPeers(conn, bus.PeersConfig{Self: wire.ArchiveID(r.cfg.ArchiveID), Log: r.log})
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	leave = func() error { peers.Close(); return conn.Close() }
	if err := peers.Settle(ctx); err != nil {
		return nil, errors.Join(err, leave())
	}
	heard, unheard, err := peers.Roll(ctx)
	r.peers, r.unheard = helpers{peers, heard}, notAllHeard(unheard, err)
	return leave, nil
}

// notAllHeard says why what nobody has that was heard may be somewhere; nil if
// every enrolled archive was heard.
func notAllHeard(unheard []wire.ArchiveID, err error) error {
	if err != nil {
		return fault.New(fault.Transient, "NO_ROSTER",
			"daemon: something is missing that no archive has which was heard, and no aggregator says whether that is all of them; start an aggregator and run the repair again, or give --offline to do without: %w", err)
	}
	if len(unheard) == 0 {
		return nil
	}
	names := make([]string, len(unheard))
	for i, id := range unheard {
		names[i] = string(id)
	}
	return fault.New(fault.Transient, "NOT_HEARD",
		"daemon: something is missing that no archive has which was heard, and these are enrolled, may have it and were not heard: %s; run the repair again when they are, or when they are retired, or give --offline to do without", strings.Join(names, ", "))
}

// sources are the other archives as sources of files. silent is set if one of
// them, or all, could not be asked, or if what one sent could not be kept: such a
// file is not lost.
func (r *archiveRepair) sources(silent *error) (sources []blob.CopySource) {
	if r.peers == nil {
		return nil
	}
	alive := r.peers.Alive()
	*silent = r.unheard
	if len(alive) == 0 {
		*silent = fault.New(fault.Transient, "NO_PEERS", "daemon: files are missing and no other archive was heard that could have them; start the others, or give --offline to do without")
	}
	for _, peer := range alive {
		sources = append(sources, func(ctx context.Context, ref blob.FileRef, write func([]byte) error) error {
			err := r.copyFrom(ctx, peer, ref, write)
			if why := unsure(peer, ref, err); why != nil {
				*silent = why
			}
			return err
		})
	}
	return sources
}

// unsure says of what came of asking an archive for a file that it tells nothing;
// nil if it does.
func unsure(peer wire.ArchiveID, ref blob.FileRef, err error) error {
	switch {
	case err == nil:
	case fault.Is(err, fault.Internal):
		return fmt.Errorf("daemon: file %x of archive %s: %w", ref.SHA256, peer, err)
	case fault.Is(err, fault.Transient):
		return fault.New(fault.Transient, "NO_ANSWER", "daemon: archive %s may have file %x and does not answer; run the repair again when it does, or give --offline to do without: %w", peer, ref.SHA256, err)
	}
	return nil
}

// copyFrom sends the bytes that an archive has of a file. One whose copy is
// damaged, or that sends what can not be true, has none: others may.
func (r *archiveRepair) copyFrom(ctx context.Context, peer wire.ArchiveID, ref blob.FileRef, write func([]byte) error) error {
	for off := int64(0); off < ref.Size; {
		data, size, err := r.peers.File(ctx, peer, ref.SHA256, ref.CID, off, int(min(wire.FragmentSize, ref.Size-off)))
		if fault.Is(err, fault.Corrupt) {
			return fault.Wrap(fault.NotFound, err)
		}
		if err != nil {
			return err
		}
		if size != ref.Size || len(data) == 0 {
			return fault.New(fault.NotFound, "WRONG_ANSWER", "daemon: archive %s has %d bytes of the %d of file %x", peer, size, ref.Size, ref.SHA256)
		}
		off += int64(len(data))
		if err := write(data); err != nil {
			return err
		}
	}
	return nil
}

// ask is refetch for a dry run: who says that he has the first byte is believed.
func (r *archiveRepair) ask(ctx context.Context, ref blob.FileRef) error {
	if r.peers == nil {
		return fault.New(fault.NotFound, blob.CodeNoCopy, "daemon: nobody was asked for file %x", ref.SHA256)
	}
	var silent error
	var refusals []error
	r.sources(&silent)
	for _, peer := range r.peers.Alive() {
		_, size, err := r.peers.File(ctx, peer, ref.SHA256, ref.CID, 0, 1)
		if err == nil && size == ref.Size {
			return nil
		}
		if why := unsure(peer, ref, err); why != nil {
			silent = why
		}
		refusals = append(refusals, err)
	}
	return r.settled(ref, fault.New(fault.NotFound, blob.CodeNoCopy, "daemon: no other archive has file %x: %w", ref.SHA256, errors.Join(refusals...)), silent)
}

// settled returns what came of looking for a file: that nobody has it only if
// nobody can have it who was not heard, or if it was given up before.
func (r *archiveRepair) settled(ref blob.FileRef, err, silent error) error {
	if fault.Is(err, fault.NotFound) && silent != nil && !r.known[ref.SHA256] {
		return silent
	}
	return err
}
