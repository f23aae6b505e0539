package main

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/starling-lb/starling/shards"
)

// keys returns n of them, as even as hashes.
func keys(n int) []shards.Key {
	r := rand.NewChaCha8([32]byte{1})
	all := make([]shards.Key, n)
	for i := range all {
		binary.BigEndian.PutUint64(all[i][:8], r.Uint64())
		binary.BigEndian.PutUint64(all[i][8:], r.Uint64())
	}
	return all
}

// home is where a session lives: 64 backends have them all.
func home(i int) string { return fmt.Sprint("backend-", i%64) }

func table(all []shards.Key) *shards.Table {
	t := shards.NewTable()
	for i, k := range all {
		t.Apply(1, shards.Command{Op: shards.OpBind, Session: k, Backend: home(i)})
	}
	return t
}

// memory is what a session costs, all that goes with it included.
func memory(o options) (rows []row, err error) {
	all := keys(o.sessions)
	for _, m := range []struct {
		what string
		most float64
		fill func() any
	}{
		{"replica's table, per session", 100, func() any { return table(all) }},
		{"leader's timers and order of use", 48, func() any {
			u := new(shards.Uses)
			for i, k := range all {
				u.Touch(k, time.Duration(i)*time.Millisecond)
			}
			return u
		}},
		{"node's cache", 64, func() any {
			c := shards.NewCache(2 * len(all))
			for i, k := range all {
				c.Put(k, shards.Binding{Backend: home(i), Epoch: 1}, 1, time.Duration(i)*time.Millisecond)
			}
			return c
		}},
	} {
		before := heap()
		kept := m.fill()
		rows = append(rows, row{what: m.what, unit: "B", value: float64(heap()-before) / float64(len(all)), most: m.most})
		runtime.KeepAlive(kept)
	}
	return rows, nil
}

// heap is what lives there.
func heap() int64 {
	runtime.GC()
	runtime.GC() // what the first one's finalizers held
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

const takes = 5 // of a snapshot; the median counts

// snapshot is what one of all sessions costs in one shard.
func snapshot(o options) ([]row, error) {
	var saved bytes.Buffer
	if _, err := table(keys(o.sessions)).WriteTo(&saved); err != nil {
		return nil, err
	}
	m := shards.NewMachine()
	if err := m.Restore(&saved); err != nil {
		return nil, err
	}
	var held, made, kept []time.Duration
	size := int64(0)
	for i := range takes {
		f, err := os.Create(filepath.Join(o.dir, fmt.Sprint("snapshot-", i)))
		if err != nil {
			return nil, err
		}
		began := time.Now()
		w, err := m.Snapshot()
		held = append(held, time.Since(began))
		if err == nil {
			size, err = w.WriteTo(f)
		}
		made = append(made, time.Since(began))
		if err == nil {
			err = f.Sync()
		}
		kept = append(kept, time.Since(began))
		if err != nil {
			return nil, err
		}
		if err := f.Close(); err != nil {
			return nil, err
		}
	}
	return []row{
		{what: "snapshot, size", unit: "MB", value: float64(size) / 1e6, most: 30},
		{what: "snapshot, made and written", unit: "ms", value: ms(middle(made)), most: 200},
		{what: "snapshot, commands wait", unit: "ms", value: ms(middle(held))},
		{what: "snapshot, on the disk", unit: "ms", value: ms(middle(kept))},
	}, nil
}
