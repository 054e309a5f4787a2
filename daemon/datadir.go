package daemon

import (
	"os"
	"path/filepath"

	"github.com/verae/archive/internal/fault"
	"github.com/verae/archive/internal/pebblex"
)

// dataDirs are the programs that keep a data directory, each with a part that
// every one of its directories has.
var dataDirs = map[string]string{"archived": dirRecords, "aggregator": dirJobs}

// mustExist refuses a data directory without the part that every one of the
// program's has, and says what it is instead.
func mustExist(dir, part, program string) error {
	info, err := os.Stat(dir)
	switch {
	case os.IsNotExist(err):
		return missingData(dir, program, "is not there")
	case err != nil:
		return fault.New(fault.Invalid, "OUT_OF_RANGE", "DATA_DIR: %w", err).InField("DATA_DIR")
	case !info.IsDir():
		return wrongData(dir, "it is a file; DATA_DIR names a directory")
	}
	// A backup has the parts of what it was made of, and is none.
	backup, err := exists(filepath.Join(dir, pebblex.ManifestName))
	if err != nil {
		return err
	}
	if backup {
		return wrongData(dir, "it is a backup; "+program+" restore makes a data directory of it")
	}
	there, err := exists(filepath.Join(dir, part))
	if err != nil || there {
		return err
	}
	for other, its := range dataDirs {
		if there, err := exists(filepath.Join(dir, its)); err != nil || there {
			return wrongData(dir, "it is the data directory of "+other+", not of "+program)
		}
	}
	names, err := os.ReadDir(dir)
	if err != nil {
		return fault.New(fault.Invalid, "OUT_OF_RANGE", "DATA_DIR: %w", err).InField("DATA_DIR")
	}
	if len(names) == 0 {
		return missingData(dir, program, "is empty")
	}
	return missingData(dir, program, "holds other things")
}

func missingData(dir, program, what string) error {
	return fault.New(fault.NotFound, "MISSING", "DATA_DIR: %s %s: it is no data directory of %s (is a volume not mounted? is the path right? %s init makes a new one)",
		dir, what, program, program).InField("DATA_DIR")
}

func wrongData(dir, what string) error {
	return fault.New(fault.Conflict, "WRONG_DIRECTORY", "DATA_DIR: %s is the wrong directory: %s", dir, what).InField("DATA_DIR")
}
