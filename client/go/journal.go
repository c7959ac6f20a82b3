package ringfence

import (
	"context"
	"log/slog"
	"sync"
)

// entriesMax is how many entries wait for a logger that is slow; more are dropped.
const entriesMax = 1024

// journal hands entries to the user's logger, one after the other, on a goroutine of its own: a logger
// that blocks, or that asks a lease, must hold up neither keep-alives nor the answer to Valid.
type journal struct {
	log *slog.Logger

	mu      sync.Mutex
	waiting []entry
	writing bool
	dropped int
}

type entry struct {
	level   slog.Level
	message string
	args    []any
}

func newJournal(log *slog.Logger) *journal { return &journal{log: log} }

func (j *journal) Debug(message string, args ...any) { j.add(slog.LevelDebug, message, args) }
func (j *journal) Info(message string, args ...any)  { j.add(slog.LevelInfo, message, args) }
func (j *journal) Warn(message string, args ...any)  { j.add(slog.LevelWarn, message, args) }

func (j *journal) add(level slog.Level, message string, args []any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if len(j.waiting) >= entriesMax {
		j.dropped++
		return
	}
	j.waiting = append(j.waiting, entry{level, message, args})
	if !j.writing {
		j.writing = true
		go j.write()
	}
}

func (j *journal) write() {
	for {
		j.mu.Lock()
		entries, dropped := j.waiting, j.dropped
		j.waiting, j.dropped = nil, 0
		if len(entries) == 0 && dropped == 0 {
			j.writing = false
			j.mu.Unlock()
			return
		}
		j.mu.Unlock()
		for _, e := range entries {
			j.log.Log(context.Background(), e.level, e.message, e.args...)
		}
		if dropped > 0 {
			j.log.Warn("the logger was too slow: entries are missing here", "count", dropped)
		}
	}
}
