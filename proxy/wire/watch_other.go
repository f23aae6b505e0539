//go:build !linux

package wire

import "net"

// Watcher is for systems with epoll; elsewhere connections read ahead.
type Watcher struct{}

func (w *Watcher) kick(*End) {}

// NewWatcher returns no watcher.
func NewWatcher() (*Watcher, error) { return nil, nil }

// Stop does nothing.
func (w *Watcher) Stop() {}

func (w *Watcher) add(net.Conn, watched) ticket { return 0 }

func (w *Watcher) remove(ticket) {}

func (w *Watcher) hear(int, ticket, bool) {}

func socketOf(net.Conn) int { return 0 }
