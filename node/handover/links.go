package handover

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"
)

// Host is what the heir does for its elders.
type Host interface {
	Call(ctx context.Context, node, service string, question []byte) ([]byte, error)
	// Feed follows a feed once. send is for one goroutine, and may wait.
	Feed(ctx context.Context, node, service string, opening []byte, send func(message []byte) error) error
	// Heard hears what an elder carries, once it has changed.
	Heard()
}

// Links is the heir's end: where its elders find it, and what they carry.
type Links struct {
	dir  string
	host Host
	log  *slog.Logger
	own  []uint64 // boots of this process itself, which tell nothing

	silence time.Duration // that elders are waited for

	ctx    context.Context // ends when Stop begins
	cancel context.CancelFunc
	tasks  sync.WaitGroup
	ln     *net.UnixListener

	mu     sync.Mutex // guards what follows
	open   map[net.Conn]struct{}
	elders map[uint64]*Known // by boot
	living []uint64          // boots of those that hold their lock, whether they have told of themselves or not
	began  time.Time         // zero: it has not
	quiet  bool              // some were silent at the last look
}

// mostSilence is how long an elder is waited for that lives, and has not told of itself.
// It looks for its heir ten times a second, older programs once.
const mostSilence = 5 * time.Second

// Known is an elder, as it has told of itself.
type Known struct {
	Boot uint64
	PID  int
	Counts

	line  net.Conn // where it can be asked; nil: its visit is over
	asked chan listed
	one   chan struct{} // full while somebody asks
}

// NewLinks is for the elders of the node with that directory. Boots that are lives of
// this process itself are no elders.
func NewLinks(dir string, host Host, log *slog.Logger, own ...uint64) *Links {
	l := &Links{dir: dir, host: host, log: log, own: own, silence: mostSilence, open: map[net.Conn]struct{}{}, elders: map[uint64]*Known{}}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	return l
}

// Start opens the socket; whatever is there is of a process that is no more.
func (l *Links) Start() error {
	living, err := Living(l.dir)
	if err != nil {
		return fmt.Errorf("look for older processes: %w", err)
	}
	l.mu.Lock()
	l.living = living
	l.mu.Unlock()
	at, done, err := socketPath(l.dir)
	if err != nil {
		return err
	}
	defer done()
	if err := os.Remove(filepath.Join(l.dir, socketName)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("the socket for an older process: %w", err)
	}
	if l.ln, err = net.ListenUnix("unix", &net.UnixAddr{Name: at}); err != nil {
		return fmt.Errorf("the socket for an older process: %w", err)
	}
	l.ln.SetUnlinkOnClose(false) // by then it may be another's
	if err := os.Chmod(filepath.Join(l.dir, socketName), 0o600); err != nil {
		return errors.Join(err, l.ln.Close())
	}
	l.mu.Lock()
	l.began = time.Now()
	l.quiet = l.silent()
	l.mu.Unlock()
	l.tasks.Go(l.acceptLoop)
	l.tasks.Go(l.lookLoop)
	return nil
}

// Stop ends all visits.
func (l *Links) Stop() {
	l.cancel()
	if l.ln != nil {
		_ = l.ln.Close()
	}
	l.mu.Lock()
	for c := range l.open {
		_ = c.Close()
	}
	l.mu.Unlock()
	l.tasks.Wait()
}

// Remove takes the socket away, after Stop, where no other process takes its place.
func (l *Links) Remove() { _ = os.Remove(filepath.Join(l.dir, socketName)) }

func (l *Links) acceptLoop() {
	for {
		c, err := l.ln.Accept()
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return
			}
			select {
			case <-l.ctx.Done():
				return
			case <-time.After(dialRest):
			}
			continue
		}
		if !l.admit(c) {
			_ = c.Close()
		}
	}
}

func (l *Links) admit(c net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ctx.Err() != nil || len(l.open) >= maxVisits {
		return false
	}
	l.open[c] = struct{}{}
	l.tasks.Go(func() { l.receive(c) })
	return true
}

// maxVisits bounds the connections of elders; each asks for one thing.
const maxVisits = 4096

// receive is one visit, to its end.
func (l *Links) receive(c net.Conn) {
	defer func() {
		_ = c.Close()
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.open, c)
	}()
	_ = c.SetReadDeadline(time.Now().Add(greetTime))
	var v visit
	err := readJSON(c, &v)
	if err == nil && v.Version != version {
		err = fmt.Errorf("it speaks version %d, this one %d", v.Version, version)
	}
	if err != nil {
		l.log.Warn("an older process says nothing that can be used", "err", err)
		return
	}
	switch v.For {
	case forCounts:
		l.listen(c, v)
	case forCall:
		l.call(c, v)
	case forFeed:
		l.feed(c, v)
	}
}

func (l *Links) call(c net.Conn, v visit) {
	question, err := readFrame(c)
	if err != nil {
		return
	}
	ctx, cancel := context.WithTimeout(l.ctx, callTime)
	defer cancel()
	answer, err := l.host.Call(ctx, v.Node, v.Service, question)
	if err != nil {
		_ = writeFrame(c, append([]byte{1}, err.Error()...))
		return
	}
	_ = writeFrame(c, append([]byte{0}, answer...))
}

const callTime = 10 * time.Second // for a question of an elder's, whatever it grants

func (l *Links) feed(c net.Conn, v visit) {
	opening, err := readFrame(c)
	if err != nil {
		return
	}
	_ = c.SetReadDeadline(time.Time{})
	ctx, cancel := context.WithCancel(l.ctx)
	defer cancel()
	left := make(chan struct{})
	go func() {
		defer close(left)
		_, _ = c.Read(make([]byte, 1)) // nothing is due: it returns when the elder leaves
		cancel()
	}()
	err = l.host.Feed(ctx, v.Node, v.Service, opening, func(m []byte) error { return writeFrame(c, m) })
	if err != nil && ctx.Err() == nil {
		l.log.Debug("a feed of an older process ended", "peer", v.Node, "err", err)
	}
	_ = c.Close()
	<-left
}

// listen hears what an elder carries.
func (l *Links) listen(c net.Conn, v visit) {
	_ = c.SetReadDeadline(time.Time{})
	l.mu.Lock()
	k := &Known{Boot: v.Boot, PID: v.PID, line: c, asked: make(chan listed, 1), one: make(chan struct{}, 1)}
	if was := l.elders[v.Boot]; was != nil {
		k.Counts = was.Counts
	}
	l.elders[v.Boot] = k
	l.mu.Unlock()
	var list []json.RawMessage // as far as it has come
	for {
		var s said
		if readJSON(c, &s) != nil || len(list)+len(s.Streams) > maxStreams {
			break
		}
		if s.Counts != nil {
			l.mu.Lock()
			k.Counts = *s.Counts
			l.mu.Unlock()
			l.host.Heard()
			continue
		}
		if list = append(list, s.Streams...); s.More {
			continue
		}
		select {
		case <-k.asked: // nobody has waited for that one
		default:
		}
		k.asked <- listed{list, s.Of, time.Now()} // there is room: nobody else sends
		list = nil
	}
	l.mu.Lock()
	k.line = nil
	l.mu.Unlock()
	l.look()
}

// lookEvery is how often the locks of elders are looked at that have no visit.
const lookEvery = 250 * time.Millisecond

func (l *Links) lookLoop() {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		select {
		case <-l.ctx.Done():
			return
		case <-tick.C:
			l.look()
		}
	}
}

// look forgets elders that have ended, and those that say nothing for too long are
// silent no more. One that has not ended comes back if its visit did; until then it
// carries what it last said.
func (l *Links) look() {
	l.mu.Lock()
	none := len(l.living) == 0 && len(l.elders) == 0
	l.mu.Unlock()
	if none {
		return // and none comes: who becomes an elder of this node's has this process as its heir
	}
	living, err := Living(l.dir)
	if err != nil {
		return
	}
	l.mu.Lock()
	heard := len(living) < len(l.living)
	l.living = living
	for boot, k := range l.elders {
		if k.line == nil && !slices.Contains(living, boot) {
			delete(l.elders, boot)
			heard = true
			l.log.Info("an older process has ended", "pid", k.PID, "boot", boot)
		}
	}
	was := l.quiet
	l.quiet = l.silent()
	heard = heard || was && !l.quiet
	l.mu.Unlock()
	if heard {
		l.host.Heard()
	}
}

// Living are the boots of the elders that live.
func (l *Links) Living() []uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.living)
}

// Elders are those that are known, the oldest first.
func (l *Links) Elders() []Known {
	if l == nil {
		return nil // the node has not begun
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	var all []Known
	for _, boot := range slices.Sorted(maps.Keys(l.elders)) {
		all = append(all, *l.elders[boot])
	}
	return all
}

// Silent tells whether an elder that lives has not told of itself yet. One that does
// not for long is none.
func (l *Links) Silent() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.silent()
}

func (l *Links) silent() bool {
	return time.Since(l.began) < l.silence && slices.ContainsFunc(l.others(), func(boot uint64) bool {
		k := l.elders[boot]
		return k == nil || k.Since.IsZero()
	})
}

// others are the living ones that are other processes; mu is held.
func (l *Links) others() (boots []uint64) {
	for _, boot := range l.living {
		if !slices.Contains(l.own, boot) {
			boots = append(boots, boot)
		}
	}
	return boots
}

// Carrying are the boots of the elders that live, and whether one of them can be heard:
// what cannot be known of a lock file is taken for life, too.
func (l *Links) Carrying() (boots []uint64, heard bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	boots = l.others()
	return boots, slices.ContainsFunc(boots, func(boot uint64) bool { k := l.elders[boot]; return k != nil && k.line != nil })
}

const streamsTime = 3 * time.Second // for an elder to list its streams

// maxStreams is how many streams can be asked for at once.
const maxStreams = 10_000

// Streams asks an elder for a list of its streams, at most maxStreams; false: it does
// not answer.
func (l *Links) Streams(ctx context.Context, k Known, limit int) (list []json.RawMessage, ok bool) {
	ctx, cancel := context.WithTimeout(ctx, streamsTime)
	defer cancel()
	select {
	case k.one <- struct{}{}:
		defer func() { <-k.one }()
	case <-ctx.Done():
		return nil, false
	}
	limit = min(limit, maxStreams)
	if k.line == nil || writeJSON(k.line, ask{Streams: limit}) != nil {
		return nil, false
	}
	for {
		select {
		case a := <-k.asked:
			if a.answers(limit) {
				return a.streams[:min(limit, len(a.streams))], true
			}
		case <-ctx.Done():
			return nil, false
		}
	}
}
