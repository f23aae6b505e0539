package chaos

import (
	"fmt"
	"io"
	"sync"
	"time"
)

// screen tells what happens, a line each.
type screen struct {
	mu    sync.Mutex
	out   io.Writer
	began time.Time
}

func newScreen(out io.Writer) *screen {
	if out == nil {
		out = io.Discard
	}
	return &screen{out: out, began: time.Now()}
}

func (s *screen) say(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fmt.Fprintf(s.out, "%s %+7.1fs  %s\n", time.Now().Format(time.TimeOnly), time.Since(s.began).Seconds(), fmt.Sprintf(format, args...))
}
