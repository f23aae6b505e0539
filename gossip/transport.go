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
	maxPerHost   = maxStreams / 2  // of them, by one address
	maxDial      = 2 * time.Second // for a connection
	firstFrame   = 5 * time.Second // for a stream's first frame
	packetQueue  = 256             // packets that memberlist has not taken; more wait in the kernel, which drops
	packetBuffer = 2 << 10         // bytes: enough to see that a packet is too large
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
	onAsk     func(body []byte) error                 // a question for all of ours
	onKeys    func(body []byte) (answer []byte)       // an order about keys
	onPing    func(address string, over string)       // a TCP ping of ours was answered
	onRefused func(peer string, dialed bool, e error) // logs

	conn    net.PacketConn
	ln      net.Listener
	self    netip.AddrPort // as others reach it
	packets chan *memberlist.Packet
	streams chan net.Conn
	lobby   lobby // the streams that others opened
	ctx     context.Context
	cancel  context.CancelFunc
	dialing context.Context // ends when nobody is to be called any more, before ctx
	hangUp  context.CancelFunc
	tasks   sync.WaitGroup
	open    openConns
	faults  faults
}

var _ memberlist.NodeAwareTransport = (*transport)(nil)

// start takes the port and begins to read.
func (t *transport) start(ctx context.Context, bind string) error {
	t.packets, t.streams = make(chan *memberlist.Packet, packetQueue), make(chan net.Conn)
	t.ctx, t.cancel = context.WithCancel(context.WithoutCancel(ctx))
	t.dialing, t.hangUp = context.WithCancel(t.ctx)
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
	buf := make([]byte, packetBuffer)
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
	if len(b) > maxPacket {
		t.onRefused(from.String(), false, refuse(causeSize, "a packet of more than %d bytes", maxPacket))
		return
	}
	k, body, err := t.codec.openPacket(b)
	switch {
	case err != nil:
	case k == kindReport:
		t.heard(from, t.onReport(body, now))
		return
	case k == kindAsk:
		t.heard(from, t.onAsk(body))
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

// heard counts a report, or a question for one, that was refused. Most are not
// worth a line: a newcomer's first words may come before its name.
func (t *transport) heard(from net.Addr, err error) {
	switch {
	case err == nil:
	case causeOf(err) == causeBroken:
		t.onRefused(from.String(), false, err)
	default:
		t.count.refused[causeOf(err)].Add(1)
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
		g, out := t.lobby.enter(conn)
		if out != nil {
			t.onRefused(out.RemoteAddr().String(), false, refuse(causeBusy, "it has sent nothing good yet, and others want its place"))
			out.Close() // refused: how it closes does not matter
		}
		if g != nil {
			t.tasks.Go(func() { t.takeStream(g) })
		}
	}
}

// takeStream reads a stream's first frame and hands the stream on. The place
// is given back when the stream closes.
func (t *transport) takeStream(g *guest) {
	s, ok := t.own(g.conn, func() { t.lobby.leave(g) })
	if !ok {
		return
	}
	_ = s.inner.SetDeadline(time.Now().Add(firstFrame)) // fails only on a closed one, which the read will tell
	k, body, err := t.codec.readStream(raw{s})
	if err == nil && k == kindList {
		err = t.guard.stream(body)
	}
	if err == nil {
		t.lobby.vouch(g)
	}
	switch {
	case errors.Is(err, net.ErrClosed): // it made room, or we stop
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
	defer context.AfterFunc(t.dialing, cancel)()
	conn, err := t.net.dial(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	kept := context.AfterFunc(t.dialing, func() { conn.Close() }) // whoever waits for an answer sees the end
	s, ok := t.own(conn, func() { kept() })
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
