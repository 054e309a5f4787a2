package daemon

import (
	"io/fs"
	"math"
	"os"
	"path"
	"runtime/debug"
	"strconv"
	"strings"
)

// filterShare is which part of the memory that a process may have its filters
// take at most, unless BLOOM_MAX_BYTES or MIRROR_MAX_BYTES says.
const filterShare = 4

// filterBytes returns the most memory for the filter; 0 is no limit.
func (c *Archived) filterBytes() uint64 {
	return shareOfMemory(c.BloomMaxBytes)
}

// mirrorBytes returns the most memory for the mirrors of all archives; 0 is no
// limit.
func (c *Aggregator) mirrorBytes() uint64 { return shareOfMemory(c.MirrorMaxBytes) }

// shareOfMemory is what was set, or else the share of filters.
func shareOfMemory(set uint64) uint64 {
	if set > 0 {
		return set
	}
	return memoryLimit(debug.SetMemoryLimit(-1), os.DirFS("/")) / filterShare
}

// memoryLimit returns the memory that the process may have: the least of Go's own
// limit and those of its control groups, of either version, in the files under
// root. 0 is no limit, or none that can be told.
func memoryLimit(own int64, root fs.FS) uint64 {
	least := uint64(math.MaxInt64)
	if own > 0 {
		least = uint64(own)
	}
	groups, _ := fs.ReadFile(root, "proc/self/cgroup") // without it there is no limit
	for line := range strings.Lines(string(groups)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) < 3 {
			continue
		}
		switch {
		case parts[1] == "":
			least = min(least, groupLimit(root, "sys/fs/cgroup", parts[2], "memory.max"))
		case strings.Contains(","+parts[1]+",", ",memory,"):
			least = min(least, groupLimit(root, "sys/fs/cgroup/memory", parts[2], "memory.limit_in_bytes"))
		}
	}
	if least >= math.MaxInt64>>1 { // version 1 writes a number that nothing reaches
		return 0
	}
	return least
}

// groupLimit returns the least limit of a control group and of those it is in.
func groupLimit(root fs.FS, base, group, file string) uint64 {
	least := uint64(math.MaxInt64)
	for group = path.Clean("/" + group); ; group = path.Dir(group) {
		text, err := fs.ReadFile(root, path.Join(base, group, file))
		if limit, bad := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64); err == nil && bad == nil {
			least = min(least, limit)
		}
		if group == "/" {
			return least
		}
	}
}
