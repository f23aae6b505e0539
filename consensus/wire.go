package consensus

import (
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/starling-lb/starling/consensus/transport"
)

const (
	rpcTime = 2500 * time.Millisecond
	pooled  = 2 // connections kept per peer: heartbeats, entries
)

// layer lets Raft dial nodes by id, and knows when the goroutines are gone that
// Raft gives to accepted connections and does not wait for.
type layer struct {
	*transport.Group
	serving *sync.WaitGroup // the connections, and Raft's goroutine that accepts them
	deaf    func()          // that one accepts no more
}

// Accept is called by one goroutine, again and again until it fails behind Close.
func (l layer) Accept() (net.Conn, error) {
	c, err := l.Group.Accept()
	if err != nil {
		l.deaf()
		return nil, err
	}
	l.serving.Add(1)
	return &served{Conn: c, done: sync.OnceFunc(l.serving.Done)}, nil
}

// served is closed by Raft when it has done with it, whoever ended it before.
type served struct {
	net.Conn
	done func()
}

func (s *served) Close() error {
	defer s.done()
	return s.Conn.Close()
}

func (l layer) Dial(address raft.ServerAddress, timeout time.Duration) (net.Conn, error) {
	return l.DialNode(string(address), timeout)
}

// wire is Raft's transport, and what we learn and do on the way: when each voter
// last confirmed this leader, and silence while the own disk stalls.
type wire struct {
	*raft.NetworkTransport
	door  layer
	logs  *guard
	stall time.Duration // 0: no fence
	acks  acks
	close sync.Once
}

func newWire(g *Group, door *transport.Group, logs *guard) *wire {
	var serving sync.WaitGroup
	serving.Add(1) // until deaf: so that nothing is added while the end is waited for
	in := layer{door, &serving, sync.OnceFunc(serving.Done)}
	return &wire{
		door: in, logs: logs, stall: g.stall(),
		NetworkTransport: raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{
			Stream: in, MaxPool: pooled, MaxRPCsInFlight: g.inFlight, Timeout: g.rpc, Logger: g.hlog.Named("transport"),
		}),
	}
}

// Close ends all RPCs, both ways. Raft calls it too.
func (w *wire) Close() (err error) {
	w.close.Do(func() {
		err = w.NetworkTransport.Close()
		w.NetworkTransport.CloseStreams()
		_ = w.door.Close() // ends the connections that Raft's transport leaves open
	})
	return err
}

// AppendEntries is refused while a write of ours has been pending for too long:
// heartbeats do not pass by the disk, so followers would never know that this
// leader can do nothing.
func (w *wire) AppendEntries(id raft.ServerID, to raft.ServerAddress, args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
	if p := w.logs.pending(); w.stall > 0 && p > w.stall {
		return fmt.Errorf("not sent: a write to the own log has been pending for %v", p.Round(time.Millisecond))
	}
	sent := now()
	err := w.NetworkTransport.AppendEntries(id, to, args, resp)
	if err == nil && resp.Success && resp.Term == args.Term {
		w.acks.note(id, args, sent)
	}
	return err
}

func (w *wire) RequestVote(id raft.ServerID, to raft.ServerAddress, args *raft.RequestVoteRequest, resp *raft.RequestVoteResponse) error {
	if w.stall > 0 && w.logs.sick(w.stall) {
		return errSick
	}
	return w.NetworkTransport.RequestVote(id, to, args, resp)
}

func (w *wire) RequestPreVote(id raft.ServerID, to raft.ServerAddress, args *raft.RequestPreVoteRequest, resp *raft.RequestPreVoteResponse) error {
	if w.stall > 0 && w.logs.sick(w.stall) {
		return errSick
	}
	return w.NetworkTransport.RequestPreVote(id, to, args, resp)
}

// InstallSnapshot may take long, in which the follower does not catch up.
func (w *wire) InstallSnapshot(id raft.ServerID, to raft.ServerAddress, args *raft.InstallSnapshotRequest, resp *raft.InstallSnapshotResponse, data io.Reader) error {
	w.acks.installing(id, 1)
	defer w.acks.installing(id, -1)
	return w.NetworkTransport.InstallSnapshot(id, to, args, resp, data)
}

var errSick = errors.New("not sent: the own disk is not fit for a leader")

// ack is what a voter last said to this leader.
type ack struct {
	term  uint64
	sent  time.Duration // when the last successfully answered AppendEntries left here
	match uint64        // its log agrees with ours up to here
	grew  time.Duration // when match last grew
	snaps int           // snapshots under way to it
}

// acks is one per peer.
type acks struct {
	mu      sync.Mutex
	by      map[raft.ServerID]ack
	changed chan struct{} // closed and made anew at a note, if anybody waits
}

func (a *acks) note(id raft.ServerID, args *raft.AppendEntriesRequest, sent time.Duration) {
	match := args.PrevLogEntry // 0 in a heartbeat
	if n := len(args.Entries); n > 0 {
		match = args.Entries[n-1].Index
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	was := a.by[id]
	if was.term > args.Term {
		return
	}
	if was.term < args.Term {
		was = ack{term: args.Term, grew: sent, snaps: was.snaps}
	}
	was.sent = max(was.sent, sent)
	if match > was.match {
		was.match, was.grew = match, sent
	}
	if a.by == nil {
		a.by = make(map[raft.ServerID]ack)
	}
	a.by[id] = was
	if a.changed != nil {
		close(a.changed)
		a.changed = nil
	}
}

func (a *acks) installing(id raft.ServerID, n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	was := a.by[id]
	was.snaps += n
	was.grew = now()
	if a.by == nil {
		a.by = make(map[raft.ServerID]ack)
	}
	a.by[id] = was
}

func (a *acks) of(id raft.ServerID, term uint64) ack {
	a.mu.Lock()
	defer a.mu.Unlock()
	if k := a.by[id]; k.term == term {
		return k
	}
	return ack{}
}

// wait returns a channel that is closed at the next note.
func (a *acks) wait() <-chan struct{} {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.changed == nil {
		a.changed = make(chan struct{})
	}
	return a.changed
}

// kick wakes who waits: something else has changed.
func (a *acks) kick() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.changed != nil {
		close(a.changed)
		a.changed = nil
	}
}
