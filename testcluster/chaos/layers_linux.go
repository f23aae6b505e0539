package chaos

// layers are a network namespace whose kernel loses what shall be lost, as tables
// are, between nodes and relays that hold back what shall be late, and have packets
// stray: a kernel that can do that by itself is rare.
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

// Set has the relays do what the kernel cannot, and the kernel lose.
func (l *layers) Set(from, to string, p path) {
	relays, kernel := split(p)
	l.links.Set(from, to, relays)
	l.tables.Set(from, to, kernel)
}

// split is a path in two: what relays do, and what the kernel does.
func split(p path) (relays, kernel path) {
	if p.Off || p.Loss > 0 {
		kernel = path{TCP: p.TCP, UDP: p.UDP, Off: p.Off, Loss: p.Loss}
	}
	if p.Off, p.Loss = false, 0; p != (path{TCP: p.TCP, UDP: p.UDP}) {
		relays = p
	}
	return relays, kernel
}

func (l *layers) Reset(a, b string) int { return l.links.Reset(a, b) }
