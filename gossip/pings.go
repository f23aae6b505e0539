package gossip

import (
	"encoding/binary"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"
)

// pings are the numbers of the last pings that memberlist sent. At its end it
// goes on waiting for their answers, for seconds, and with it a goroutine: so
// they are answered here.
type pings struct {
	mu   sync.Mutex
	last [8]uint64 // of one at a time, and those for others
	n    int
}

func (p *pings) note(seq uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last[p.n%len(p.last)] = seq
	p.n++
}

func (p *pings) recent() []uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := p.last
	return out[:min(p.n, len(out))]
}

// answerPings lets memberlist stop waiting, and waits until it has heard. From
// here on it can send nothing, so no other ping is on its way.
func (t *transport) answerPings() {
	t.ending.Store(true)
	for _, seq := range t.pings.recent() {
		b := binary.BigEndian.AppendUint32([]byte("\x02\x82\xa5SeqNo\xce"), uint32(seq))
		b = append(b, "\xa7Payload\xc0"...)
		select {
		case t.packets <- &memberlist.Packet{Buf: b, From: t.conn.LocalAddr(), Timestamp: time.Now()}:
		default:
			return // it is busy enough to end soon
		}
	}
	for range 100 {
		if len(t.packets) == 0 || !t.pause(time.Millisecond) {
			return
		}
	}
}
