package node

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/starling-lb/starling/node/admin"
	"github.com/starling-lb/starling/node/api"
	"github.com/starling-lb/starling/node/journal"
	"github.com/starling-lb/starling/proxy/backend"
)

// Events answers GET /v1/events: those behind the one with the id after, or else
// the last few and what comes.
func (n *Node) Events(after string, last int) (admin.Feed, error) {
	r, err := n.journal.Follow(after, last)
	switch {
	case errors.Is(err, journal.ErrReaders):
		return nil, refuse(admin.TooManyConnections, "%v; close some and try again", err)
	case err != nil:
		return nil, refuse(admin.BadRequest, "Last-Event-ID %v", err)
	}
	return r, nil
}

// Ordered notes that an operator had this node do something.
func (n *Node) Ordered(what string) {
	n.journal.Add(api.Event{Kind: api.OperatorEvent, Reason: what})
}

// told notes what a pool says; its lock is held. What an heir finds decided, and goes on
// with, its elder has told.
func (n *Node) told(e backend.Event) {
	if n.opt.Before != nil && !n.taken.Load() {
		return
	}
	kind := api.StateEvent
	if e.Backend == "" {
		kind = api.PanicEvent
	}
	n.journal.Add(api.Event{Kind: kind, Time: e.At, Pool: e.Pool, Backend: e.Backend, From: string(e.From), To: string(e.To), Panic: e.Panic, Reason: e.Reason})
}

// sayUpgrade notes how far an upgrade is: the first line says it. from and to are
// versions; empty: it says nothing of them.
func (n *Node) sayUpgrade(from, to, what string) {
	line, _, _ := strings.Cut(what, "\n")
	n.journal.Add(api.Event{Kind: api.UpgradeEvent, Node: n.cfg().Node.Name, From: from, To: to, Reason: line})
}

// sayTakenOver notes that this process is the node that another one was.
func (n *Node) sayTakenOver() {
	if n.opt.Before == nil {
		return
	}
	from, text := "", fmt.Sprintf("process %d took over", os.Getpid())
	for _, e := range n.links.Load().Elders() {
		from = e.Version
		text += fmt.Sprintf("; process %d carries %d streams to their end", e.PID, e.InFlight)
	}
	n.sayUpgrade(from, Version().Version, text)
}

// sayReload notes what came of a reload, and tells a supervisor: the first line says it.
func (n *Node) sayReload(what string) {
	line, _, _ := strings.Cut(what, "\n")
	n.notify("STATUS=" + line)
	n.journal.Add(api.Event{Kind: api.ReloadEvent, Reason: line})
}
