package gossip

import "sync"

// faults keeps the last error of a dialed stream by its address: memberlist
// makes text of errors, and a person should read the cause.
type faults struct {
	mu   sync.Mutex
	last map[string]error
}

// keep is bounded by who is asked at a time: each ask takes its own away.
func (f *faults) keep(address string, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.last == nil || len(f.last) >= 2*askAtOnce {
		f.last = map[string]error{}
	}
	f.last[address] = err
}

func (t *transport) takeFault(address string) error {
	t.faults.mu.Lock()
	defer t.faults.mu.Unlock()
	err := t.faults.last[address]
	delete(t.faults.last, address)
	return err
}
