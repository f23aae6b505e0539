package main

import (
	"context"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync"
	"time"
)

// What memory may lie idle before it is given back, and how often that is
// looked at. Too little costs collections that gain nothing, too much leaves a
// quiet node as large as its busiest minute: Go collects by what is newly
// allocated, and streams that only wait allocate nothing.
const (
	tidyEvery = time.Second
	tidyFloor = 8 << 20 // bytes
	busyRate  = 4 << 20 // bytes allocated between two looks: such a node needs its memory again at once
)

// startTidying starts tidyLoop; the function that it returns ends it.
func startTidying(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var tasks sync.WaitGroup
	tasks.Go(func() { tidyLoop(ctx) })
	return func() {
		cancel()
		tasks.Wait()
	}
}

// tidyLoop gives memory back to the system when more lies idle than is in use.
func tidyLoop(ctx context.Context) {
	var t tidier
	tick := time.NewTicker(tidyEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if t.due(lookAtHeap()) {
			runtime.GC() // what lies in pools goes with the second collection only
			debug.FreeOSMemory()
		}
	}
}

// heap is how Go's memory is used, in bytes.
type heap struct {
	idle      uint64 // kept for reuse, and garbage as far as it is known
	live      uint64 // in use at the last collection
	allocated uint64 // ever
}

func lookAtHeap() heap {
	s := []metrics.Sample{
		{Name: "/memory/classes/heap/free:bytes"},    // kept for reuse
		{Name: "/memory/classes/heap/unused:bytes"},  // between what is in use
		{Name: "/memory/classes/heap/objects:bytes"}, // in use, and what is not yet known to be garbage
		{Name: "/gc/heap/live:bytes"},
		{Name: "/gc/heap/allocs:bytes"},
	}
	metrics.Read(s)
	n := func(i int) uint64 { return s[i].Value.Uint64() }
	return heap{idle: n(0) + n(1) + max(n(2), n(3)) - n(3), live: n(3), allocated: n(4)}
}

// tidier decides when to tidy up.
type tidier struct {
	allocated uint64 // at the last look
	again     int    // looks until it is done once more; 0: it is not
}

// due tells whether to tidy up now. Shortly afterwards it is done once more:
// what was still on its way to fall silent leaves garbage that nobody knows of.
func (t *tidier) due(h heap) bool {
	busy := h.allocated-t.allocated >= busyRate
	t.allocated = h.allocated
	last := t.again == 1
	t.again = max(0, t.again-1)
	switch {
	case busy:
		return false
	case h.idle > tidyFloor && h.idle > h.live/2:
		t.again = 3
		return true
	}
	return last
}
