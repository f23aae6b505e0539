package node

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/starling-lb/starling/node/admin"
	"github.com/starling-lb/starling/node/api"
	"github.com/starling-lb/starling/node/quorum"
	"github.com/starling-lb/starling/proxy/backend"
)

// What one node has the others do, one after the other: each by its own file. The
// first that refuses ends it, so that what is wrong with a file is wrong on one node.
// Who cannot be told just now, for it ends or its program is older, holds nobody up.

// tellTime is how long one node may take.
const tellTime = 30 * time.Second

// doReload is the one thing that a node does for another.
const doReload = "reload"

// task is what one node tells another.
type task struct {
	Do string `json:"do"`
}

// toldTo does what another node tells this one.
func (n *Node) toldTo(ctx context.Context, from string, text []byte) ([]byte, error) {
	var t task
	in := json.NewDecoder(bytes.NewReader(text))
	in.DisallowUnknownFields()
	if err := in.Decode(&t); err != nil || t.Do != doReload {
		return nil, fmt.Errorf("this node (%s) cannot be told %q by another", Version().Version, text)
	}
	got, err := n.readAgain(ctx)
	switch {
	case errors.Is(err, errNotUp):
		return json.Marshal(obeyed{Passed: "it is starting or ending, and changes nothing now; it reads its file when it starts"})
	case err != nil:
		return nil, err
	}
	n.Ordered("reload, by node " + n.calls(from))
	n.log.Info("operator: reload", "by_node", n.calls(from))
	return json.Marshal(obeyed{Reloaded: got})
}

// obeyed is what came of a task.
type obeyed struct {
	api.Reloaded
	Passed string `json:"passed,omitempty"` // why it was not done, where that says nothing of the node's file
}

// ReloadAll answers POST /v1/reload?scope=cluster. This node comes first: its file is
// the one that whoever asks has most likely just written.
func (n *Node) ReloadAll(ctx context.Context) (api.Reloaded, error) {
	if !n.telling.TryLock() {
		return api.Reloaded{}, refuse(admin.Conflict, "this node has the others reload already; ask again when that is over")
	}
	defer n.telling.Unlock()
	got, err := n.Reload(ctx)
	if err != nil {
		return api.Reloaded{}, refuse(admin.Conflict, "this node refused, and no other was asked: %v", err)
	}
	members := n.present()
	slices.SortStableFunc(members, func(a, b api.Member) int { return first(b.Self) - first(a.Self) })
	for i, m := range members {
		said := reloaded(m, got)
		if !m.Self {
			if said, err = n.reloadAt(ctx, m); err != nil {
				return api.Reloaded{}, refuse(admin.Conflict, "%s", stopped(got.Nodes, m, err, members[i+1:]))
			}
		}
		got.Nodes = append(got.Nodes, said)
	}
	return got, nil
}

func reloaded(m api.Member, got api.Reloaded) api.NodeReloaded {
	return api.NodeReloaded{ID: m.ID, Name: m.Name, ConfigHash: got.ConfigHash, Changed: got.Changed}
}

// reloadAt has another node reload. Only what may be its file's fault is an error.
func (n *Node) reloadAt(ctx context.Context, m api.Member) (api.NodeReloaded, error) {
	if m.State == backend.MemberDead {
		return passed(m, errGone.Error()+"; it reads its file when it starts"), nil
	}
	got, err := n.tellReload(ctx, m.ID)
	return outcome(m, got, err, func() bool { return n.ended(m.ID) })
}

func passed(m api.Member, why string) api.NodeReloaded {
	return api.NodeReloaded{ID: m.ID, Name: m.Name, Error: why}
}

// outcome is what came of telling a node to reload.
func outcome(m api.Member, got obeyed, err error, ended func() bool) (api.NodeReloaded, error) {
	switch {
	case errors.Is(err, quorum.ErrOlder):
		return passed(m, err.Error()+", or have it reload by its own admin API"), nil
	case err != nil && ended():
		return passed(m, "it has ended meanwhile; it reads its file when it starts"), nil
	case err == nil && got.Passed != "":
		return passed(m, got.Passed), nil
	}
	return reloaded(m, got.Reloaded), err
}

// ended tells whether a node has left, or is dead, as this one sees it.
func (n *Node) ended(id string) bool {
	return !slices.ContainsFunc(n.present(), func(m api.Member) bool { return m.ID == id && m.State != backend.MemberDead })
}

func first(is bool) int {
	if is {
		return 1
	}
	return 0
}

// tellReload has another node reload.
func (n *Node) tellReload(ctx context.Context, id string) (got obeyed, err error) {
	q := n.quorum.Load()
	if q == nil {
		return got, errors.New("this node is alone by now")
	}
	ctx, cancel := context.WithTimeoutCause(ctx, tellTime, fmt.Errorf("it did not answer within %v, and may have reloaded or not: GET /v1/members has its configuration's hash", tellTime))
	defer cancel()
	text, err := json.Marshal(task{Do: doReload})
	if err != nil {
		return got, err
	}
	answer, err := q.Order(ctx, id, text)
	if err == nil {
		err = json.Unmarshal(answer, &got)
	}
	return got, err
}

// stopped says what each node said, where one has refused.
func stopped(done []api.NodeReloaded, at api.Member, why error, left []api.Member) string {
	lines := []string{fmt.Sprintf("node %s did not reload, and no other was asked after it: %v", at.Name, why)}
	for _, d := range done {
		switch {
		case d.Error != "":
			lines = append(lines, fmt.Sprintf("node %s: %s", d.Name, d.Error))
		case d.Changed:
			lines = append(lines, fmt.Sprintf("node %s has reloaded: configuration %s is in force", d.Name, d.ConfigHash))
		default:
			lines = append(lines, fmt.Sprintf("node %s has reloaded: configuration %s was in force already", d.Name, d.ConfigHash))
		}
	}
	for _, m := range left {
		lines = append(lines, fmt.Sprintf("node %s was not asked", m.Name))
	}
	return strings.Join(lines, "\n")
}
