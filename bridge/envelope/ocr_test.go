package envelope

import (
	"strings"
	"testing"

	"github.com/verae/archive/wire"
)

func parsedJob(t *testing.T) OCRJob {
	t.Helper()
	e, err := Parse(golden(t))
	if err != nil {
		t.Fatal(err)
	}
	job, err := e.OCRJob()
	if err != nil {
		t.Fatal(err)
	}
	return job
}

// A job says which field is wrong; what is optional may be absent.
func TestOCRJobsAreCheckedByField(t *testing.T) {
	least := parsedJob(t)
	least.SHA1, least.Bytes, least.TotalPages, least.Origin = "", nil, nil, nil
	if err := least.Check(); err != nil {
		t.Error(err)
	}
	for field, change := range map[string]func(*OCRJob){
		"kind":          func(j *OCRJob) { j.Kind = "fraud.row" },
		"job_id":        func(j *OCRJob) { j.JobID = "" },
		"ipfs_cid":      func(j *OCRJob) { j.IPFSCID = "QmYwAPJzv5CZsnA625s3Xf2nemtYgPpHdWEz79ojWKPbdG" },
		"filename":      func(j *OCRJob) { j.Filename = "a\nb" },
		"sha1":          func(j *OCRJob) { j.SHA1 = j.SHA1[:39] },
		"bytes":         func(j *OCRJob) { j.Bytes = new(int64(-1)) },
		"total_pages":   func(j *OCRJob) { j.TotalPages = new(int64(-1)) },
		"origin.domain": func(j *OCRJob) { j.Origin.Domain = "verae" },
		"origin.ref":    func(j *OCRJob) { j.Origin.Ref = strings.Repeat("a", maxName+1) },
	} {
		job := parsedJob(t)
		change(&job)
		wantRefused(t, job.Check(), CodePayload, "payload."+field)
	}
}

func TestOCRJobOfAnotherTypeIsRefusedByField(t *testing.T) {
	e := Envelope{Payload: []byte(`{"kind":"ocr","job_id":1}`)}
	_, err := e.OCRJob()
	wantRefused(t, err, CodePayload, "payload.job_id")
	e.Payload = []byte(`{"kind":"ocr","job_id":"a","JOB_ID":"b"}`)
	if _, err = e.OCRJob(); err == nil {
		t.Error("two readers would see two jobs")
	}
}

// The id of the golden message was computed by another program.
func TestJobIDsAreFrozenAndUnambiguous(t *testing.T) {
	digest := func(s string) wire.Digest {
		d, err := wire.ParseDigest(s)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	subject := digest("59d1609840e44c4b34b8f6965523b69510e9271d7f207de1d2067605ce672e5e")
	file := digest("b94d27b9934d3e08a52e52d7da7dabfac484efe37a5380ee9088f7ace2efcde9")
	cid := parsedJob(t).IPFSCID
	if got, want := OCRJobID("acme", subject, file, cid), parsedJob(t).JobID; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	seen := map[string]bool{}
	for _, id := range []string{
		OCRJobID("acme", subject, file, cid), OCRJobID("acme", file, subject, cid), OCRJobID("acm", subject, file, cid),
		OCRJobID("acme", subject, file, cid[1:]), OCRJobID("acme", subject, file, ""), OCRJobID("", subject, file, cid),
	} {
		if seen[id] || len(id) != len("ocr_verae_")+32 {
			t.Errorf("%s is there twice, or no id", id)
		}
		seen[id] = true
	}
}
