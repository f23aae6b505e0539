package chaos

// Usual is the level of a run that names none.
const Usual = Processes

func newGround(o Options, dir string) (ground, error) {
	if o.Level == Inside {
		return newInside(dir), nil
	}
	return newProcesses(o, dir)
}
