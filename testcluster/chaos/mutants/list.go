package main

import (
	"slices"

	"github.com/starling-lb/starling/testcluster/chaos"
)

// mutant is a planted bug: what it is, where it is planted, what is played, and
// which promise the judge must find broken.
type mutant struct {
	name, bug string
	promise   string
	scenario  string // of those beside this file
	level     string // empty: inside
	edits     []edit
}

// edit replaces a text of a file that must stand there exactly once.
type edit struct{ file, old, new string }

// sound are runs without a bug: a judge that always finds something finds nothing.
func sound() (all []mutant) {
	for _, scenario := range []string{"peace", "kill", "move", "cut", "breaking", "quorum", "sick", "pause", "five", "grow", "upgrade", "twice"} {
		m := mutant{name: "sound-" + scenario, bug: "no bug is planted", scenario: scenario}
		if scenario == "pause" || scenario == "upgrade" || scenario == "twice" {
			m.level = chaos.Processes
		}
		all = append(all, m)
	}
	return all
}

func mutants() []mutant {
	return slices.Concat(bindingBugs(), streamBugs(), shardBugs(), nodeBugs())
}

// shardBugs are of those who keep shards.
func shardBugs() []mutant {
	return []mutant{
		{"two-reigns", "who follows says that it leads", "leaders", "peace", "", []edit{
			{"node/quorum/view.go", "Leader: st.Leader, Led: st.Led, Term", "Leader: q.o.Self.ID, Led: true, Term"},
			{"node/quorum/view.go", "Match: r.Match, Lag: r.Lag", "Match: max(r.Match, 1), Lag: r.Lag"}}},
		{"one-replica", "each shard has but one replica", "replicas", "peace", "", []edit{
			{"node/quorum/config.go", "Replicas: 3}", "Replicas: 1}"}}},
		{"too-many-voters", "each shard has five voters", "voters", "five", "", []edit{
			{"node/quorum/config.go", "Replicas: 3}", "Replicas: 5}"}}},
		{"goes-first", "a voter whose replica another node gets goes before that one can vote", "voters", "grow", "", []edit{
			{"shards/meta/next.go", "!m.Voter || r.Voter || m.Live || m.Node == n.self", "!m.Voter || r.Voter || m.Node == n.self"},
			{"shards/meta/next.go", "		if late := n.late(); late != \"\" {\n			return Action{Why: late}, true\n		}\n		return n.drop(m, \"it is dead\")", "		return n.drop(m, \"it is dead\")"}}},
		{"drift", "a replica leaves one binding in twenty out", "states", "peace", "", []edit{
			{"shards/machine.go", "	\"sync\"\n", "	\"sync\"\n	\"time\"\n"},
			{"shards/machine.go", "		r := m.table.Apply(term, c)\n",
				"		if c.Op == OpBind && time.Now().UnixNano()/1000%20 == 0 {\n			results[i] = Result{Conflict: true}\n			continue\n		}\n		r := m.table.Apply(term, c)\n"}}},
		{"drift-of-meta", "each replica of shard 0 notes by its own clock when a node was changed", "states", "peace", "", []edit{
			{"shards/meta/command.go", "import (\n", "import (\n	\"time\"\n"},
			{"shards/meta/command.go", "	n.Revision = m.Revision\n	m.Nodes[c.Key] = n\n", "	n.Revision, n.Since = m.Revision, uint64(time.Now().UnixNano())\n	m.Nodes[c.Key] = n\n"}}},
		{"blind-read", "one read in five finds no binding", "linear", "peace", "", []edit{{"shards/owner.go",
			"	case askRead:\n		return o.look(ctx, q.session)\n",
			"	case askRead:\n		a, err := o.look(ctx, q.session)\n		if o.desk.now().Microseconds()%5 == 0 && a.verdict == bound {\n			a.verdict, a.binding = unbound, Binding{}\n		}\n		return a, err\n"}}},
		{"waits-for-the-dead", "nobody stands for election when a leader's process ends, and turns wait three seconds", "kill", "kill", "", []edit{
			{"consensus/seams.go", "Heartbeat: time.Second, Lease", "Heartbeat: 3 * time.Second, Lease"},
			{"consensus/watch.go", "	w.campaign = nil\n	l := w.g.current()\n", "	w.campaign = nil\n	l := (*life)(nil)\n"},
			{"shards/fallback.go", "w > 0 {\n		return w\n", "w > 0 {\n		return 12 * w\n"}}},
		{"left-for-nothing", "one turn in thirty finds that its session's backend has gone", "P5", "peace", "", []edit{{"proxy/visit.go",
			"	if b == nil {\n		return string(backend.Removed), nil\n", "	if b == nil || v.moves == 0 && time.Now().UnixNano()/1000%30 == 0 {\n		return string(backend.Removed), nil\n"}}},
	}
}

// nodeBugs are of those who make a node of it all.
func nodeBugs() []mutant {
	return []mutant{
		{"never-well", "a backend that was unhealthy stays so", "recover", "sick", "", []edit{{"proxy/backend/look.go",
			"	b.slow.Store(c.verdict.Slow)\n", "	if before.Down && rules.Enabled {\n		c.verdict.Down = true\n	}\n	b.slow.Store(c.verdict.Slow)\n"}}},
		{"deaf-elder", "a node that hands over refuses turns on the connections that it has", "upgrade", "upgrade", chaos.Processes, []edit{{"proxy/handler.go",
			"	p, err := c.route()\n	if err != nil {", "	if c.server.paused.Load() {\n		return nil, &failure{code: backend.CodeDraining, reason: backend.Shed, message: \"planted\"}\n	}\n	p, err := c.route()\n	if err != nil {"}}},
		{"cut-by-upgrade", "a node that hands over cuts its streams", "P6", "upgrade", chaos.Processes, []edit{{"node/elder.go",
			"	report := n.proxy.Leave(ctx, leaveGrace)\n", "	now, cut := context.WithCancel(ctx)\n	cut()\n	report := n.proxy.Leave(now, leaveGrace)\n"}}},
		{"endless-elder", "a process that has handed its node over never ends", "upgrade", "upgrade", chaos.Processes, []edit{{"node/elder.go",
			"	close(n.carried)\n", "	close(n.carried)\n	<-make(chan struct{})\n"}}},
		{"unlocked", "a data directory is not locked", "data", "twice", chaos.Processes, []edit{{"node/lock_unix.go",
			"	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)\n", ""}}},
		{"disk-leak", "every write leaves a file behind", "P10", "peace", "", []edit{
			{"consensus/store/committer.go", "	\"fmt\"\n", "	\"fmt\"\n	\"os\"\n"},
			{"consensus/store/committer.go", "	err := guard(func() error { return s.disk.StoreLogs(entries) })\n",
				"	_ = os.WriteFile(fmt.Sprint(s.opts.Path, time.Now().UnixNano()), make([]byte, 1<<20), 0o600)\n	err := guard(func() error { return s.disk.StoreLogs(entries) })\n"}}},
	}
}

// bindingBugs are of those who agree on where sessions live.
func bindingBugs() []mutant {
	return []mutant{
		{"lost-binding", "bindings are lost when a shard gets another leader", "P2", "kill", "", []edit{{"shards/machine.go",
			"	m.mark(index)\n",
			"	if term > m.at.Term && m.at.Term > 0 {\n		m.table = NewTable()\n	}\n	m.mark(index)\n"}}},
		{"stale-cache", "a node goes on by what it cached after a move", "P1", "move", "", []edit{{"shards/section.go",
			"	r.cache.Hear(i.session, i.binding, gen, r.Now())\n", "	_ = gen\n"}}},
		{"early-expiry", "sessions are let go after a thousandth of their TTL", "P2", "peace", "", []edit{{"shards/letgo.go",
			"rule.TTL > 0 && now > rule.TTL {\n			r.dismiss(u, u.Before(now-rule.TTL, maxExpired), rule.TTL, rule.Strict)",
			"rule.TTL > 0 {\n			r.dismiss(u, u.Before(now-rule.TTL/1000, maxExpired), rule.TTL/1000, rule.Strict)"}}},
		{"split-bootstrap", "every node founds a cluster of its own", "P12", "peace", "", []edit{
			{"shards/meta/found.go", "		if n.Cluster != \"\" {", "		if n.Cluster != \"\" && n.ID == self {"},
			{"shards/meta/found.go", "	case len(fresh) < own.Expect:", "	case own.Expect > 0:\n		return \"\"\n	case len(fresh) < own.Expect:"},
			{"shards/meta/found.go", "f.Reason == \"\" && self == founder(fresh)", "f.Reason == \"\""}}},
		{"unfenced", "a node that hears nobody goes on as if its lease lasted", "P1", "cut", "", []edit{
			{"shards/section.go", "{ return now < time.Duration(s.until.Load()) }", "{ return s.until.Load() > 0 }"},
			{"shards/look.go", "	if now >= until {\n", "	if until == 0 {\n"}}},
		{"unfenced-pause", "a node that stood still goes on as if its lease had lasted", "P1", "pause", chaos.Processes, []edit{
			{"shards/section.go", "{ return now < time.Duration(s.until.Load()) }", "{ return s.until.Load() > 0 }"},
			{"shards/look.go", "	if now >= until {\n", "	if until == 0 {\n"}}},
		{"never-reconciled", "guesses are not offered when there are leaders again", "P4", "quorum", "", []edit{
			{"shards/fallback.go", "		offers := s.offers()\n", "		offers := s.offers()[:0]\n"}}},
		{"nobody-asked", "a move begins although turns of the session run", "P3", "move", "", []edit{
			{"shards/section.go", "		running := l != nil && l.turns > 0\n", "		running := false\n"}}},
		{"rival-backends", "each node guesses for itself where a session lives", "P4", "quorum", "", []edit{
			{"shards/fallback.go", "		backend = r.set(t.pool).Choose(t.session, r.Fates.Usable)", "		other := t.session\n		copy(other[:8], r.Node)\n		backend = r.set(t.pool).Choose(other, r.Fates.Usable)"}}},
		{"merge-adds", "what a node reports is added to what it reported before", "P9", "peace", "", []edit{
			{"gossip/reports.go", "	e := backend.Elsewhere{Nodes: len(s.peers.list), Stale: s.stale}", "	e := backend.Elsewhere{Nodes: len(s.peers.list), Stale: s.stale, InFlight: before.elsewhere[id].InFlight}"}}},
		{"own-verdict", "a node believes no checks but its own", "views", "sick", "", []edit{
			{"proxy/backend/look.go", "c.others...)", "c.others[:0]...)"},
			{"proxy/backend/look.go", "Alive: c.alive,", "Alive: 1,"}}},
	}
}

// streamBugs are of those who carry streams.
func streamBugs() []mutant {
	return []mutant{
		{"double-settle", "a stream's count is given back twice", "P9", "peace", "", []edit{{"proxy/backend/lease.go",
			"	b.flights.end(at)\n	b.pool", "	b.flights.end(at)\n	if b.flights.count() > 0 {\n		b.flights.end(at)\n	}\n	b.pool"}}},
		{"missing-settle", "the count of a stream whose client left is kept", "P9", "peace", "", []edit{{"proxy/stream.go",
			"	s.lease.Release(time.Now())\n	s.endTurn()\n", "	if s.cut == nil || s.cut.reason != backend.ClientLeft {\n		s.lease.Release(time.Now())\n	}\n	s.endTurn()\n"}}},
		{"false-end", "an answer that its backend broke off ends as if it were whole", "P7", "breaking", "", []edit{{"proxy/wire/relay.go",
			"	case err == io.EOF && r.Length == UntilClose:\n", "	case r.Length == Chunked:\n		_ = r.To.Write([]byte(\"0\\r\\n\\r\\n\"), r.WriteIdle)\n		return nil\n	case err == io.EOF && r.Length == UntilClose:\n"}}},
		{"retry-begun", "a POST that a backend has begun is sent again", "P7", "breaking", "", []edit{{"proxy/retry.go",
			"	return slices.Contains(s.pool.cfg.Retry.Methods, string(c.req.Method)) &&", "	return"}}},
		{"cut-for-nothing", "one answer in fifty is cut", "P6", "peace", "", []edit{{"proxy/relay.go",
			"	c.out = c.resp.AppendAnswer(c.out[:0], a)\n", "	if time.Now().UnixNano()/1000%50 == 0 {\n		return &wire.SourceError{Err: errors.New(\"planted\")}\n	}\n	c.out = c.resp.AppendAnswer(c.out[:0], a)\n"}}},
		{"slow-to-let-go", "a backend keeps the place of a client that left", "P8", "peace", "", []edit{
			{"proxy/stream.go", "	if !s.live || s.cut != nil || s.phase", "	if !s.live || s.cut != nil || f.reason == backend.ClientLeft || s.phase"},
			{"proxy/relay.go", "func sinkFailure(err error) error {\n", "func sinkFailure(err error) error {\n	time.Sleep(5 * time.Second)\n"}}},
		{"leak", "every stream leaves a goroutine behind", "P10", "peace", "", []edit{{"proxy/stream.go",
			"	s.endUpload()\n	s.forget()\n", "	for range 20 {\n		go func() { select {} }()\n	}\n	s.endUpload()\n	s.forget()\n"}}},
		{"refused-for-nothing", "one request in fifty is told that there is no backend", "P11", "peace", "", []edit{{"proxy/handler.go",
			"	p, err := c.route()\n	if err != nil {", "	if c.server.ends.ever[backend.Done].Load()%50 == 49 {\n		return nil, &failure{code: backend.NoBackend, reason: backend.Shed, message: \"planted\"}\n	}\n	p, err := c.route()\n	if err != nil {"}}},
	}
}
