package daemon

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/verae/archive/archive"
	"github.com/verae/archive/blob"
	"github.com/verae/archive/bus"
	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/internal/serve"
	"github.com/verae/archive/wire"
)

// onePeer is an archive that answers every question for a file alike.
type onePeer struct {
	archive.Peers
	data []byte
	size int64
	err  error
}

func (p onePeer) Alive() []wire.ArchiveID { return []wire.ArchiveID{"archive-b"} }

func (p onePeer) FileProfile(context.Context, wire.ArchiveID, wire.Digest, string) (blob.Profile, error) {
	return blob.Profile{}, errors.New("not known")
}

func (p onePeer) File(context.Context, wire.ArchiveID, wire.Digest, string, int64, int) ([]byte, int64, error) {
	return p.data, p.size, p.err
}

// A file is lost only if whoever was asked has told that he has none, or has
// sent what is none: not if he could not tell, nor if this disk did not take it.
func TestRepairGivesUpNoFileThatAPeerMayHave(t *testing.T) {
	full := errors.New("input/output error")
	for name, tc := range map[string]struct {
		peer  onePeer
		write error
		kind  fault.Kind // of what the source says
		lost  bool       // if nobody else has it
	}{
		"has none":          {onePeer{err: fault.New(fault.NotFound, archive.CodeNoFile, "no")}, nil, fault.NotFound, true},
		"has a damaged one": {onePeer{err: fault.New(fault.Corrupt, "BLOB_CORRUPT", "no")}, nil, fault.NotFound, true},
		"another length":    {onePeer{data: []byte("abcd"), size: 4}, nil, fault.NotFound, true},
		"other bytes":       {onePeer{data: []byte("abc"), size: 3}, fault.New(fault.Invalid, blob.CodeSizeMismatch, "no"), fault.Invalid, true},
		"is silent":         {onePeer{err: fault.New(fault.Transient, "TIMEOUT", "no")}, nil, fault.Transient, false},
		"fails":             {onePeer{err: errors.New("input/output error")}, nil, fault.Internal, false},
		"this disk fails":   {onePeer{data: []byte("abc"), size: 3}, full, fault.Internal, false},
	} {
		t.Run(name, func(t *testing.T) {
			var silent error
			sources := (&archiveRepair{peers: tc.peer}).sources(&silent)
			err := sources[0](t.Context(), blob.FileRef{Size: 3}, func([]byte) error { return tc.write })
			if err == nil || fault.KindOf(err) != tc.kind || (silent == nil) != tc.lost {
				t.Errorf("%v, silent: %v", err, silent)
			}
		})
	}
}

// A file that nobody has who was heard is given up only if that is everybody, or
// if it was before.
func TestRepairGivesUpNoFileUntilAllAreHeard(t *testing.T) {
	none := onePeer{err: fault.New(fault.NotFound, archive.CodeNoFile, "no")}
	silence := fault.New(fault.Transient, "TIMEOUT", "nobody answers")
	two := []wire.ArchiveID{"archive-c", "archive-d"}
	ref := blob.FileRef{SHA256: [32]byte{1}, Size: 3}
	for name, tc := range map[string]struct {
		peer    onePeer
		unheard error
		known   bool
		code    string // of a dry run; empty if the file would be fetched
	}{
		"all were heard":         {none, notAllHeard(nil, nil), false, blob.CodeNoCopy},
		"two were not":           {none, notAllHeard(two, nil), false, "NOT_HEARD"},
		"nobody knows":           {none, notAllHeard(nil, silence), false, "NO_ROSTER"},
		"one who was does not":   {onePeer{err: silence}, nil, false, "NO_ANSWER"},
		"one who was has it":     {onePeer{data: []byte("a"), size: 3}, notAllHeard(two, nil), false, ""},
		"it was given up before": {none, notAllHeard(two, nil), true, blob.CodeNoCopy},
	} {
		t.Run(name, func(t *testing.T) {
			r := &archiveRepair{peers: tc.peer, unheard: tc.unheard, known: map[wire.Digest]bool{ref.SHA256: tc.known}}
			err := r.ask(t.Context(), ref)
			if fault.CodeOf(err) != tc.code || (tc.code != "" && tc.code != blob.CodeNoCopy) != fault.Is(err, fault.Transient) {
				t.Errorf("a dry run: %v", err)
			}
			if tc.code == "NOT_HEARD" && !strings.Contains(err.Error(), "archive-c, archive-d") {
				t.Errorf("it names nobody: %v", err)
			}
			var silent error
			_ = r.sources(&silent)[0](t.Context(), ref, func([]byte) error { return nil })
			err = r.settled(ref, fault.New(fault.NotFound, blob.CodeNoCopy, "nobody has it"), silent)
			if tc.code != "" && fault.CodeOf(err) != tc.code {
				t.Errorf("a repair: %v", err)
			}
		})
	}
}

// An archive that is enrolled and does not run keeps a repair from giving up a
// file that no other has, over a real server.
func TestRepairAsksTheRoster(t *testing.T) {
	a := newAiling(t, 3)
	fleet := newArchivedDir(t)
	fleet.bus()
	conn, err := bus.Connect(bus.Config{URL: fleet.nats, Name: "test"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	roster, err := bus.OpenRoster(bus.RosterConfig{Path: filepath.Join(t.TempDir(), "roster.json"), Create: true, Open: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { roster.Close() })
	stop, err := roster.ServeRoster(conn)
	if err == nil {
		err = roster.Listen(conn)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	others := map[string]*archivedDir{}
	for _, id := range []string{"archive-b", "archive-c"} {
		b := &archivedDir{t: t, dir: filepath.Join(t.TempDir(), id), nats: fleet.nats}
		b.command(0, "init", "--archive-id", id)
		b.run("--archive-id", id)
		others[id] = b
	}
	awaitThat(t, "both are enrolled", func() bool { return len(roster.Enrolled()) == 2 })
	others["archive-c"].stop()
	a.remove(filepath.Join("files", "files", "*"), "")

	before := hashes(t, filepath.Join(a.cfg.DataDir, "records"))
	a.repair(serve.ExitUnreachable, "--nats-url", fleet.nats)
	if diff := cmp.Diff(before, hashes(t, filepath.Join(a.cfg.DataDir, "records"))); diff != "" {
		t.Errorf("it gave something up: %s", diff)
	}
	others["archive-c"].run("--archive-id", "archive-c")
	if out := a.repair(serve.ExitDamaged, "--nats-url", fleet.nats); !strings.Contains(out, "lost: file") {
		t.Errorf("all were heard: %s", out)
	}
}
