package main

import (
	"context"
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
	tidyEvery = 2 * time.Second
	tidyFloor = 8 << 20 // bytes
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
	samples := []metrics.Sample{
		{Name: "/memory/classes/heap/free:bytes"},    // kept for reuse
		{Name: "/memory/classes/heap/unused:bytes"},  // between what is in use
		{Name: "/memory/classes/heap/objects:bytes"}, // in use, and what is not yet known to be garbage
		{Name: "/gc/heap/live:bytes"},                // in use at the last collection
		{Name: "/gc/heap/allocs:bytes"},
	}
	tick := time.NewTicker(tidyEvery)
	defer tick.Stop()
	for allocated := uint64(0); ; {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		metrics.Read(samples)
		free, unused, objects, live, all := samples[0].Value.Uint64(), samples[1].Value.Uint64(), samples[2].Value.Uint64(), samples[3].Value.Uint64(), samples[4].Value.Uint64()
		quiet := all-allocated < tidyFloor // a busy node needs its memory again at once
		allocated = all
		idle := free + unused + max(objects, live) - live
		if quiet && idle > tidyFloor && idle > live/2 {
			debug.FreeOSMemory()
		}
	}
}
