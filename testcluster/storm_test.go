package testcluster_test

import (
	"bufio"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	runtimemetrics "runtime/metrics"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/starling-lb/starling/proxy"
	"github.com/starling-lb/starling/proxy/backend"
	"github.com/starling-lb/starling/testcluster"
)

var stormFull = flag.Bool("storm.full", false, "TestStorm in full: 10,000 streams, 2,000 at a time, 50 uploads of 100 MB")

// perStream bounds the memory of one stream, whatever its ends do. Here its
// client and its backend are within it, as all is one process.
const perStream = 160 << 10

// size says how large a storm is.
type size struct {
	streams, atATime     int
	uploads, uploadBytes int
	pieces               int           // of an answer
	pace                 time.Duration // between two of them
	within               time.Duration
}

func stormSize() size {
	if *stormFull {
		return size{10_000, 2_000, 50, 100_000_000, 80, 250 * time.Millisecond, 10 * time.Minute}
	}
	return size{1_000, 200, 2, 20_000_000, 20, 40 * time.Millisecond, 3 * time.Minute}
}

// storm is clients of all kinds, many at a time, and what they met.
type storm struct {
	size
	t    *testing.T
	node *testcluster.Node

	open, most atomic.Int64 // streams with an answer under way
	mu         sync.Mutex   // guards what follows
	ends       map[backend.Reason]int
}

// TestStorm: streams of every kind through one node. No byte is wrong, each
// ends as it should and is counted so, and nothing is left of them.
func TestStorm(t *testing.T) {
	s := &storm{size: stormSize(), t: t, ends: map[backend.Reason]int{}}
	s.node = startNode(t, testcluster.Options{}, func(p *proxy.PoolConfig) {
		p.Outlier.ConsecutiveFailures = 0 // all break off on purpose
		p.Timeouts.BackendKeepalive = 200 * time.Millisecond
	}, newOrigin(t, "b1", serveStorm), newOrigin(t, "b2", serveStorm), newOrigin(t, "b3", serveStorm))
	rest := &soak{t: t, node: s.node}

	s.run(0, s.atATime) // fills what is kept on purpose
	before := rest.count()
	after := s.blow(1, rest, before)
	if grew(before.resident, after.resident) {
		// A heap may settle into a few pages more than it had; what leaks
		// does it again.
		before.resident = after.resident
		after = s.blow(2, rest, before)
	}
	before.compare(t, after)
	s.counted()
}

// blow is one whole storm; it returns what is left of it.
func (s *storm) blow(seed uint64, rest *soak, before counts) counts {
	peak, rested := s.peakMemory(), held()
	began := time.Now()
	s.run(seed, s.streams)
	took := time.Since(began)
	grown := int64(peak() - rested)
	after := rest.count()
	s.t.Logf("%d streams in %v, %d at a time; at the most %d MiB more, %d KiB a stream with its client and backend; before: %v, left: %v",
		s.streams, took.Round(time.Millisecond), s.most.Load(), grown>>20, grown>>10/int64(s.atATime), before, after)
	if took > s.within {
		s.t.Errorf("it took %v, want at most %v", took, s.within)
	}
	if most := s.most.Load(); most < int64(s.atATime)*8/10 {
		s.t.Errorf("only %d streams at a time", most)
	}
	if grown > int64(s.atATime)*perStream {
		s.t.Errorf("memory grew by %d MiB, want at most %d", grown>>20, s.atATime*perStream>>20)
	}
	return after
}

// counted compares how the streams ended with what starling says.
func (s *storm) counted() {
	s.t.Helper()
	for _, r := range backend.Reasons() {
		if got, want := metrics(s.t, s.node, "starling_streams_total", reason(r)), s.ends[r]; got != float64(want) {
			s.t.Errorf("%v streams were counted as %s, want %d", got, r, want)
		}
	}
}

// peakMemory watches how much memory is held, until it is asked.
func (s *storm) peakMemory() (peak func() uint64) {
	stop, most := make(chan struct{}), make(chan uint64)
	go func() {
		var top uint64
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for {
			top = max(top, held())
			select {
			case <-tick.C:
			case <-stop:
				most <- top
				return
			}
		}
	}()
	return func() uint64 {
		close(stop)
		return <-most
	}
}

// held is the memory that something points to, in bytes: the heap as the last
// collection found it, and the stacks. What only waits to be collected, and
// what the runtime keeps for itself, depends on what ran before in the process.
func held() uint64 {
	sample := []runtimemetrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/memory/classes/heap/stacks:bytes"}}
	runtimemetrics.Read(sample)
	return sample[0].Value.Uint64() + sample[1].Value.Uint64()
}

// run has streams clients, as many at a time as there may be.
func (s *storm) run(seed uint64, streams int) {
	var next atomic.Int64
	var clients sync.WaitGroup
	for range s.atATime {
		clients.Go(func() {
			for i := int(next.Add(1)) - 1; i < streams && !s.t.Failed(); i = int(next.Add(1)) - 1 {
				s.one(seed, i)
			}
		})
	}
	clients.Wait()
	if s.t.Failed() {
		s.t.FailNow()
	}
}

// one is one client; its kind and all it does follow from its number.
func (s *storm) one(seed uint64, i int) {
	kinds := []struct {
		name string
		run  func(*stormClient) (backend.Reason, error)
	}{
		{"events", (*stormClient).reads}, {"events", (*stormClient).reads}, {"WebSocket", (*stormClient).talks},
		{"WebSocket", (*stormClient).talks}, {"gone", (*stormClient).leaves}, {"slow", (*stormClient).readsSlowly},
		{"broken", (*stormClient).seesItBreak}, {"deaf", (*stormClient).readsNothing},
	}
	kind := kinds[i%len(kinds)]
	if every := s.streams / s.uploads; seed > 0 && i%every == every/2 {
		kind.name, kind.run = "upload", (*stormClient).uploads
	}
	c := &stormClient{storm: s, dice: rand.New(rand.NewPCG(seed, uint64(i)))}
	var why backend.Reason
	err := c.connect()
	if err == nil {
		why, err = kind.run(c)
		s.open.Add(-c.counted)
		c.conn.Close()
	}
	if err != nil {
		s.t.Errorf("stream %d, %s: %v", i, kind.name, err)
		return
	}
	s.mu.Lock()
	s.ends[why]++
	s.mu.Unlock()
}

// stormClient is one of the clients.
type stormClient struct {
	*storm
	dice    *rand.Rand
	conn    *net.TCPConn
	in      *bufio.Reader
	counted int64 // 1 once it is among the open ones
}

func (c *stormClient) connect() error {
	conn, err := net.Dial("tcp", c.node.ProxyAddrs()[0])
	if err != nil {
		return err
	}
	c.conn, c.in = conn.(*net.TCPConn), bufio.NewReader(conn)
	return c.conn.SetDeadline(time.Now().Add(time.Duration(c.pieces)*c.pace*2 + 2*patience))
}

// order is a random answer of pieces with a pace.
func (c *stormClient) order() order {
	return order{
		seed: c.dice.Uint64(), pieces: c.pieces/2 + c.dice.IntN(c.pieces), size: 1 + c.dice.IntN(2000), pace: c.pace,
		framed: [...]string{"chunked", "length", "close"}[c.dice.IntN(3)],
	}
}

// ask sends a request and reads the head of its answer.
func (c *stormClient) ask(o order, more string) (*http.Response, error) {
	if _, err := fmt.Fprintf(c.conn, "GET /storm?%s HTTP/1.1\r\nHost: storm\r\n%s\r\n", o.query(), more); err != nil {
		return nil, err
	}
	return c.answer()
}

func (c *stormClient) answer() (*http.Response, error) {
	resp, err := http.ReadResponse(c.in, nil)
	if err == nil && resp.StatusCode != http.StatusOK && resp.StatusCode != http.StatusSwitchingProtocols {
		text, _ := io.ReadAll(resp.Body) // what can be had of the reason
		err = fmt.Errorf("status %d: %s", resp.StatusCode, text)
	}
	if err != nil {
		return nil, fmt.Errorf("head: %w", err)
	}
	c.counted = 1
	for n := c.open.Add(1); ; {
		if most := c.most.Load(); n <= most || c.most.CompareAndSwap(most, n) {
			return resp, nil
		}
	}
}

// reads takes an answer to its end.
func (c *stormClient) reads() (backend.Reason, error) {
	o := c.order()
	resp, err := c.ask(o, "")
	if err != nil {
		return "", err
	}
	return backend.Done, matches(resp.Body, o.seed, o.bytes())
}

// readsSlowly takes an answer much more slowly than it is sent.
func (c *stormClient) readsSlowly() (backend.Reason, error) {
	if err := c.conn.SetReadBuffer(16 << 10); err != nil {
		return "", err
	}
	o := c.order()
	o.pieces, o.size, o.pace = 2*c.pieces, 16<<10, 0
	resp, err := c.ask(o, "")
	if err != nil {
		return "", err
	}
	got := &comparing{want: noise(o.seed)}
	for err == nil {
		<-time.After(c.pace / 2)
		_, err = io.CopyN(got, resp.Body, 16<<10)
	}
	if err == io.EOF && got.n == o.bytes() {
		err = nil
	}
	return backend.Done, err
}

// readsNothing leaves an endless answer where it is, and then leaves.
func (c *stormClient) readsNothing() (backend.Reason, error) {
	o := c.order()
	o.pieces, o.size, o.pace, o.framed = 0, 16<<10, 0, "chunked"
	if _, err := c.ask(o, ""); err != nil {
		return "", err
	}
	<-time.After(time.Duration(c.pieces) * c.pace)
	return backend.ClientLeft, c.conn.SetLinger(0)
}

// leaves gives up in the middle of an answer.
func (c *stormClient) leaves() (backend.Reason, error) {
	o := c.order()
	read := int64(o.size) * int64(1+c.dice.IntN(o.pieces))
	o.pieces, o.framed = 0, [...]string{"chunked", "close"}[c.dice.IntN(2)]
	resp, err := c.ask(o, "")
	if err != nil {
		return "", err
	}
	if err = matches(io.LimitReader(resp.Body, read), o.seed, read); c.dice.IntN(2) == 0 {
		err = errors.Join(err, c.conn.SetLinger(0))
	}
	return backend.ClientLeft, err
}

// seesItBreak wants to see that an answer was broken off.
func (c *stormClient) seesItBreak() (backend.Reason, error) {
	o := c.order()
	o.ends = "RST"
	if o.framed != "close" && c.dice.IntN(2) == 0 {
		o.ends = "FIN"
	}
	resp, err := c.ask(o, "")
	if err != nil {
		return "", err
	}
	got := &comparing{want: noise(o.seed)}
	_, err = io.Copy(got, resp.Body)
	var network net.Error
	switch {
	case err == nil:
		return "", fmt.Errorf("an answer (%s) broken off by a %s looks whole after %d bytes", o.framed, o.ends, got.n)
	case got.n > o.bytes()/2, errors.As(err, &network) && network.Timeout(), !errors.Is(err, io.ErrUnexpectedEOF) && !errors.As(err, &network):
		return "", fmt.Errorf("broken off after %d bytes: %w", got.n, err)
	}
	return backend.BackendBroke, nil
}

// talks sends frames and wants them back.
func (c *stormClient) talks() (backend.Reason, error) {
	if _, err := c.ask(order{}, "Connection: Upgrade\r\nUpgrade: websocket\r\n"); err != nil {
		return "", err
	}
	source := noise(c.dice.Uint64())
	for range c.pieces {
		payload := make([]byte, c.dice.IntN(4000))
		if _, err := io.ReadFull(source, payload); err != nil {
			return "", err
		}
		if err := c.echo(binaryFrame, payload); err != nil {
			return "", err
		}
		<-time.After(c.pace)
	}
	if c.dice.IntN(3) == 0 {
		return backend.ClientLeft, c.conn.SetLinger(0)
	}
	err := c.echo(closeFrame, []byte{3, 232})
	if _, end := c.in.ReadByte(); err == nil && end != io.EOF {
		err = fmt.Errorf("after the close frames: %w", end)
	}
	return backend.Done, err
}

func (c *stormClient) echo(opcode byte, payload []byte) error {
	if _, err := c.conn.Write(frame(opcode, payload, true)); err != nil {
		return err
	}
	got, back, err := readFrame(c.in)
	if err == nil && (got != opcode || string(back) != string(payload)) {
		err = fmt.Errorf("a frame %d of %d bytes came back as %d of %d bytes", opcode, len(payload), got, len(back))
	}
	return err
}

// uploads sends a large body.
func (c *stormClient) uploads() (backend.Reason, error) {
	o := order{seed: c.dice.Uint64(), pieces: 1, size: c.uploadBytes}
	framing, body := fmt.Sprintf("Content-Length: %d", o.size), io.LimitReader(noise(o.seed), o.bytes())
	chunked := c.dice.IntN(2) == 0
	if chunked {
		framing = "Transfer-Encoding: chunked"
	}
	if _, err := fmt.Fprintf(c.conn, "POST /storm?%s HTTP/1.1\r\nHost: storm\r\n%s\r\n\r\n", o.query(), framing); err != nil {
		return "", err
	}
	buf := make([]byte, 64<<10)
	for {
		n, err := body.Read(buf)
		if n > 0 && chunked {
			_, err = fmt.Fprintf(c.conn, "%x\r\n%s\r\n", n, buf[:n])
		} else if n > 0 {
			_, err = c.conn.Write(buf[:n])
		}
		if err == io.EOF {
			break
		} else if err != nil {
			return "", fmt.Errorf("upload: %w", err)
		}
	}
	if chunked {
		io.WriteString(c.conn, "0\r\n\r\n")
	}
	resp, err := c.answer()
	if err != nil {
		return "", err
	}
	_, err = io.Copy(io.Discard, resp.Body)
	return backend.Done, err
}
