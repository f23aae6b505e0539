package fault

import (
	"context"
	"math/rand/v2"
	"net"
	"sync"
	"time"
)

// Path is what happens to all that one end sends another; the zero Path is a good
// one. A protocol that is not named is good.
type Path struct {
	TCP, UDP bool // what it holds for; neither: both

	Off   bool          // nothing arrives. A stream goes on where it was when that is over
	Loss  float64       // share of packets, 0 to 1; of a stream, pieces come later, as they do when sent again
	Delay time.Duration // of everything

	// Of packets alone, whatever the protocols above: shares, 0 to 1.
	Twice   float64 // come a second time, a moment later
	Behind  float64 // come a moment later, behind what was sent after them
	Flipped float64 // have one bit that is another
}

// strays tells whether something becomes of packets but loss and delay.
func (p Path) strays() bool { return p.Twice > 0 || p.Behind > 0 || p.Flipped > 0 }

func (p Path) tcp() bool { return p.TCP || !p.UDP }
func (p Path) udp() bool { return p.UDP || !p.TCP }

// Links are the ways between some named ends, each of which can be made bad on
// its own, in each direction. Whoever dials or sends does it through an End.
type Links struct {
	net  *Net
	stop chan struct{}
	all  sync.WaitGroup // packets that are delayed, and what plays losses
	once sync.Once

	mu      sync.Mutex // guards what follows
	over    bool
	ends    map[string]string // by host:port
	paths   map[[2]string]Path
	stalled map[[2]string]bool // by a loss of the moment
	late    int
}

const (
	maxLate   = 10_000                 // packets that are delayed at a time; more are lost
	lossEvery = 50 * time.Millisecond  // streams' losses are drawn so often
	lossTime  = 200 * time.Millisecond // that a stream waits for what was lost, as TCP's do at least
	moment    = 50 * time.Millisecond  // at most, by which a packet is behind others
)

// NewLinks are good ones.
func NewLinks() *Links {
	l := &Links{net: New(), stop: make(chan struct{}), ends: map[string]string{}, paths: map[[2]string]Path{}, stalled: map[[2]string]bool{}}
	l.all.Go(l.lossLoop)
	return l
}

// Stop resets what is open; no more is carried.
func (l *Links) Stop() {
	l.once.Do(func() {
		l.mu.Lock()
		l.over = true
		l.mu.Unlock()
		close(l.stop)
	})
	l.net.Stop()
	l.all.Wait()
}

// Name says whose an address is. What is sent to an address of nobody's has a good
// way.
func (l *Links) Name(address, end string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ends[address] = end
}

// Whose is whom an address belongs to; "": nobody.
func (l *Links) Whose(address string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ends[address]
}

// Set says what becomes of what from sends to; also on connections that are open.
func (l *Links) Set(from, to string, p Path) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.paths[[2]string{from, to}] = p; p == (Path{}) {
		delete(l.paths, [2]string{from, to})
	}
	l.renew(from, to)
}

// Clear makes all ways good.
func (l *Links) Clear() {
	l.mu.Lock()
	defer l.mu.Unlock()
	old := l.paths
	l.paths = map[[2]string]Path{}
	for pair := range old {
		l.renew(pair[0], pair[1])
	}
}

// Reset resets the connections there are between two ends, and says how many.
func (l *Links) Reset(a, b string) int { return l.net.Reset(line(a, b)) + l.net.Reset(line(b, a)) }

// renew has the connections between two ends follow their paths; mu is held.
func (l *Links) renew(a, b string) {
	for _, pair := range [][2]string{{a, b}, {b, a}} {
		there, back := l.way(pair[0], pair[1]), l.way(pair[1], pair[0])
		if name := line(pair[0], pair[1]); there == (Way{}) && back == (Way{}) {
			l.net.Clear(name)
		} else {
			there.Hold, there.Stall = there.Stall, false
			l.net.Set(name, Rule{Write: there, Read: back})
		}
	}
}

// way is what a stream's bytes meet; mu is held.
func (l *Links) way(from, to string) Way {
	p := l.paths[[2]string{from, to}]
	if !p.tcp() {
		return Way{}
	}
	return Way{Delay: p.Delay, Stall: p.Off || l.stalled[[2]string{from, to}]}
}

func line(from, to string) string { return from + " > " + to }

// lossLoop has streams wait now and then, where packets get lost.
func (l *Links) lossLoop() {
	tick := time.NewTicker(lossEvery)
	defer tick.Stop()
	until := map[[2]string]time.Time{}
	for {
		select {
		case <-l.stop:
			return
		case now := <-tick.C:
			l.draw(now, until)
		}
	}
}

func (l *Links) draw(now time.Time, until map[[2]string]time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for pair, end := range until {
		if _, on := l.paths[pair]; !on || now.After(end) {
			delete(until, pair)
			delete(l.stalled, pair)
			l.renew(pair[0], pair[1])
		}
	}
	for pair, p := range l.paths {
		if p.Loss > 0 && p.tcp() && !l.stalled[pair] && rand.Float64() < p.Loss {
			l.stalled[pair], until[pair] = true, now.Add(lossTime)
			l.renew(pair[0], pair[1])
		}
	}
}

// Dial opens a connection from one end to whoever has the address.
func (l *Links) Dial(from string, dial DialFunc) DialFunc {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		to := l.Whose(address)
		if to == "" {
			return dial(ctx, network, address)
		}
		return l.net.Dialer(line(from, to), dial)(ctx, network, address)
	}
}

// Packets is c, where what it sends goes the ways of the end that it belongs to.
func (l *Links) Packets(from string, c net.PacketConn) net.PacketConn {
	return &packets{PacketConn: c, links: l, from: from}
}

type packets struct {
	net.PacketConn
	links *Links
	from  string
}

func (p *packets) WriteTo(b []byte, to net.Addr) (int, error) {
	if p.links.Send(p.from, p.links.Whose(to.String()), b, func(b []byte) { _, _ = p.PacketConn.WriteTo(b, to) }) {
		return len(b), nil
	}
	return p.PacketConn.WriteTo(b, to)
}

// SetReadBuffer is that of the connection beneath, where it has one.
func (p *packets) SetReadBuffer(bytes int) error {
	if c, ok := p.PacketConn.(interface{ SetReadBuffer(int) error }); ok {
		return c.SetReadBuffer(bytes)
	}
	return nil
}

// Send says whether a packet has been seen to: it is lost, or send gets copies of
// it later. Else it is to be sent now.
func (l *Links) Send(from, to string, b []byte, send func([]byte)) (done bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p, bad := l.paths[[2]string{from, to}]
	if !bad {
		return false
	}
	if !p.udp() {
		p.Off, p.Loss, p.Delay = false, 0, 0
	}
	switch {
	case l.over || p.Off || drawn(p.Loss):
		return true
	case p.Delay == 0 && !p.strays():
		return false
	}
	b = append([]byte(nil), b...)
	if len(b) > 0 && drawn(p.Flipped) {
		b[rand.IntN(len(b))] ^= 1 << rand.IntN(8)
	}
	late := p.Delay
	if drawn(p.Behind) {
		late += rand.N(moment)
	}
	l.later(late, b, send)
	if drawn(p.Twice) {
		l.later(p.Delay+rand.N(moment), b, send)
	}
	return true
}

func drawn(share float64) bool { return share > 0 && rand.Float64() < share }

// later sends a packet that nobody changes any more, if there is room for it; mu is
// held.
func (l *Links) later(late time.Duration, b []byte, send func([]byte)) {
	if l.late == maxLate {
		return
	}
	l.late++
	l.all.Go(func() {
		select {
		case <-time.After(late):
			send(b)
		case <-l.stop:
		}
		l.mu.Lock()
		l.late--
		l.mu.Unlock()
	})
}
