package gossip

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/memberlist"
)

// What strangers may hold, and how long anything on the wire may take.
const (
	maxStreams   = 64              // that others opened, at a time
	maxDial      = 2 * time.Second // for a connection
	firstFrame   = 5 * time.Second // for a stream's first frame
	packetQueue  = 256             // packets that memberlist has not taken; more wait in the kernel, which drops
	readBuffer   = 2 << 20         // bytes of the kernel's, for when this process does not get to run
	bindAttempts = 10              // for a free port that both protocols can have
)

// errStopped is what a transport that was stopped answers.
var errStopped = errors.New("gossip is stopped")

// network is what the transport stands on; tests put faults there.
type network struct {
	listen       func(ctx context.Context, network, address string) (net.Listener, error)
	listenPacket func(ctx context.Context, network, address string) (net.PacketConn, error)
	dial         func(ctx context.Context, network, address string) (net.Conn, error)
}

// transport carries frames for memberlist and for us on one port. Whatever
// memberlist sees has passed the guard.
type transport struct {
	net       network
	codec     codec
	guard     guard // of what comes in
	outgoing  guard
	pings     pings
	ending    atomic.Bool // memberlist is to send nothing more
	log       *slog.Logger
	count     *counters
	advertise func(port uint16) (netip.AddrPort, error)
	onReport  func(body []byte, at time.Time) error   // a report's packet
	onKeys    func(body []byte) (answer []byte)       // an order about keys
	onPing    func(address string, over string)       // a TCP ping of ours was answered
	onRefused func(peer string, dialed bool, e error) // logs

	conn    net.PacketConn
	ln      net.Listener
	self    netip.AddrPort // as others reach it
	packets chan *memberlist.Packet
	streams chan net.Conn
	room    chan struct{} // a place for each stream that others opened
	ctx     context.Context
	cancel  context.CancelFunc
	tasks   sync.WaitGroup
	open    openConns
	faults  faults
}

var _ memberlist.NodeAwareTransport = (*transport)(nil)

// start takes the port and begins to read.
func (t *transport) start(ctx context.Context, bind string) error {
	t.packets, t.streams = make(chan *memberlist.Packet, packetQueue), make(chan net.Conn)
	t.room = make(chan struct{}, maxStreams)
	t.ctx, t.cancel = context.WithCancel(context.WithoutCancel(ctx))
	if err := t.bind(ctx, bind); err != nil {
		return err
	}
	var err error
	if t.self, err = t.advertise(portOf(t.ln.Addr())); err != nil {
		return errors.Join(err, t.ln.Close(), t.conn.Close())
	}
	t.tasks.Go(t.packetLoop)
	t.tasks.Go(t.acceptLoop)
	return nil
}

// bind takes the address for both protocols. A free port of the one may be
// taken for the other, so that is tried again.
func (t *transport) bind(ctx context.Context, address string) error {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Errorf("gossip on %s: %w", address, err)
	}
	for i := 0; ; i++ {
		if t.ln, err = t.net.listen(ctx, "tcp", address); err != nil {
			return fmt.Errorf("gossip on %s: %w; write another address for cluster.bind", address, err)
		}
		same := net.JoinHostPort(host, strconv.Itoa(int(portOf(t.ln.Addr()))))
		if t.conn, err = t.net.listenPacket(ctx, "udp", same); err == nil {
			if b, ok := t.conn.(interface{ SetReadBuffer(int) error }); ok {
				_ = b.SetReadBuffer(readBuffer) // the kernel may give less
			}
			return nil
		}
		err = fmt.Errorf("gossip on %s (UDP): %w; write another address for cluster.bind", same, err)
		if e := t.ln.Close(); e != nil || port != "0" || i == bindAttempts {
			return errors.Join(err, e)
		}
	}
}

func portOf(a net.Addr) uint16 {
	at, _ := netip.ParseAddrPort(a.String())
	return at.Port()
}

func (t *transport) packetLoop() {
	buf := make([]byte, 64<<10)
	for {
		n, from, err := t.conn.ReadFrom(buf)
		now := time.Now()
		if t.ctx.Err() != nil {
			return
		}
		if err != nil { // an ICMP answer to something sent, mostly
			t.count.errors.Add(1)
			if errors.Is(err, net.ErrClosed) || !t.pause(10*time.Millisecond) {
				return
			}
			continue
		}
		t.count.in(n)
		t.takePacket(buf[:n], from, now)
	}
}

func (t *transport) pause(d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-t.ctx.Done():
		return false
	}
}

func (t *transport) takePacket(b []byte, from net.Addr, now time.Time) {
	k, body, err := t.codec.openPacket(b)
	switch {
	case err != nil:
	case k == kindReport:
		if err := t.onReport(body, now); causeOf(err) == causeBroken && err != nil {
			t.onRefused(from.String(), false, err)
		} else if err != nil { // a newcomer's first words may come before its name
			t.count.refused[causeOf(err)].Add(1)
		}
		return
	case k == kindList:
		err = t.guard.packet(body)
	default:
		err = refuse(causeBroken, "a packet has kind %d", k)
	}
	if err != nil {
		t.onRefused(from.String(), false, err)
		return
	}
	select {
	case t.packets <- &memberlist.Packet{Buf: body, From: from, Timestamp: now}:
	case <-t.ctx.Done():
	}
}

func (t *transport) acceptLoop() {
	for {
		conn, err := t.ln.Accept()
		if t.ctx.Err() != nil {
			if err == nil {
				conn.Close() // nobody is told anything any more
			}
			return
		}
		if err != nil {
			t.count.errors.Add(1)
			if !t.pause(100 * time.Millisecond) {
				return
			}
			continue
		}
		select {
		case t.room <- struct{}{}:
			t.tasks.Go(func() { t.takeStream(conn) })
		default:
			t.onRefused(conn.RemoteAddr().String(), false, refuse(causeBusy, "%d", maxStreams))
			conn.Close() // refused: how it closes does not matter
		}
	}
}

// takeStream reads a stream's first frame and hands the stream on. The place
// is given back when the stream closes.
func (t *transport) takeStream(conn net.Conn) {
	s, ok := t.own(conn, func() { <-t.room })
	if !ok {
		return
	}
	_ = s.inner.SetDeadline(time.Now().Add(firstFrame)) // fails only on a closed one, which the read will tell
	k, body, err := t.codec.readStream(raw{s})
	if err == nil && k == kindList {
		err = t.guard.stream(body)
	}
	switch {
	case err != nil:
		t.refuseStream(s, err)
	case k == kindList:
		s.read = body
		select {
		case t.streams <- s:
			return // memberlist closes it
		case <-t.ctx.Done():
		}
	case k == kindKeys:
		if answer := t.onKeys(body); answer != nil {
			_, _ = s.send(kindKeys, answer) // the asker sees that it got none
		}
	}
	_ = s.Close()
}

func (t *transport) refuseStream(s *frameConn, err error) {
	t.onRefused(s.RemoteAddr().String(), false, err)
	var r *refusal
	if errors.As(err, &r) {
		_, _ = s.send(kindRefusal, []byte{byte(r.cause)}) // a courtesy
	}
}

// FinalAdvertiseAddr implements memberlist.Transport.
func (t *transport) FinalAdvertiseAddr(string, int) (net.IP, int, error) {
	return t.self.Addr().AsSlice(), int(t.self.Port()), nil
}

// WriteTo implements memberlist.Transport.
func (t *transport) WriteTo(b []byte, addr string) (time.Time, error) {
	if err := t.outgoing.packet(b); err != nil {
		return time.Time{}, fmt.Errorf("packet to %s: %w", addr, err)
	}
	if t.ending.Load() {
		return time.Time{}, errStopped // and no answer is waited for
	}
	return time.Now(), t.sendPacket(kindList, b, addr)
}

func (t *transport) sendPacket(k kind, body []byte, addr string) error {
	return t.sendFrame(t.codec.packet(k, body), addr)
}

func (t *transport) sendFrame(frame []byte, addr string) error {
	to, err := netip.ParseAddrPort(addr)
	if err != nil {
		return fmt.Errorf("packet to %s: %w", addr, err)
	}
	t.count.out(len(frame))
	if _, err = t.conn.WriteTo(frame, net.UDPAddrFromAddrPort(to)); err != nil {
		t.count.errors.Add(1)
	}
	return err
}

// broadcast sends one body to several: sealed once, since it is the same.
func (t *transport) broadcast(k kind, body []byte, to []peer) {
	frame := t.codec.packet(k, body)
	for _, p := range to {
		_ = t.sendFrame(frame, p.addr) // counted; what is lost, the next full report brings
	}
}

// PacketCh implements memberlist.Transport.
func (t *transport) PacketCh() <-chan *memberlist.Packet { return t.packets }

// StreamCh implements memberlist.Transport.
func (t *transport) StreamCh() <-chan net.Conn { return t.streams }

// DialTimeout implements memberlist.Transport.
func (t *transport) DialTimeout(addr string, timeout time.Duration) (net.Conn, error) {
	s, err := t.dial(t.ctx, addr, timeout)
	if err != nil {
		t.faults.keep(addr, err)
		return nil, err // not a nil *frameConn, which is no nil net.Conn
	}
	return s, nil
}

func (t *transport) dial(ctx context.Context, addr string, timeout time.Duration) (*frameConn, error) {
	ctx, cancel := context.WithTimeout(ctx, min(timeout, maxDial))
	defer cancel()
	defer context.AfterFunc(t.ctx, cancel)()
	conn, err := t.net.dial(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	s, ok := t.own(conn, func() {})
	if !ok {
		return nil, errStopped
	}
	s.dialed = addr
	return s, nil
}

// WriteToAddress implements memberlist.NodeAwareTransport.
func (t *transport) WriteToAddress(b []byte, a memberlist.Address) (time.Time, error) {
	return t.WriteTo(b, a.Addr)
}

// DialAddressTimeout implements memberlist.NodeAwareTransport.
func (t *transport) DialAddressTimeout(a memberlist.Address, timeout time.Duration) (net.Conn, error) {
	return t.DialTimeout(a.Addr, timeout)
}

// Shutdown implements memberlist.Transport: it closes all and waits until
// nothing reads any more. A second call does nothing.
func (t *transport) Shutdown() error {
	t.cancel()
	err := errors.Join(ignoreClosed(t.ln.Close()), ignoreClosed(t.conn.Close()))
	t.open.stop()
	t.tasks.Wait()
	return err
}

func ignoreClosed(err error) error {
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}
