package wirecase

import (
	"bytes"
	"slices"
	"strings"
	"sync"
)

// Stage plays the cases' backend scripts. Its Serve is for any number of
// backends: a request finds its case by the token in its head.
type Stage struct {
	mu     sync.Mutex // guards what follows; taken before a play's
	plays  map[string]*play
	strays [][]byte
}

// maxStrays bounds how many heads without a case are kept.
const maxStrays = 20

// play is one case being played.
type play struct {
	c Case

	mu       sync.Mutex // guards what follows
	requests []*exchange
}

// exchange is one request of a play.
type exchange struct {
	msg  Message // a copy is published after each step of reading
	sent []byte
	got  []byte
}

// NewStage makes a stage without a case.
func NewStage() *Stage { return &Stage{plays: map[string]*play{}} }

// Strays are heads, or beginnings of heads, that came with no token of a
// running case: none should, if nothing else uses the backends.
func (s *Stage) Strays() [][]byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.strays)
}

func (s *Stage) enter(token string, c Case) *play {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := &play{c: c}
	s.plays[token] = p
	return p
}

func (s *Stage) leave(token string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.plays, token)
}

// find returns nil and keeps the head as a stray if no case's token is in it.
func (s *Stage) find(head []byte) *play {
	s.mu.Lock()
	defer s.mu.Unlock()
	for token, p := range s.plays {
		if bytes.Contains(head, []byte(token)) {
			return p
		}
	}
	if len(head) > 0 && len(s.strays) < maxStrays {
		s.strays = append(s.strays, slices.Clone(head))
	}
	return nil
}

// Serve plays on one connection until it ends.
func (s *Stage) Serve(c *Conn) {
	for {
		m, f, err := c.ReadRequest()
		p := s.find(m.Raw)
		if err != nil || p == nil || !p.answer(c, m, f) {
			return
		}
	}
}

// answer tells whether the connection can take another request.
func (p *play) answer(c *Conn, m *Message, f framing) bool {
	x, script := p.begin(m)
	var acted, read bool
	if p.c.AnswersOnHead {
		done := make(chan bool, 1)
		go func() { done <- p.act(c, x, script) }()
		read = p.readBody(c, x, m, f) == nil
		acted = <-done
	} else {
		read = p.readBody(c, x, m, f) == nil
		acted = read && p.act(c, x, script)
	}
	if read && !acted {
		c.Gone() // a fin or a tunnel: the other direction is still open
	}
	return read && acted
}

func (p *play) begin(m *Message) (*exchange, []Step) {
	p.mu.Lock()
	defer p.mu.Unlock()
	x := &exchange{msg: *m}
	p.requests = append(p.requests, x)
	return x, p.c.script(len(p.requests) - 1)
}

func (p *play) readBody(c *Conn, x *exchange, m *Message, f framing) error {
	publish := func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		x.msg = *m
		x.got, _ = c.tap.seen()
	}
	b := bodyReader{r: c.r, piece: func(piece []byte) { m.take(piece); publish() }}
	err := b.read(f)
	m.end(&b, err)
	publish()
	return err
}

// act plays a script; false when no request can follow on the connection.
func (p *play) act(c *Conn, x *exchange, script []Step) bool {
	tunnel := false
	for _, s := range script {
		switch {
		case s.WaitMS > 0:
			if !c.Pause(ms(s.WaitMS)) {
				return false
			}
		case s.Close == Fin:
			_ = c.Fin() // the peer may have closed first
			return false
		case s.Close == Reset:
			_ = c.Reset()
			return false
		default:
			tunnel = tunnel || strings.HasPrefix(s.bytes(), "HTTP/1.1 101")
			if p.send(c, x, s.bytes()) != nil {
				return false
			}
		}
	}
	return !tunnel
}

func (p *play) send(c *Conn, x *exchange, out string) error {
	p.mu.Lock()
	x.sent = append(x.sent, out...)
	p.mu.Unlock()
	return c.Send(out)
}

// bytes are what a step sends.
func (s Step) bytes() string { return string(s.Send) + strings.Repeat(string(s.SendRepeat), s.Count) }

// seen copies what the backends got with the token.
func (p *play) seen() []exchange {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := make([]exchange, len(p.requests))
	for i, x := range p.requests {
		all[i] = *x
	}
	return all
}
