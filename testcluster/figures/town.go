package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/starling-lb/starling/consensus/transport"
	"github.com/starling-lb/starling/node/quorum"
)

const (
	nodes   = 3
	upTime  = 2 * time.Minute // for all to lead
	endTime = 30 * time.Second
)

// town is three nodes' parts in what is agreed, in one process: sockets, disks and
// all, but for gossip, which it stands in for.
type town struct {
	nodes []*quorum.Quorum
	lost  lost

	mu    sync.Mutex // guards peers
	peers map[string]quorum.Peer
}

// seat is what a node sees of it.
type seat struct {
	*town
	self string
}

var _ quorum.Around = seat{}

func (s seat) Peers() (all []quorum.Peer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.peers {
		all = append(all, p)
	}
	return all
}

func (s seat) Tell(n quorum.Notice) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.peers[s.self]
	p.RPC, p.Cluster, p.Sees, p.Generation = n.RPC.String(), n.Cluster, n.Sees, n.Generation
	s.peers[s.self] = p
}

// newTown starts the nodes, each in a directory of its own.
func newTown(dir string) (*town, error) {
	t := &town{peers: make(map[string]quorum.Peer)}
	for i := range nodes {
		id := string(rune('a' + i))
		t.peers[id] = quorum.Peer{ID: id, Name: id, Alive: true, Hosts: true, Level: quorum.Level, Expect: nodes}
	}
	for i := range nodes {
		if err := t.start(string(rune('a'+i)), dir); err != nil {
			return nil, errors.Join(err, t.stop())
		}
	}
	return t, nil
}

func (t *town) start(id, dir string) error {
	own := filepath.Join(dir, id)
	if err := os.Mkdir(own, 0o700); err != nil {
		return err
	}
	q, err := quorum.New(quorum.Options{
		Self: quorum.Peer{ID: id, Name: id}, Dir: own, Expect: nodes, Around: seat{t, id}, Config: quorum.DefaultConfig(),
		RPC: transport.Config{Address: "127.0.0.1:0"}, Log: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError})),
		Dial: (&net.Dialer{}).DialContext, Listen: (&net.ListenConfig{}).Listen,
	})
	if err != nil {
		return err
	}
	if err := q.Start(context.Background()); err != nil {
		return err
	}
	t.nodes = append(t.nodes, q)
	return nil
}

func (t *town) stop() (err error) {
	for _, q := range t.nodes {
		ctx, cancel := context.WithTimeout(context.Background(), endTime)
		err = errors.Join(err, q.Stop(ctx))
		cancel()
	}
	return err
}

// whole waits until all shards are led, each by one of three, and have leases.
func (t *town) whole() error {
	look := time.NewTicker(100 * time.Millisecond)
	defer look.Stop()
	for late := time.Now().Add(upTime); ; <-look.C {
		lacks := ""
		for _, q := range t.nodes {
			if why := whole(q); why != "" {
				lacks = why
			}
		}
		if lacks == "" {
			break
		}
		if time.Now().After(late) {
			return fmt.Errorf("after %v three nodes are not whole: %s", upTime, lacks)
		}
	}
	for i := range 64 * nodes { // each node has a lease of every shard
		t.bind(i, fmt.Sprint("first ", i))
	}
	return nil
}

// whole says what a node lacks.
func whole(q *quorum.Quorum) string {
	if count, _, without, _ := q.Led(); count == 0 || without > 0 || q.Router() == nil {
		return fmt.Sprintf("%d of %d shards have no leader", without, count)
	}
	if steps, _ := q.Steps(); steps > 0 {
		return fmt.Sprintf("%d shards are being placed", steps)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	for _, s := range q.Shards(ctx) {
		voters := 0
		for _, r := range s.Replicas {
			if r.Voter && !r.Wanted {
				voters++
			}
		}
		if voters != nodes {
			return fmt.Sprintf("shard %d has %d voters", s.ID, voters)
		}
	}
	return ""
}
