package chaos

// layers are a network namespace whose kernel loses what shall be lost, as tables
// are, between nodes and relays that hold back what shall be late: a kernel that can
// delay by itself is rare.
type layers struct {
	*relays
	tables *tables
}

func newLayers() (*layers, error) {
	t, err := newTables() // first: it brings the loopback up
	if err != nil {
		return nil, err
	}
	r, err := newRelays()
	if err != nil {
		return nil, err
	}
	return &layers{r, t}, nil
}

func (l *layers) open(m *member) error {
	if err := l.relays.open(m); err != nil {
		return err
	}
	return l.tables.open(m)
}

func (l *layers) ways() ways { return l }

// Set has the relays delay, and the kernel lose.
func (l *layers) Set(from, to string, p path) {
	late := path{TCP: p.TCP, UDP: p.UDP, Delay: p.Delay}
	if p.Delay == 0 {
		late = path{}
	}
	l.links.Set(from, to, late)
	if p.Delay = 0; !p.Off && p.Loss == 0 {
		p = path{}
	}
	l.tables.Set(from, to, p)
}

func (l *layers) Reset(a, b string) int { return l.links.Reset(a, b) }
