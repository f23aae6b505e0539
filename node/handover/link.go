package handover

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"time"
)

// What goes over the socket in the data directory are frames: four bytes of length,
// and so many of text. The first of a connection is the visit, which says what it
// is for; then comes
//
//	counts    the elder's Counts whenever they change; the heir may send an ask, and the elder answers it
//	call      one question; its answer, of which the first byte is 0, or 1 and what went wrong
//	feed      an opening message; then what the feed brings, for as long as it lasts
type visit struct {
	Version int    `json:"version"`
	For     string `json:"for"`
	Boot    uint64 `json:"boot"` // of the elder
	PID     int    `json:"pid"`
	Node    string `json:"node,omitempty"` // that is asked, by its id
	Service string `json:"service,omitempty"`
}

// What a visit may be for; the list is closed.
const (
	forCounts = "counts"
	forCall   = "call"
	forFeed   = "feed"
)

const (
	maxFrame  = 2 << 20                // bytes; of what nodes ask each other the longest is 1 MiB
	greetTime = 5 * time.Second        // for a visit to say what it is for
	dialRest  = 20 * time.Millisecond  // after one that failed; doubles
	dialMost  = 100 * time.Millisecond // between two tries to find the heir, which takes nobody in before it is found, and is on this machine
)

// Link is an elder's end: it asks whoever is the node's process by now.
type Link struct {
	dir   string
	boot  uint64
	reach func(ctx context.Context, v visit) (net.Conn, error) // begins a visit
}

// NewLink is the link of the elder of that boot.
func NewLink(dir string, boot uint64) *Link {
	l := &Link{dir: dir, boot: boot}
	l.reach = l.dial
	return l
}

// dial begins a visit at the socket in the directory.
func (l *Link) dial(ctx context.Context, v visit) (net.Conn, error) {
	at, done, err := socketPath(l.dir)
	if err != nil {
		return nil, err
	}
	defer done()
	c, err := (&net.Dialer{}).DialContext(ctx, "unix", at)
	if err != nil {
		return nil, fmt.Errorf("find the node's new process: %w", err)
	}
	v.Version, v.Boot, v.PID = version, l.boot, os.Getpid()
	if err := writeJSON(c, v); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// Call has the heir ask a node, of which it may be the one.
func (l *Link) Call(ctx context.Context, node, service string, question []byte) ([]byte, error) {
	c, err := l.reach(ctx, visit{For: forCall, Node: node, Service: service})
	if err != nil {
		return nil, err
	}
	defer c.Close()
	defer context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })()
	if err := writeFrame(c, question); err != nil {
		return nil, err
	}
	answer, err := readFrame(c)
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case err != nil:
		return nil, err
	case len(answer) == 0 || answer[0] > 1:
		return nil, errors.New("the node's new process gives no answer that is one")
	case answer[0] == 1:
		return nil, errors.New(string(answer[1:]))
	}
	return answer[1:], nil
}

// Feed has the heir follow a feed of a node once, and returns when it ends.
func (l *Link) Feed(ctx context.Context, node, service string, opening []byte, take func(message []byte) error) error {
	c, err := l.reach(ctx, visit{For: forFeed, Node: node, Service: service})
	if err != nil {
		return err
	}
	defer c.Close()
	defer context.AfterFunc(ctx, func() { _ = c.Close() })()
	if err := writeFrame(c, opening); err != nil {
		return err
	}
	for {
		m, err := readFrame(c)
		if err != nil {
			return err
		}
		if err := take(m); err != nil {
			return err
		}
	}
}

// Tell keeps the heir told of what this process carries, until ctx ends. now is
// asked when there may be news, and what it says is sent if it is some; list answers
// the heir's questions.
func (l *Link) Tell(ctx context.Context, every time.Duration, now func() Counts, list func(limit int) []json.RawMessage) {
	rest := dialRest
	for ctx.Err() == nil {
		if c, err := l.reach(ctx, visit{For: forCounts}); err == nil {
			rest = dialRest
			l.tell(ctx, c, every, now, list)
		}
		select {
		case <-ctx.Done():
		case <-time.After(rest):
		}
		rest = min(2*rest, dialMost)
	}
}

func (l *Link) tell(ctx context.Context, c net.Conn, every time.Duration, now func() Counts, list func(int) []json.RawMessage) {
	asks, ended := make(chan ask, 1), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			var a ask
			if readJSON(c, &a) != nil {
				return
			}
			select {
			case <-asks: // nobody waits for that one any more
			default:
			}
			asks <- a // there is room: nobody else sends
		}
	}()
	defer func() { _ = c.Close(); <-ended }()
	tick := time.NewTicker(every)
	defer tick.Stop()
	var last Counts
	for first := true; ; first = false {
		if n := now(); first || !n.same(last) {
			if writeJSON(c, said{Counts: &n}) != nil {
				return
			}
			last = n
		}
		select {
		case a := <-asks:
			for _, part := range parts(list(a.Streams), a.Streams) {
				if writeJSON(c, part) != nil {
					return
				}
			}
		case <-tick.C:
		case <-ended:
			return
		case <-ctx.Done():
			n := now()
			_ = writeJSON(c, said{Counts: &n}) // the last word
			return
		}
	}
}

// socketName is that of the socket, in the data directory.
const socketName = "elders.sock"

// maxPath is how long a socket's path may be, here and on other systems.
const maxPath = 100

// socketPath is a path by which the kernel finds the socket in a directory, until
// done is called. It takes no long ones; Linux has a short one for each.
func socketPath(dir string) (path string, done func(), err error) {
	path = filepath.Join(dir, socketName)
	if len(path) <= maxPath {
		return path, func() {}, nil
	}
	if runtime.GOOS != "linux" {
		return "", nil, fmt.Errorf("the path %s is too long for a socket; choose a node.data_dir with a shorter one", path)
	}
	d, err := os.Open(dir)
	if err != nil {
		return "", nil, err
	}
	return fmt.Sprintf("/proc/self/fd/%d/%s", d.Fd(), socketName), func() { _ = d.Close() }, nil
}

func writeFrame(c net.Conn, body []byte) error {
	_ = c.SetWriteDeadline(time.Now().Add(sayTime))
	b := binary.BigEndian.AppendUint32(make([]byte, 0, 4+len(body)), uint32(len(body)))
	_, err := c.Write(append(b, body...))
	return err
}

func readFrame(c net.Conn) ([]byte, error) {
	var head [4]byte
	if _, err := io.ReadFull(c, head[:]); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(head[:])
	if n > maxFrame {
		return nil, fmt.Errorf("a frame of %d bytes, the limit is %d", n, maxFrame)
	}
	body := make([]byte, n)
	_, err := io.ReadFull(c, body)
	return body, err
}

func writeJSON(c net.Conn, v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		panic("BUG: " + err.Error())
	}
	return writeFrame(c, text)
}

func readJSON(c net.Conn, v any) error {
	text, err := readFrame(c)
	if err != nil {
		return err
	}
	return json.Unmarshal(text, v)
}
