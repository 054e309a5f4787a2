package pebblex

import (
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"
)

const markerPrefix = "marker."

// SyncMarkers returns fs with one more promise: when a marker file appears, the
// directory entries made before it are already durable.
//
// Pebble switches to a new manifest by creating an empty file marker.manifest.N
// whose name holds the manifest's. It syncs the directory afterwards only, so a
// crash in between may keep the marker and lose the manifest it names, and the
// store does not open again (cockroachdb/pebble#5825, open in v2.1.7).
func SyncMarkers(fs vfs.FS) vfs.FS { return markerFS{fs} }

type markerFS struct{ vfs.FS }

// Unwrap returns the file system beneath.
func (m markerFS) Unwrap() vfs.FS { return m.FS }

// Create creates name; for a marker it syncs the directory first.
func (m markerFS) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	if err := m.before(name); err != nil {
		return nil, err
	}
	return m.FS.Create(name, category)
}

// ReuseForWrite renames oldname to newname and opens it; for a marker it syncs
// the directory first.
func (m markerFS) ReuseForWrite(oldname, newname string, category vfs.DiskWriteCategory) (vfs.File, error) {
	if err := m.before(newname); err != nil {
		return nil, err
	}
	return m.FS.ReuseForWrite(oldname, newname, category)
}

func (m markerFS) before(name string) error {
	if !strings.HasPrefix(m.PathBase(name), markerPrefix) {
		return nil
	}
	return syncDir(m.FS, m.PathDir(name))
}
