// Package admin serves the admin API of one node: what people, the commands
// and Prometheus ask of it. It promises that only those ask whom the
// configuration lets, that whatever a request holds and it does not know is an
// error that names it, and that no client can hold more than the limits below.
// It must not know how anything is done: it asks Node.
package admin

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/valyala/fasthttp"

	"github.com/starling-lb/starling/node/api"
)

// What a client may hold. docs/reference/admin.md tells these to users.
const (
	maxConns     = 256
	maxHeader    = 16 << 10         // request line and header fields
	maxBody      = 1 << 20          // of a request
	readTimeout  = 10 * time.Second // a whole request, from the connection's start or its own first byte
	writeTimeout = 30 * time.Second // a whole answer
	idleTimeout  = time.Minute      // between two requests of a connection
	acceptPause  = time.Second      // after a failed accept, mostly for want of descriptors
)

// Node is what the admin API asks.
type Node interface {
	Status() api.Status
	Backends() api.Backends
	Members() api.Members
	Shards(context.Context) api.ShardList
	Session(ctx context.Context, pool, key string) (api.Session, error)
	Streams(ctx context.Context, limit int) api.StreamList // the oldest ones, oldest first
	Configuration() (api.Config, error)
	Ready() error // nil: it may get traffic; else why not

	// Events are the changes behind the one with the id after, or, where that is
	// empty, the last few; and what comes.
	Events(after string, last int) (Feed, error)
	Ordered(what string) // notes what an operator did
	Whole
	Operator
	Keeper
}

// Whole is what a node can say of all nodes of its cluster. Who does not answer in
// time is in the answer, with why.
type Whole interface {
	StatusOfAll(context.Context) (api.Status, error)
	PoolsOfAll(context.Context) (api.Pools, error)
	BackendsOfAll(context.Context) (api.Backends, error)
	StreamsOfAll(ctx context.Context, limit int) (api.StreamList, error)
}

// Operator is what operators may change. Its refusals are *Error.
type Operator interface {
	Pools() api.Pools
	AddBackend(pool string, b api.NewBackend) error
	RemoveBackend(pool, id string) error
	ChangeBackend(id string, verb Verb) error
	ChangeHere(id string, verb Verb) error // Eject or Admit, at this node alone
	WeighBackend(id string, weight int) error
	SetPolicy(pool string, want api.Policy) error
	SetRebalance(pool string, want api.Rebalancing) error
	MoveSession(ctx context.Context, pool, key, backend string) error
	DrainNode(ctx context.Context) error
	LeaveNode(ctx context.Context) error
	StayNode(ctx context.Context) error
	ResetShard(ctx context.Context, id string, empty bool) error
	Reload(ctx context.Context) (api.Reloaded, error)
	ReloadAll(ctx context.Context) (api.Reloaded, error) // every node by its own file, until one refuses
	Upgrade(ctx context.Context) (api.Upgraded, error)   // ends with the node, not with the client
}

// Verb is what an operator may do to a backend without saying more.
type Verb string

// The verbs; the list is closed.
const (
	Drain   Verb = "drain"   // nothing new comes; what runs ends
	Undrain Verb = "undrain" // takes a drain back
	Eject   Verb = "eject"   // out, as by failures, for the pool's base ejection, at all nodes
	Admit   Verb = "admit"   // takes an ejection back at once
	Reset   Verb = "reset"   // takes every decision of operators back
)

// Options is what a Server works with.
type Options struct {
	Node     Node
	Gatherer prometheus.Gatherer // the node's own registry, never the default one
	Logger   *slog.Logger
	Listen   func(ctx context.Context, network, address string) (net.Listener, error)
	Begin    <-chan struct{} // closed when connections are to be taken in; nil: at once
}

// Server serves the admin API on one address.
type Server struct {
	address string
	opt     Options
	guard   guard
	tls     *tls.Config // nil: plain HTTP
	routes  []route
	http    fasthttp.Server
	conns   conns
	tasks   sync.WaitGroup
	ctx     context.Context // ends when Stop begins
	cancel  context.CancelFunc
	ln      net.Listener // nil before Start

	paused    atomic.Bool // no connection is taken in
	accepting sync.WaitGroup
}

// New reads the token and the certificate, and opens nothing.
func New(cfg Config, opt Options) (*Server, error) {
	guard, err := newGuard(cfg)
	if err != nil {
		return nil, fmt.Errorf("admin token: %w", err)
	}
	certs, err := loadTLS(cfg)
	if err != nil {
		return nil, fmt.Errorf("admin certificate: %w", err)
	}
	s := &Server{address: cfg.Address, opt: opt, guard: guard, tls: certs}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.conns = conns{max: maxConns, open: map[net.Conn]bool{}}
	s.routes = s.table(cfg.Pprof)
	s.http = fasthttp.Server{
		Handler:                      s.serve,
		ErrorHandler:                 s.garbled,
		ConnState:                    s.conns.mark,
		Logger:                       bridge{opt.Logger},
		Concurrency:                  maxConns + 1, // conns turns clients away before that, in our form
		ReadBufferSize:               maxHeader,
		MaxRequestBodySize:           maxBody,
		ReadTimeout:                  readTimeout,
		WriteTimeout:                 writeTimeout,
		IdleTimeout:                  idleTimeout,
		NoDefaultServerHeader:        true,
		NoDefaultDate:                true, // its clock is a goroutine that never ends
		SecureErrorLogMessage:        true, // heads hold tokens
		DisablePreParseMultipartForm: true, // would write files
	}
	return s, nil
}

func loadTLS(cfg Config) (*tls.Config, error) {
	if cfg.TLS.CertFile == "" && cfg.TLS.KeyFile == "" {
		return nil, nil
	}
	pair, err := tls.LoadX509KeyPair(cfg.TLS.CertFile, cfg.TLS.KeyFile)
	if err != nil {
		return nil, err
	}
	return &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}}, nil
}

// Start listens and serves until Stop; ctx is for the listening alone.
func (s *Server) Start(ctx context.Context) error {
	if s.ln != nil || s.ctx.Err() != nil {
		return errors.New("BUG: an admin server starts once")
	}
	ln, err := s.opt.Listen(ctx, "tcp", s.address)
	if err != nil {
		return fmt.Errorf("admin API: %w; write another address for admin.address", err)
	}
	if !loopbackAddress(s.address) && s.tls == nil {
		s.opt.Logger.Warn("admin API has no certificate: its token crosses the network in clear", "address", ln.Addr().String())
	}
	s.ln = ln
	s.accept()
	return nil
}

func (s *Server) accept() {
	s.accepting.Add(1)
	s.tasks.Go(func() {
		defer s.accepting.Done()
		s.acceptLoop()
	})
}

// Socket is where it listens; nil before Start.
func (s *Server) Socket() net.Listener { return s.ln }

// Pause has no more connections taken in, until Resume or the end; who connects waits
// in the socket. Whoever was taken in is answered.
func (s *Server) Pause() error {
	ln, ok := s.ln.(interface{ SetDeadline(time.Time) error })
	if !ok {
		return errors.New("admin API: its socket cannot be made to wait")
	}
	s.paused.Store(true)
	_ = ln.SetDeadline(time.Unix(1, 0)) // it fails where it is closed
	s.accepting.Wait()
	return nil
}

// Resume takes connections in again.
func (s *Server) Resume() {
	if s.paused.Swap(false) && s.ctx.Err() == nil {
		_ = s.ln.(interface{ SetDeadline(time.Time) error }).SetDeadline(time.Time{})
		s.accept()
	}
}

// Addr is where it listens; nil before Start.
func (s *Server) Addr() net.Addr {
	if s.ln == nil {
		return nil
	}
	return s.ln.Addr()
}

// Stop closes quiet connections at once and lets running requests be answered
// until ctx ends; then it cuts them and says so.
func (s *Server) Stop(ctx context.Context) error {
	s.cancel()
	if s.ln != nil {
		_ = s.ln.Close() // the second time it only says that it is closed
	}
	s.conns.closeQuiet()
	done := make(chan struct{})
	go func() { s.tasks.Wait(); close(done) }()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
	}
	cut := s.conns.closeAll()
	<-done
	if cut == 0 {
		return nil
	}
	return fmt.Errorf("admin API: %d requests cut: %w", cut, context.Cause(ctx))
}

func (s *Server) acceptLoop() {
	if s.opt.Begin != nil {
		select {
		case <-s.opt.Begin:
		case <-s.ctx.Done():
			return
		}
	}
	for {
		c, err := s.ln.Accept()
		switch {
		case err == nil:
			s.take(c)
		case s.ctx.Err() != nil, s.paused.Load() && errors.Is(err, os.ErrDeadlineExceeded):
			return
		case errors.Is(err, net.ErrClosed):
			s.opt.Logger.Error("admin API stopped listening", "err", err)
			return
		default:
			s.opt.Logger.Warn("admin API cannot accept a connection, trying again", "err", err)
			select {
			case <-s.ctx.Done():
			case <-time.After(acceptPause):
			}
		}
	}
}

func (s *Server) take(c net.Conn) {
	if s.tls != nil {
		c = tls.Server(c, s.tls)
	}
	if !s.conns.add(c) {
		s.turnAway(c)
		return
	}
	s.tasks.Go(func() {
		defer s.conns.remove(c)
		if err := s.http.ServeConn(c); err != nil {
			s.opt.Logger.Debug("admin connection ended", "client", c.RemoteAddr().String(), "err", err)
		}
	})
}

// bridge takes what fasthttp logs besides; it has no levels, and only trouble
// to tell.
type bridge struct{ *slog.Logger }

func (b bridge) Printf(format string, args ...any) { b.Warn(fmt.Sprintf(format, args...)) }

// Println is for the Prometheus handler: a metric could not be collected,
// which is a fault in a collector.
func (b bridge) Println(args ...any) {
	b.Error("metrics are incomplete", "err", strings.TrimSpace(fmt.Sprintln(args...)))
}
