package testcluster

import (
	"fmt"
	"io"
	"os"
	"time"
)

const plainEvery = 2 * time.Second // between two lines of figures where none can be overwritten

// screen writes what happens as lines that stay and, on a terminal, the figures
// of the moment as one line below them that is written over. Elsewhere the
// figures are a line of their own now and then.
type screen struct {
	out   io.Writer
	width func() int // columns of the terminal; 0: it is none
	due   time.Time  // of the next plain line
	shown bool       // the last line is one to be written over
}

func newScreen(out io.Writer) *screen {
	s := &screen{out: out, width: func() int { return 0 }}
	if f, ok := out.(*os.File); ok {
		s.width = func() int { return columns(f) }
	}
	return s
}

// say adds a line that stays.
func (s *screen) say(now time.Time, format string, args ...any) {
	s.clear()
	fmt.Fprintf(s.out, "%s  %s\n", now.Format(time.TimeOnly), fmt.Sprintf(format, args...))
}

// figures shows the line in place of the one before.
func (s *screen) figures(now time.Time, line string) {
	width := s.width()
	if width == 0 {
		if !now.Before(s.due) {
			s.due = now.Add(plainEvery)
			s.say(now, "%s", line)
		}
		return
	}
	s.clear()
	if len(line) >= width { // a longer one would wrap, and could not be written over
		line = line[:width-1]
	}
	fmt.Fprint(s.out, line)
	s.shown = true
}

// clear takes the figures away.
func (s *screen) clear() {
	if s.shown {
		fmt.Fprint(s.out, "\r\x1b[K")
		s.shown = false
	}
}
