package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/verae/archive/client"
	"github.com/verae/archive/harness/world"
	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/internal/need"
	"github.com/verae/archive/wire"
)

// Shape of the kill test. VERAE_SEED replays a run.
const (
	killRounds      = 10
	killRoundsLong  = 100
	killRoundsShort = 4 // beside the race detector
	killClients     = 6
	killDigests     = 25 // few, so that submissions meet
)

// acceptedPart is what a client was told is safe.
type acceptedPart struct {
	accepted wire.Accepted
	tenant   wire.TenantID
	digest   wire.Digest
	metadata string
	file     wire.Digest // zero: none
}

// Processes are killed with SIGKILL at random, under load, and started again.
// Whatever a client was told is accepted ends with its seal and its receipts,
// each once; a digest has one seal; a client that repeats a request that got no
// answer makes no second record. Whoever listens hears of one end of a
// submission, in the same bytes each time.
func TestKillAnyProcessUnderLoad(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	if text := os.Getenv("VERAE_SEED"); text != "" {
		n, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		seed = n
	}
	rounds := need.Rounds(killRounds, killRoundsLong)
	if testing.Short() {
		rounds = killRoundsShort
	}
	t.Logf("%d rounds, VERAE_SEED=%d", rounds, seed)
	rng := rand.New(rand.NewPCG(seed, seed))
	w := startWorld(t, world.Config{Env: []string{"WAIT_ARCHIVE_MS=500", "UPLOAD_IDLE_S=2"}})

	events := listen(t, w)
	load, stopLoad := context.WithCancel(t.Context())
	var clients sync.WaitGroup
	all := make([][]acceptedPart, killClients)
	first := make(chan struct{})
	accepted := sync.OnceFunc(func() { close(first) })
	for i := range killClients {
		clients.Go(func() { all[i] = submitUntil(load, t, w, i, accepted) })
	}
	for round := range rounds {
		name := victim(w, rng, round)
		select {
		case <-time.After(time.Duration(rng.IntN(400)) * time.Millisecond): // the moment is random, nothing is measured by it
		case <-t.Context().Done():
		}
		if err := w.Kill(t.Context(), name); err != nil {
			t.Fatal(err)
		}
		if err := w.Restart(t.Context(), name); err != nil {
			t.Fatal(err)
		}
	}
	select {
	case <-first:
	case <-time.After(time.Minute): // on a slow machine no client came through between two kills
		t.Error("a minute after the last kill nothing was accepted")
	}
	stopLoad()
	clients.Wait()
	if err := w.WaitUp(t.Context(), 3); err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, parts := range all {
		n += len(parts)
	}
	t.Logf("%d submissions were accepted", n)
	checkAccepted(t, w, all)
	events.stop(all)
}

// victim names the program that dies in a round: every kind at least twice.
func victim(w *world.World, rng *rand.Rand, round int) string {
	names := w.Names()
	switch round {
	case 0, 1:
		return world.Aggregator
	case 2, 3:
		return names[1+rng.IntN(len(names)-1)]
	}
	return names[rng.IntN(len(names))]
}

// submitUntil submits until ctx ends, repeating every request until it is
// answered, as a client does that does not know what became of it. It calls told
// for each that was accepted.
func submitUntil(ctx context.Context, t *testing.T, w *world.World, id int, told func()) (parts []acceptedPart) {
	tenant := []wire.TenantID{"acme", "globex"}[id%2]
	for n := 0; ctx.Err() == nil; n++ {
		p := acceptedPart{
			tenant: tenant, digest: sum(fmt.Append(nil, "document ", n%killDigests)),
			metadata: fmt.Sprintf(`{"client":%d,"n":%d}`, id, n),
		}
		s := client.Submission{SHA256: p.digest, PublicMetadata: []byte(p.metadata), IdempotencyKey: fmt.Sprintf("%d-%d", id, n)}
		if n%4 == 0 {
			data := randomBytes(300_000, uint64(id*1_000_000+n))
			p.file = sum(data)
			s.Files = []client.File{bytesFile("file", data)}
		}
		accepted, ok := untilAccepted(ctx, t, w.Client(tenant), s)
		if ok {
			p.accepted = accepted
			parts = append(parts, p)
			told()
		}
	}
	return parts
}

func untilAccepted(ctx context.Context, t *testing.T, c *client.Client, s client.Submission) (wire.Accepted, bool) {
	for ctx.Err() == nil {
		try, stop := context.WithTimeout(ctx, 20*time.Second)
		accepted, err := c.Submit(try, s)
		stop()
		switch {
		case err == nil:
			return accepted, true
		case fault.Is(err, fault.Transient), fault.Is(err, fault.Conflict):
		case errors.Is(err, context.Canceled):
		default:
			t.Errorf("a request was refused: %v", err)
			return wire.Accepted{}, false
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
		}
	}
	return wire.Accepted{}, false
}

// checkAccepted waits for the end of everything that was accepted, and then
// checks what the archives show.
func checkAccepted(t *testing.T, w *world.World, all [][]acceptedPart) {
	t.Helper()
	seals, leaves := map[wire.Digest]string{}, map[int64]wire.Digest{}
	for _, p := range slices.Concat(all...) {
		seal := ended(t, w.Client(p.tenant), p).Receipts[0]
		if before := seals[p.digest]; before != "" && before != seal.Certificate {
			t.Errorf("%s has two seals", p.digest)
		}
		seals[p.digest] = seal.Certificate
		if d, taken := leaves[*seal.LeafIndex]; taken && d != p.digest {
			t.Errorf("leaf %d belongs to %s and %s", *seal.LeafIndex, d, p.digest)
		}
		leaves[*seal.LeafIndex] = p.digest
	}
	shown := map[wire.TenantID]map[wire.Digest]*wire.Job{"acme": {}, "globex": {}}
	for _, p := range slices.Concat(all...) {
		if shown[p.tenant][p.digest] == nil {
			awaitJob(t, w.Client(p.tenant), p.digest, func(job *wire.Job) bool {
				shown[p.tenant][p.digest] = job
				return job.Complete
			})
		}
		checkPart(t, shown[p.tenant][p.digest], p)
	}
}

// ended returns the completed job of an accepted submission.
func ended(t *testing.T, c *client.Client, p acceptedPart) *wire.Job {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), 2*time.Minute)
	defer stop()
	for {
		outcome, err := c.Job(ctx, p.accepted, true)
		if err == nil && outcome.Job != nil && outcome.Job.Status == wire.StatusCompleted {
			return outcome.Job
		}
		if err == nil && outcome.Job != nil && outcome.Job.Status == wire.StatusFailed || ctx.Err() != nil {
			t.Fatalf("submission %s was accepted and is lost: %+v, %v", p.accepted.SubmissionID, outcome, err)
		}
	}
}

// checkPart: what was accepted is there, once.
func checkPart(t *testing.T, job *wire.Job, p acceptedPart) {
	t.Helper()
	records, files := 0, 0
	for _, r := range job.Receipts {
		if string(r.PublicMetadata) == p.metadata {
			records++
			if r.SubmissionID != p.accepted.SubmissionID {
				t.Errorf("%s is of submission %s, accepted as %s", p.metadata, r.SubmissionID, p.accepted.SubmissionID)
			}
		}
	}
	for _, f := range job.Files {
		if f.SHA256 == p.file {
			files++
		}
	}
	want := 0
	if !p.file.IsZero() {
		want = 1
	}
	if records != 1 || files != want {
		t.Errorf("%s of %s is there %d times, its file %d times of %d", p.metadata, p.accepted.SubmissionID, records, files, want)
	}
}
