package wirecase

import (
	"bufio"
	"context"
	"io"
	"net"
	"time"
)

// Client is a raw connection to a proxy. It reads responses from the start by
// itself; what it sends is up to the caller. One goroutine may wait. Close it.
type Client struct {
	Began time.Time

	conn    net.Conn
	tap     *tap
	methods []string
	done    chan struct{} // closed when nothing more will come

	// log is owned by whoever took it out: one token, so that waiting for a
	// change needs no second lock.
	log     chan *Seen
	changed chan struct{} // cap 1: something came since the last look
}

// Seen is what a client got so far.
type Seen struct {
	Finals   []Message // the last may be incomplete
	Interim  []Message // 1xx whose final response has not come
	After101 []byte
	Ended    string // Fin, Reset or "" while open
	Raw      []byte
	Defects  []string // of what is no response at all

	head bool // a head has begun and is not complete
}

// Complete counts final responses that came whole; a 101 is one.
func (s *Seen) Complete() int {
	n := 0
	for _, m := range s.Finals {
		if m.Complete {
			n++
		}
	}
	return n
}

// Dial connects; methods are those of the requests to be sent, GET where left
// out. Writes fail once ctx has ended by its deadline.
func Dial(ctx context.Context, addr string, methods ...string) (*Client, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	if end, ok := ctx.Deadline(); ok {
		if err := conn.SetWriteDeadline(end); err != nil {
			return nil, err
		}
	}
	c := &Client{
		Began: time.Now(), conn: conn, tap: &tap{conn: conn}, methods: methods,
		done: make(chan struct{}), log: make(chan *Seen, 1), changed: make(chan struct{}, 1),
	}
	c.log <- &Seen{}
	go c.readLoop() // ends with the connection; Close waits for it
	return c, nil
}

// Send writes all of it.
func (c *Client) Send(s string) error {
	_, err := io.WriteString(c.conn, s)
	return err
}

// HalfClose says that no more bytes come from here.
func (c *Client) HalfClose() error { return c.conn.(*net.TCPConn).CloseWrite() }

// Reset ends the connection with a RST.
func (c *Client) Reset() error { return reset(c.conn) }

// Close ends the connection and waits for the reader.
func (c *Client) Close() {
	_ = c.conn.Close() // closed twice is closed
	<-c.done
}

// Seen is a copy of what came so far.
func (c *Client) Seen() Seen {
	log := <-c.log
	s := *log
	s.Finals = append([]Message(nil), s.Finals...)
	s.Interim = append([]Message(nil), s.Interim...)
	c.log <- log
	s.Raw, s.Ended = c.tap.seen()
	return s
}

// Until waits for a state of affairs; false if it did not come before ctx
// ended, or never can.
func (c *Client) Until(ctx context.Context, ok func(Seen) bool) bool {
	for {
		if ok(c.Seen()) {
			return true
		}
		select {
		case <-c.changed:
		case <-c.done:
			return ok(c.Seen())
		case <-ctx.Done():
			return ok(c.Seen())
		}
	}
}

// Await waits for the nth complete final response, each within the timeout.
func (c *Client) Await(ctx context.Context, n int, timeout time.Duration) bool {
	for i := 1; i <= n; i++ {
		each, cancel := context.WithTimeout(ctx, timeout)
		ok := c.Until(each, func(s Seen) bool { return s.Complete() >= i })
		cancel()
		if !ok {
			return false
		}
	}
	return true
}

func (c *Client) update(change func(*Seen)) {
	log := <-c.log
	change(log)
	c.log <- log
	select {
	case c.changed <- struct{}{}:
	default:
	}
}

func (c *Client) readLoop() {
	defer close(c.done)
	r := bufio.NewReader(c.tap)
	for i := 0; ; i++ {
		method := "GET"
		if i < len(c.methods) {
			method = c.methods[i]
		}
		if !c.readResponse(r, method) {
			break
		}
	}
	_, _ = io.Copy(io.Discard, r) // only how it ends is of interest now
}

// readResponse reads up to the end of the next final response; false when
// nothing can follow it.
func (c *Client) readResponse(r *bufio.Reader, method string) bool {
	m, f, ok := c.readFinalHead(r, method)
	if !ok {
		return false
	}
	if m.Status == 101 {
		m.Complete = true
		c.publish(m)
		c.readTunnel(r)
		return false
	}
	c.publish(m)
	b := bodyReader{r: r, piece: func(p []byte) {
		c.update(func(s *Seen) { s.Finals[len(s.Finals)-1].take(p) })
	}}
	err := b.read(f)
	c.update(func(s *Seen) { s.Finals[len(s.Finals)-1].end(&b, err) })
	return err == nil && f.kind != untilClose
}

func (c *Client) readFinalHead(r *bufio.Reader, method string) (*Message, framing, bool) {
	for {
		if _, err := r.Peek(1); err != nil {
			return nil, framing{}, false
		}
		c.update(func(s *Seen) { s.head = true })
		m, err := readHead(r)
		if err != nil {
			c.update(func(s *Seen) { s.Defects = append(s.Defects, m.Defects...) })
			return nil, framing{}, false
		}
		f := m.asResponse(method)
		if m.Status/100 != 1 || m.Status == 101 {
			return m, f, true
		}
		m.Complete = true
		c.update(func(s *Seen) { s.Interim, s.head = append(s.Interim, *m), false })
	}
}

func (c *Client) publish(m *Message) {
	c.update(func(s *Seen) {
		m.Interim, s.Interim, s.head = s.Interim, nil, false
		s.Finals = append(s.Finals, *m)
	})
}

func (c *Client) readTunnel(r *bufio.Reader) {
	b := bodyReader{r: r, piece: func(p []byte) {
		c.update(func(s *Seen) { s.After101 = append(s.After101, p[:min(len(p), maxRaw-len(s.After101))]...) })
	}}
	_ = b.read(framing{kind: untilClose}) // the tap saw how it ended
}

// take appends a piece of the body.
func (m *Message) take(p []byte) {
	if m.BodyAt.IsZero() {
		m.BodyAt = time.Now()
	}
	m.Body = append(m.Body, p[:min(len(p), maxBody-len(m.Body))]...)
}
