package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"time"
)

// chromium is a browser that is told what to do over two pipes, by the DevTools
// protocol: a message is JSON and ends with a zero byte.
type chromium struct {
	cmd  *exec.Cmd
	dir  string // its profile
	said bytes.Buffer
	to   io.WriteCloser
	done chan struct{} // closed when it says nothing more

	mu     sync.Mutex // guards what follows
	next   int
	waits  map[int]chan message
	events func(message)
}

// message is an answer or an event.
type message struct {
	ID      int             `json:"id"`
	Session string          `json:"sessionId"`
	Method  string          `json:"method"`
	Params  json.RawMessage `json:"params"`
	Result  json.RawMessage `json:"result"`
	Error   *struct {
		Message string `json:"message"`
	} `json:"error"`
}

func lookFor(program string) (string, error) {
	if program != "" {
		return exec.LookPath(program)
	}
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if at, err := exec.LookPath(name); err == nil {
			return at, nil
		}
	}
	return "", errors.New("there is no chromium; install it (Debian: apt-get install chromium), or name it with -chromium")
}

// open starts a browser; events hears of everything that happens in its pages.
func open(ctx context.Context, program string, events func(message)) (_ *chromium, err error) {
	at, err := lookFor(program)
	if err != nil {
		return nil, err
	}
	c := &chromium{waits: map[int]chan message{}, events: events, done: make(chan struct{})}
	if c.dir, err = os.MkdirTemp("", "starling-browser-"); err != nil {
		return nil, err
	}
	theirIn, ourOut, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	ourIn, theirOut, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	c.cmd = exec.CommandContext(ctx, at, "--headless=new", "--remote-debugging-pipe", "--user-data-dir="+c.dir, "--no-first-run", "--disable-gpu",
		"--no-sandbox", // as root there is none; it loads nothing but our own page
		"--disable-background-networking", "--disable-component-update", "--disable-sync", "--no-default-browser-check", "--hide-scrollbars", "about:blank")
	c.cmd.ExtraFiles = []*os.File{theirIn, theirOut}  // its descriptors 3 and 4
	c.cmd.Stderr, c.cmd.WaitDelay = &c.said, patience // its children may hold on to what it says
	c.to = ourOut
	err = c.cmd.Start()
	theirIn.Close()
	theirOut.Close()
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", at, err)
	}
	go c.listen(ourIn)
	return c, nil
}

func (c *chromium) listen(in io.ReadCloser) {
	defer close(c.done)
	defer in.Close()
	for lines := bufio.NewReader(in); ; {
		text, err := lines.ReadBytes(0)
		if err != nil {
			return
		}
		var m message
		if json.Unmarshal(text[:len(text)-1], &m) != nil {
			continue
		}
		c.mu.Lock()
		wait := c.waits[m.ID]
		delete(c.waits, m.ID)
		c.mu.Unlock()
		switch {
		case wait != nil:
			wait <- m
		case m.Method != "":
			c.events(m)
		}
	}
}

// ask has the browser do something, and reads what came of it into v.
func (c *chromium) ask(ctx context.Context, session, method string, params, v any) error {
	answer := make(chan message, 1)
	c.mu.Lock()
	c.next++
	id := c.next
	c.waits[id] = answer
	c.mu.Unlock()
	order := map[string]any{"id": id, "method": method}
	if session != "" {
		order["sessionId"] = session
	}
	if params != nil {
		order["params"] = params
	}
	text, err := json.Marshal(order)
	if err != nil {
		return err
	}
	if _, err := c.to.Write(append(text, 0)); err != nil {
		return fmt.Errorf("%s: %w; %s", method, err, c.last())
	}
	select {
	case m := <-answer:
		if m.Error != nil {
			return fmt.Errorf("%s: %s", method, m.Error.Message)
		}
		if v != nil {
			return json.Unmarshal(m.Result, v)
		}
		return nil
	case <-c.done:
		return fmt.Errorf("%s: the browser has ended; %s", method, c.last())
	case <-ctx.Done():
		return fmt.Errorf("%s: %w", method, ctx.Err())
	}
}

// last is the end of what it said: much of it is about a desktop that is not there.
func (c *chromium) last() string {
	said := c.said.String()
	return "it said last: " + said[max(0, len(said)-300):]
}

// close ends the browser, and with it the processes that it has started, which write to
// its profile to their last. One that stays has a while, and leaves a profile then.
func (c *chromium) close() error {
	_ = c.to.Close() // which ends it
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	select {
	case <-c.done:
	case <-ctx.Done():
	}
	_ = c.cmd.Process.Kill()
	_ = c.cmd.Wait()
	return insist(ctx, func() error { return os.RemoveAll(c.dir) })
}

// insist does something until it succeeds or ctx ends; then its last error says why not.
func insist(ctx context.Context, do func() error) error {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		err := do()
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return err
		}
	}
}
