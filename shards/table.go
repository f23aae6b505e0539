package shards

// Epoch counts the bindings of a session; 0 is none.
type Epoch uint32

// Binding says where a session lives.
type Binding struct {
	Backend string
	Epoch   Epoch
}

// Table is the state of one shard. It holds, per session, 16 bytes that the
// garbage collector need not look at: a backend is a number, given by the order in
// which backends first appear in the log, and so the same on every replica.
type Table struct {
	bindings map[Key]slot
	backends []string // by number
	numbers  map[string]uint32
	floor    Epoch // the highest epoch ever let go; a new binding starts above it
}

// slot is a Binding as the table keeps it.
type slot struct {
	backend uint32
	epoch   Epoch
	_       [2]uint32 // last use, once sessions are let go; never in a snapshot or a comparison
}

// NewTable is the table of a shard at its beginning.
func NewTable() *Table {
	return &Table{bindings: make(map[Key]slot), numbers: make(map[string]uint32)}
}

// Op is what a command does. Numbers are on disk: none is given away twice.
type Op uint8

// OpBind binds a session, if it is as the proposer has seen it.
const OpBind Op = 1

// Command is one decision, as it is in the log: the choice, never the question.
type Command struct {
	Op      Op
	Session Key
	Backend string
	Seen    Epoch // what the proposer knew; 0: no binding
}

// Result is what became of a command.
type Result struct {
	Binding  Binding
	Conflict bool // another was faster; Binding is what stands
}

// Apply runs on every replica with the same commands in the same order, so it may
// use nothing but its arguments: no clock, no random, no gossip.
func (t *Table) Apply(c Command) Result {
	switch c.Op {
	case OpBind:
		return t.bind(c)
	}
	panic("BUG: a command that was decoded is not known")
}

func (t *Table) bind(c Command) Result {
	cur := t.bindings[c.Session]
	if c.Seen != cur.epoch {
		return Result{Binding: t.binding(cur), Conflict: true}
	}
	next := slot{backend: t.number(c.Backend), epoch: max(cur.epoch, t.floor) + 1}
	t.bindings[c.Session] = next
	return Result{Binding: t.binding(next)}
}

// Get returns a session's binding, if it has one.
func (t *Table) Get(k Key) (Binding, bool) {
	s, ok := t.bindings[k]
	return t.binding(s), ok
}

// Len is how many sessions are bound.
func (t *Table) Len() int { return len(t.bindings) }

func (t *Table) binding(s slot) Binding {
	if s.epoch == 0 {
		return Binding{}
	}
	return Binding{Backend: t.backends[s.backend], Epoch: s.epoch}
}

// number gives a backend its number at its first appearance.
func (t *Table) number(backend string) uint32 {
	n, ok := t.numbers[backend]
	if !ok {
		n = uint32(len(t.backends))
		t.numbers[backend] = n
		t.backends = append(t.backends, backend)
	}
	return n
}
