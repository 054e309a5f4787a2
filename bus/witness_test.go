package bus

import (
	"reflect"
	"testing"

	"github.com/verae/archive/bus/server"
	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/wire"
)

type fakeWitness func(wire.WitnessRequest) (wire.WitnessReply, error)

func (f fakeWitness) Add(r wire.WitnessRequest) (wire.WitnessReply, error) { return f(r) }

func TestCheckpointIsShownToOneWitness(t *testing.T) {
	leakCheck(t)
	srv := startServer(t, server.Config{})
	want := wire.WitnessRequest{Key: "log+00000000+AAAA", Old: 3, Proof: []wire.Digest{{1}, {2}}, Checkpoint: "log\n4\nx\n\n— log y\n"}
	var answer wire.WitnessReply
	var refusal error
	witness := fakeWitness(func(r wire.WitnessRequest) (wire.WitnessReply, error) {
		if !reflect.DeepEqual(r, want) {
			t.Errorf("shown %+v", r)
		}
		return answer, refusal
	})
	for _, site := range []struct {
		id      wire.ArchiveID
		witness Witness
	}{{"archive-a", witness}, {"archive-b", nil}} {
		conn := connect(t, srv, string(site.id))
		service, err := ServeArchive(conn, newFakeNode(t, site.id), newFakeBlobs(t), ArchiveConfig{Witness: site.witness})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { service.Drain(t.Context()) })
	}
	conn := connect(t, srv, "aggregator")
	archives, err := NewArchives(conn, static{}, ArchivesConfig{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { archives.Close() })

	answer = wire.WitnessReply{ArchiveID: "archive-a", Size: 4, Cosignature: "— archive-a z\n"}
	if got, err := archives.Show(t.Context(), "archive-a", want); err != nil || got != answer {
		t.Errorf("%+v, %v", got, err)
	}
	_, err = archives.Show(t.Context(), "archive-b", want)
	wantFault(t, err, fault.Transient, CodeUnreachable)
	answer.ArchiveID = "archive-b"
	_, err = archives.Show(t.Context(), "archive-a", want)
	wantFault(t, err, fault.Internal, CodeBadAck)
	refusal = fault.New(fault.Denied, "UNKNOWN_LOG", "no")
	_, err = archives.Show(t.Context(), "archive-a", want)
	wantFault(t, err, fault.Denied, "UNKNOWN_LOG")
}
