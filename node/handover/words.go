package handover

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"
)

// version is of the words and of what is inherited; an heir that knows another one
// begins nothing.
const version = 1

// maxSockets bounds what is handed over at once.
const maxSockets = 256

// MaxEstate bounds what is handed over beside sockets and directory, in bytes.
const MaxEstate = 8 << 20

// maxWord bounds a word.
const maxWord = MaxEstate + 64<<10

// word is what the two say to each other. A field may be added: who does not know it
// passes it over.
type word struct {
	Word    string          `json:"word"`
	Version int             `json:"version,omitempty"` // offer
	Sockets []Socket        `json:"sockets,omitempty"` // offer: in the order of their descriptors
	PID     int             `json:"pid,omitempty"`     // take: of who says it, which may be a child of what was started
	Takes   bool            `json:"takes,omitempty"`   // take: it reads an estate, of any length up to the limit
	Estate  json.RawMessage `json:"estate,omitempty"`  // yours: for whoever takes it
	Program string          `json:"program,omitempty"` // ready: its version
	Why     string          `json:"why,omitempty"`     // failed
}

// The words; the list is closed.
const (
	wordOffer  = "offer"
	wordTake   = "take"
	wordYours  = "yours"
	wordReady  = "ready"
	wordGo     = "go"
	wordFailed = "failed"
	wordUndone = "undone"
)

// ErrUndone says that the process before has taken the node back.
var ErrUndone = errors.New("the process before has taken the node back")

// ErrGone says that the other process has ended.
var ErrGone = errors.New("the other process has ended")

// talk is one end of the socket pair.
type talk struct {
	conn     net.Conn
	in       *bufio.Reader
	patience time.Duration // for a word to be read
}

func newTalk(fd int) (*talk, error) {
	f := os.NewFile(uintptr(fd), "handover")
	defer f.Close()
	c, err := net.FileConn(f)
	if err != nil {
		return nil, fmt.Errorf("the socket to the other process: %w", err)
	}
	return &talk{conn: c, in: bufio.NewReaderSize(c, 64<<10), patience: sayTime}, nil
}

func (t *talk) say(w word) error {
	line, err := json.Marshal(w)
	if err != nil {
		panic("BUG: " + err.Error())
	}
	_ = t.conn.SetWriteDeadline(time.Now().Add(t.patience))
	_, err = t.conn.Write(append(line, '\n'))
	switch {
	case err == nil:
		return nil
	case isReset(err):
		return fmt.Errorf("say %s: %w: %w", w.Word, ErrGone, err)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return fmt.Errorf("say %s: the other process did not read it within %v", w.Word, t.patience)
	}
	return fmt.Errorf("say %s: %w", w.Word, err)
}

const sayTime = 5 * time.Second // for a word that nobody reads

// hear waits for a word. Another one than is due is an error, that the other has
// failed, too.
func (t *talk) hear(ctx context.Context, due string) (w word, err error) {
	_ = t.conn.SetReadDeadline(time.Time{})
	defer context.AfterFunc(ctx, func() { _ = t.conn.SetReadDeadline(time.Unix(1, 0)) })()
	line, err := t.line()
	switch {
	case ctx.Err() != nil:
		return w, fmt.Errorf("wait for %s: %w", due, context.Cause(ctx))
	case errors.Is(err, io.EOF) || isReset(err):
		return w, ErrGone
	case err != nil:
		return w, fmt.Errorf("wait for %s: %w", due, err)
	}
	if err := json.Unmarshal(line, &w); err != nil {
		return w, fmt.Errorf("wait for %s: %w", due, err)
	}
	switch w.Word {
	case due:
		return w, nil
	case wordFailed:
		return w, errors.New(w.Why)
	case wordUndone:
		return w, ErrUndone
	}
	return w, fmt.Errorf("the other process says %q where %q is due", w.Word, due)
}

// line reads up to the end of a line, of which no more than maxWord is kept.
func (t *talk) line() (line []byte, err error) {
	for {
		part, err := t.in.ReadSlice('\n')
		if line = append(line, part...); err == nil || !errors.Is(err, bufio.ErrBufferFull) {
			return line, err
		}
		if len(line) > maxWord {
			return nil, fmt.Errorf("a word of more than %d bytes", maxWord)
		}
	}
}

func (t *talk) close() { _ = t.conn.Close() }
