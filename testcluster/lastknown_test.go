package testcluster_test

import "testing"

// TestLastKnownWithoutAQuorum: all nodes die, and one comes back, alone: no shard
// can elect a leader, and every session is sent where it was all the same, from
// what the node has on its disk.
func TestLastKnownWithoutAQuorum(t *testing.T) {
	c := agreeing(t, 3, exposed)
	k := newTalk(t, c, 40)
	k.take(t, 3, 0, 1, 2)
	k.exact = true
	for i := range 3 {
		c.Kill(i)
	}
	if err := c.Restart(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	k.take(t, 3, 1)
}
