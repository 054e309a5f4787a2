package archive

import (
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/verae/archive/internal/pebblex/faultfs"
)

// faultFS is a disk that breaks at one write point and stays broken: from the
// failAt-th on, every operation that changes something fails. The first of them
// is still carried out if persist is set, which is a disk that did its work and
// could not say so. Whoever can not live with that dies with the process.
type faultFS struct {
	*faultfs.FS
	*faultfs.Process
	// beforeSync, if set, is called before a log file is synced.
	beforeSync func()
}

// patience is how many failures a process outlives before an operator ends it.
const patience = 300

// newFaultFS returns a disk that breaks at failAt; negative: never.
func newFaultFS(fs vfs.FS, failAt int, persist bool) *faultFS {
	f := &faultFS{FS: faultfs.New(fs), Process: faultfs.NewProcess()}
	if failAt >= 0 {
		f.Fail(f.Kills(faultfs.After(int64(failAt), errDisk, persist), patience))
	}
	f.Trace(func(p faultfs.Point) {
		if p.Op == faultfs.OpSync && strings.HasSuffix(p.Path, ".log") && f.beforeSync != nil {
			f.beforeSync()
		}
	})
	return f
}
