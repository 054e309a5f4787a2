package server

import (
	"fmt"
	"log/slog"
	"sync/atomic"

	nats "github.com/nats-io/nats-server/v2/server"
)

// logger passes the server's log lines to slog. The server's notices are about
// its own start and stop, which the embedding program logs itself: Debug.
type logger struct {
	log  *slog.Logger
	last atomic.Pointer[string] // newest fatal message
}

var _ nats.Logger = (*logger)(nil)

func newLogger(log *slog.Logger) *logger {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &logger{log: log}
}

func (l *logger) fatal() string {
	if p := l.last.Load(); p != nil {
		return *p
	}
	return ""
}

func (l *logger) Noticef(format string, v ...any) { l.log.Debug("nats: " + fmt.Sprintf(format, v...)) }
func (l *logger) Warnf(format string, v ...any)   { l.log.Warn("nats: " + fmt.Sprintf(format, v...)) }
func (l *logger) Errorf(format string, v ...any)  { l.log.Error("nats: " + fmt.Sprintf(format, v...)) }
func (l *logger) Debugf(format string, v ...any)  { l.log.Debug("nats: " + fmt.Sprintf(format, v...)) }
func (l *logger) Tracef(format string, v ...any)  { l.log.Debug("nats: " + fmt.Sprintf(format, v...)) }

// Fatalf remembers the message for Start instead of ending the process, which
// belongs to the program that embeds the server.
func (l *logger) Fatalf(format string, v ...any) {
	msg := fmt.Sprintf(format, v...)
	l.last.Store(&msg)
	l.log.Error("nats: " + msg)
}
