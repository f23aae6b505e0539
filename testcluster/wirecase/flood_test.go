package wirecase

import (
	"bufio"
	"fmt"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

const period = 251 // of the flood's bytes: no power of two, so that a lost block shows

// flood sends chunks as fast as they are taken, until told to finish.
type flood struct {
	block  string // 64 KiB and a period more
	finish chan struct{}
	taken  atomic.Int64 // by all streams
}

func newFlood() *flood {
	block := make([]byte, 64<<10+period)
	for i := range block {
		block[i] = byte(i % period)
	}
	return &flood{block: string(block), finish: make(chan struct{})}
}

func (f *flood) serve(c *Conn) {
	if _, err := c.Next(); err != nil || c.Send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n") != nil {
		return
	}
	const size = 64 << 10
	for at := 0; ; at += size {
		select {
		case <-f.finish:
			_ = c.Send("0\r\n\r\n")
			return
		default:
		}
		from := at % period
		if c.Send("10000\r\n") != nil || c.Send(f.block[from:from+size]) != nil || c.Send("\r\n") != nil {
			return
		}
		f.taken.Add(size)
	}
}

// G18: memory grew while a client did not read
// (github.com/valyala/fasthttp/issues/840). The clients stop for 2 s in which nothing moves, not for 15,
// and have a receive buffer of 256 KiB, not 4: below the loopback's segment of
// 64 KiB it would take the kernels minutes to carry the rest. No other test runs beside it, for the heap.
func TestG18SlowClients(t *testing.T) {
	const clients = 20
	for _, l := range loops() {
		t.Run(l.name, func(t *testing.T) {
			f := newFlood()
			b := started(t, f.serve)
			r := newRig(t, l, setup{backends: []string{b.Addr()}})
			before := heap()
			var readers []*slowClient
			for range clients {
				readers = append(readers, newSlowClient(r))
			}
			held := f.stalls(r)
			// What the kernel holds on two connections, 4 + 6 MiB each at most, and the documented 64 KiB each way.
			if held > clients*16<<20 {
				t.Errorf("%d MiB a stream were taken", held>>20/clients)
			}
			if grown := heap() - before; grown > clients*128<<10+16<<20 {
				t.Errorf("the heap grew by %d MiB", grown>>20)
			}
			close(f.finish)
			var reading sync.WaitGroup
			var got atomic.Int64
			for _, c := range readers {
				reading.Go(func() {
					n, err := c.verify()
					got.Add(n)
					if err != nil {
						t.Error(err)
					}
				})
			}
			reading.Wait()
			if got.Load() != f.taken.Load() {
				t.Errorf("%d bytes came, %d were sent", got.Load(), f.taken.Load())
			}
		})
	}
}

// The same with write_idle: the stream is cut and the backend's connection
// closed.
func TestG18SlowClientsAreCut(t *testing.T) {
	onEachLoop(t, func(t *testing.T, l loop) {
		const clients = 4
		f := newFlood()
		b := started(t, f.serve)
		r := newRig(t, l, setup{backends: []string{b.Addr()}, top: "timeouts: {write_idle: 500ms}\n"})
		for range clients {
			newSlowClient(r)
		}
		r.eventually(func() string {
			if accepted, open := b.Conns(); accepted < clients || open > 0 {
				return fmt.Sprintf("%d of %d backend connections are open", open, accepted)
			}
			return ""
		})
		r.wantReason("client_slow", clients)
	})
}

// slowClient asked for the flood, has read the head, and reads no more.
type slowClient struct {
	conn *net.TCPConn
	r    *bufio.Reader
}

func newSlowClient(r *rig) *slowClient {
	r.t.Helper()
	conn, err := net.Dial("tcp", r.addr)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = conn.Close() })
	c := &slowClient{conn: conn.(*net.TCPConn), r: bufio.NewReader(conn)}
	if err := c.conn.SetReadBuffer(256 << 10); err != nil {
		r.t.Fatal(err)
	}
	if _, err := conn.Write([]byte(get("/flood"))); err != nil {
		r.t.Fatal(err)
	}
	end, _ := r.ctx.Deadline()
	_ = conn.SetReadDeadline(end) // fails only if closed, as the read would
	m, err := readHead(c.r)
	if f := m.asResponse("GET"); err != nil || f.kind != chunked || m.Status != 200 {
		r.t.Fatalf("got %q, %v", m.Raw, err)
	}
	return c
}

// heap is what is in use after a collection.
func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapInuse + m.StackInuse)
}

// stalls waits until nothing was taken for two seconds, and tells how much was before.
func (f *flood) stalls(r *rig) (held int64) {
	r.t.Helper()
	last, since := int64(-1), time.Now()
	r.eventually(func() string {
		if now := f.taken.Load(); now != last {
			last, since = now, time.Now()
		}
		if time.Since(since) < 2*time.Second {
			return fmt.Sprintf("backends still send while nobody reads; %d bytes so far", last)
		}
		return ""
	})
	return last
}

// verify reads the flood to its end and checks each byte.
func (c *slowClient) verify() (int64, error) {
	at, bad := int64(0), int64(-1)
	body := bodyReader{r: c.r, piece: func(p []byte) {
		for i, c := range p {
			if bad < 0 && c != byte((at+int64(i))%period) {
				bad = at + int64(i)
			}
		}
		at += int64(len(p))
	}}
	if err := body.read(framing{kind: chunked}); err != nil {
		return at, fmt.Errorf("after %d bytes: %w", at, err)
	}
	if bad >= 0 {
		return at, fmt.Errorf("byte %d is wrong", bad)
	}
	return at, nil
}
