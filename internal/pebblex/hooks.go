package pebblex

import (
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2"
)

// ExitCode is the status with which [Exit] ends the process: EX_SOFTWARE of
// sysexits(3), so that a supervisor can tell a failed store from a bad command
// line.
const ExitCode = 70

// Exit ends the process with ExitCode. It is what a server does when a store
// cannot go on: nothing in memory can be believed, and the next start replays
// the log. The reason has been logged before.
func Exit(string) { os.Exit(ExitCode) }

// repeatEvery is how often an event that keeps happening is logged. Pebble
// retries a failed flush without a pause (cockroachdb/pebble#6139): thousands
// of errors a second on a full disk.
const repeatEvery = 10 * time.Second

// logger gives Pebble's lines to slog. Pebble narrates every flush, so its
// information is our debug output.
type logger struct {
	log   *slog.Logger
	fatal func(string)
	often limiter
}

func (l *logger) Infof(format string, args ...any) { l.log.Debug(fmt.Sprintf(format, args...)) }

func (l *logger) Errorf(format string, args ...any) {
	l.warn("pebble", slog.String("detail", fmt.Sprintf(format, args...)))
}

// Fatalf does not return, whatever the hook does: Pebble's code behind a call
// of Fatalf is written for a process that is gone, and would let readers see a
// write that failed.
func (l *logger) Fatalf(format string, args ...any) {
	reason := fmt.Sprintf(format, args...)
	l.log.Error("store failed", "err", reason)
	l.fatal(reason)
	panic("pebblex: the fatal hook returned: " + reason)
}

// failed tells of a write that Pebble will not survive. It may come again and
// again, by a flush that is retried.
func (l *logger) failed(op, name string, err error) {
	if skipped, ok := l.often.allow(op+name, time.Now()); ok {
		l.log.Error("write failed", "op", op, "path", name, "err", err, "skipped", skipped)
	}
}

// warn logs msg at most once in repeatEvery, with the number of events left out.
func (l *logger) warn(msg string, attrs ...any) {
	if skipped, ok := l.often.allow(msg, time.Now()); ok {
		l.log.Warn(msg, append(attrs, slog.Int("skipped", skipped))...)
	}
}

// limiter thins out repeated events by name.
type limiter struct {
	mu   sync.Mutex
	seen map[string]*occurrence
}

type occurrence struct {
	logged  time.Time
	skipped int
}

// allow reports whether the event may be logged at now, and how many were left
// out since the last one that was.
func (l *limiter) allow(name string, now time.Time) (skipped int, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	o := l.seen[name]
	if o == nil {
		if l.seen == nil {
			l.seen = make(map[string]*occurrence)
		}
		l.seen[name] = &occurrence{logged: now}
		return 0, true
	}
	if now.Sub(o.logged) < repeatEvery {
		o.skipped++
		return 0, false
	}
	skipped, o.skipped, o.logged = o.skipped, 0, now
	return skipped, true
}

// listener replaces the events whose defaults exit the process or flood the
// log; Pebble fills in the others.
func listener(l *logger, onCorruption func(string)) *pebble.EventListener {
	return &pebble.EventListener{
		DataCorruption: func(info pebble.DataCorruptionInfo) {
			l.log.Error("corrupt block", "path", info.Path, "err", info.Details)
			if onCorruption != nil {
				onCorruption(fmt.Sprintf("%s: %v", info.Path, info.Details))
			}
		},
		BackgroundError: func(err error) {
			l.warn("background error", "err", err)
			if onCorruption != nil && (pebble.IsCorruptionError(err) || IsUnreadable(err)) {
				onCorruption(fmt.Sprintf("in the background: %v", err))
			}
		},
		DiskSlow: func(info pebble.DiskSlowInfo) {
			l.warn("disk is slow", "path", info.Path, "op", info.OpType.String(), "dur", info.Duration)
		},
		WriteStallBegin: func(info pebble.WriteStallBeginInfo) { l.warn("writes are held back", "reason", info.Reason) },
		LowDiskSpace:    func(info pebble.LowDiskSpaceInfo) { l.warn("disk space is low", "detail", info.String()) },
	}
}
