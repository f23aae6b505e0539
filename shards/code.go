package shards

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// What is in the log and on the wire, integers big-endian, text with a length
// byte before it:
//
//	command:  version u8, op u8, session 16, seen u32, backend
//	question: version u8, ask u8, shard u32, session 16, backend
//	answer:   version u8, verdict u8, epoch u32, backend, leader
const codeVersion = 1

var errCode = errors.New("cannot be decoded")

// maxName is the longest backend or node id.
const maxName = 255

func appendText(b []byte, s string) []byte {
	s = s[:min(len(s), maxName)] // checked where it comes in
	return append(append(b, byte(len(s))), s...)
}

// reader takes bytes apart; short is set, and zeros come, where they end early.
type reader struct {
	rest  []byte
	short bool
}

func (r *reader) take(n int) []byte {
	if len(r.rest) < n {
		r.short, r.rest = true, nil
		return make([]byte, n)
	}
	b := r.rest[:n]
	r.rest = r.rest[n:]
	return b
}

func (r *reader) byte() byte     { return r.take(1)[0] }
func (r *reader) uint32() uint32 { return binary.BigEndian.Uint32(r.take(4)) }
func (r *reader) key() Key       { return Key(r.take(16)) }
func (r *reader) text() string   { return string(r.take(int(r.byte()))) }

// done says whether what was read is whole, of this version, and all there is.
func (r *reader) done(what string, version byte) error {
	switch {
	case version != codeVersion:
		return fmt.Errorf("%s %w: version %d, this program knows %d; was it written by a newer one?", what, errCode, version, codeVersion)
	case r.short:
		return fmt.Errorf("%s %w: it is cut short", what, errCode)
	case len(r.rest) > 0:
		return fmt.Errorf("%s %w: %d bytes too many", what, errCode, len(r.rest))
	}
	return nil
}

func (c Command) encode() []byte {
	b := make([]byte, 0, 32+len(c.Backend))
	b = append(b, codeVersion, byte(c.Op))
	b = append(b, c.Session[:]...)
	b = binary.BigEndian.AppendUint32(b, uint32(c.Seen))
	return appendText(b, c.Backend)
}

func decodeCommand(b []byte) (Command, error) {
	r := reader{rest: b}
	version := r.byte()
	c := Command{Op: Op(r.byte()), Session: r.key(), Seen: Epoch(r.uint32()), Backend: r.text()}
	if err := r.done("command", version); err != nil {
		return Command{}, err
	}
	if c.Op != OpBind || c.Backend == "" {
		return Command{}, fmt.Errorf("command %w: op %d for backend %q", errCode, c.Op, c.Backend)
	}
	return c, nil
}

// ask is what a node wants of a shard's leader.
type ask uint8

const (
	askBind ask = iota + 1 // take what stands, or the proposal
	askRead
)

type question struct {
	ask     ask
	shard   uint32
	session Key
	backend string // the proposal
}

func (q question) encode() []byte {
	b := append(make([]byte, 0, 32+len(q.backend)), codeVersion, byte(q.ask))
	b = binary.BigEndian.AppendUint32(b, q.shard)
	b = append(b, q.session[:]...)
	return appendText(b, q.backend)
}

func decodeQuestion(b []byte) (question, error) {
	r := reader{rest: b}
	version := r.byte()
	q := question{ask: ask(r.byte()), shard: r.uint32(), session: r.key(), backend: r.text()}
	err := r.done("question", version)
	if err == nil && (q.ask != askBind && q.ask != askRead || (q.ask == askBind) != (q.backend != "")) {
		err = fmt.Errorf("question %w: ask %d for backend %q", errCode, q.ask, q.backend)
	}
	return q, err
}

// verdict is how a leader answers.
type verdict uint8

const (
	bound     verdict = iota + 1
	unbound           // to a read: there is no binding
	elsewhere         // this node does not lead the shard; leader says who may, "" that nobody knows
	unknown           // it may have been bound; ask again
)

type answer struct {
	verdict verdict
	binding Binding
	leader  string
}

func (a answer) encode() []byte {
	b := append(make([]byte, 0, 32), codeVersion, byte(a.verdict))
	b = binary.BigEndian.AppendUint32(b, uint32(a.binding.Epoch))
	return appendText(appendText(b, a.binding.Backend), a.leader)
}

func decodeAnswer(b []byte) (answer, error) {
	r := reader{rest: b}
	version := r.byte()
	a := answer{verdict: verdict(r.byte())}
	a.binding.Epoch, a.binding.Backend, a.leader = Epoch(r.uint32()), r.text(), r.text()
	err := r.done("answer", version)
	if err == nil && (a.verdict < bound || a.verdict > unknown || (a.verdict == bound) != (a.binding.Epoch > 0)) {
		err = fmt.Errorf("answer %w: verdict %d with epoch %d", errCode, a.verdict, a.binding.Epoch)
	}
	return a, err
}
