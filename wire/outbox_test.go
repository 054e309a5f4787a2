package wire

import (
	"strings"
	"testing"
)

func TestClaimsAreBounded(t *testing.T) {
	for _, tt := range []struct {
		in    OutboxClaim
		field string // empty: good
	}{
		{OutboxClaim{1, 1000}, ""},
		{OutboxClaim{MaxOutboxItems, 600_000}, ""},
		{OutboxClaim{0, 1000}, "max"},
		{OutboxClaim{-1, 1000}, "max"},
		{OutboxClaim{MaxOutboxItems + 1, 1000}, "max"},
		{OutboxClaim{1, 0}, "leaseMs"},
		{OutboxClaim{1, 999}, "leaseMs"},
		{OutboxClaim{1, 600_001}, "leaseMs"},
	} {
		err := tt.in.Check()
		if tt.field == "" && err != nil {
			t.Errorf("%+v: %v", tt.in, err)
		}
		if tt.field != "" {
			wantError(t, err, tt.field, "")
		}
	}
}

func TestWhatIsDoneIsNamedByUUIDs(t *testing.T) {
	const id = "0197f3a0-5c1e-7d45-9a10-2b3c4d5e6f70"
	upper, err := Decode[OutboxDone]([]byte(`{"ids":["` + strings.ToUpper(id) + `"]}`))
	if err != nil || upper.Check() != nil || upper.IDs[0] != id {
		t.Errorf("upper case: %v, %v", upper, err)
	}
	wantError(t, OutboxDone{}.Check(), "ids", "from 1")
	wantError(t, OutboxDone{IDs: make([]EnvelopeID, MaxOutboxItems+1)}.Check(), "ids", "101")
	wantError(t, OutboxDone{IDs: []EnvelopeID{id, "x"}}.Check(), "ids[1]", "UUID")
}

func TestACheckedCIDIsTheCanonicalOne(t *testing.T) {
	if err := CheckCID("bafkreifzjut3te2nhyekklss27nh3k72ysco7y32koao5eei66wof36n5e"); err != nil {
		t.Error(err)
	}
	for _, bad := range []string{"", "bafybeigdyrztpnv5q...", "QmYwAPJzv5CZsnA625s3Xf2nemtYgPpHdWEz79ojWKPbdG"} {
		if CheckCID(bad) == nil {
			t.Errorf("%q passes", bad)
		}
	}
}
