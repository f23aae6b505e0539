package rolling

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/starling-lb/starling/node/api"
)

// TestReloadOfAllByOne: one node has all read their files again, itself first; the
// first that refuses ends it, and it is said who has reloaded and who was not asked.
// Who is dead is named, and holds nobody up.
func TestReloadOfAllByOne(t *testing.T) {
	t.Parallel()
	b1 := newOrigin(t, "b1")
	weight, more := 1, make([]string, 3)
	f := newFleet(t, 3, func(i int) string {
		return fmt.Sprintf("reload: {watch: false}\npools:\n  llm: {backends: [{id: b1, url: %q, weight: %d}], backend: {engine: none}}\n%s", b1, weight, more[i])
	})
	reload := func() (got api.Reloaded, err error) {
		return got, f.admin[1].With("scope", "cluster").PostFor(t.Context(), &got, "reload")
	}
	put := func() {
		weight++
		for i := range f.nodes {
			f.write(i)
		}
	}
	names := func(got api.Reloaded) (all []string) {
		for _, n := range got.Nodes {
			if n.Error == "" && (n.ConfigHash != got.ConfigHash || !n.Changed) {
				t.Errorf("%+v beside %s", n, got.ConfigHash)
			}
			all = append(all, n.Name+n.Error)
		}
		return all
	}
	put()
	if got, err := reload(); err != nil || !slices.Equal(names(got), []string{"n2", "n1", "n3"}) {
		t.Errorf("%+v, %v", got, err)
	}

	more[0] = "nonsense: 1\n"
	put()
	_, err := reload()
	if err == nil {
		t.Fatal("a node with a file that is wrong has reloaded")
	}
	for _, want := range []string{"node n1 did not reload", "nonsense", "node n2 has reloaded: configuration", "node n3 was not asked"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in: %v", want, err)
		}
	}

	more[0] = ""
	put()
	f.stop(2, patience)
	f.eventually(func() string {
		got, err := reload()
		if err != nil {
			return err.Error()
		}
		if len(got.Nodes) != 2 || got.Nodes[1].Name != "n1" || got.Nodes[1].ConfigHash != got.ConfigHash {
			return fmt.Sprintf("%+v", got.Nodes) // n3 has left, and is not one of them any more
		}
		return ""
	})
	put()
	if got, err := reload(); err != nil || !slices.Equal(names(got), []string{"n2", "n1"}) {
		t.Errorf("%+v, %v", got, err)
	}
}

// TestReloadOfAllGoesPastWhoEnds: a node that is about to end, and carries its last
// stream, is named, and those after it reload.
func TestReloadOfAllGoesPastWhoEnds(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	s := holding(t, release)
	f := newFleet(t, 3, func(int) string {
		return fmt.Sprintf("reload: {watch: false}\npools:\n  llm: {backends: [{id: b1, url: %q}], backend: {engine: none}, health: {enabled: false}}\n", s.URL)
	})
	held, err := f.turn(0, "/hold", "")
	if err != nil {
		t.Fatal(err)
	}
	defer held.Body.Close()
	stopped := make(chan int64, 1)
	go func() { stopped <- f.stop(0, 2*patience) }()
	f.eventually(func() string {
		var got api.Reloaded
		if err := f.admin[1].With("scope", "cluster").PostFor(t.Context(), &got, "reload"); err != nil {
			return err.Error()
		}
		if n := got.Nodes; len(n) != 3 || n[1].Name != "n1" || !strings.Contains(n[1].Error, "starting or ending") || n[2].Error != "" || n[2].ConfigHash != got.ConfigHash {
			return fmt.Sprintf("%+v", n)
		}
		return ""
	})
	select {
	case <-stopped:
		t.Error("n1 had ended already")
	default:
		close(release)
		if cut := <-stopped; cut != 0 {
			t.Errorf("%d streams were cut", cut)
		}
	}
}
