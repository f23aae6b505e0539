/* Time, elections, the death of a node, and the end of all faults. */

inline tickAge(n, l) {
	if
	:: asks[C(n, l)] && age[C(n, l)] < LEASE -> age[C(n, l)]++
	:: else
	fi
}

inline nodeTick(n) {
	tickAge(n, 0);
#if LEADERS > 1
	tickAge(n, 1);
#endif
	if
	:: lease[n] == 1 && turn[n] == LOOKED -> turn[n] = LATE
	:: lease[n] == 1 && turn[n] == RUNS && STALE_MARK -> excused[n] = 1
	:: else
	fi;
	COUNTDOWN(lease[n])
}

inline leaderTick(l) {
	COUNTDOWN(grace[l]);
	COUNTDOWN(theirs[C(0, l)]);
#ifndef ALONE
	COUNTDOWN(theirs[C(1, l)]);
#endif
#ifdef LIVE
	if
	:: phase[l] == HOLDS && patience[l] > 0 -> patience[l]--
	:: else
	fi
#endif
}

inline steady(n) {
	if
	:: skipped[n] && lease[n] == 0 && asks[C(n, 0)] == 0 && asks[C(n, LEADERS - 1)] == 0 -> skipped[n] = 0
	:: else
	fi
}

inline tick(slow) {
	leaderTick(0);
#if LEADERS > 1
	leaderTick(1);
#endif
	if
	:: slow == 0 -> nodeTick(0)
	:: else -> skipped[0] = 1
	fi;
#ifndef ALONE
	nodeTick(1);
#endif
	steady(0)
}

inline reopen(n, l) {
	if
	:: link[C(n, l)] == FED -> link[C(n, l)] = OPEN
	:: else
	fi
}

inline elect(l) {
	newest++;
	term[l] = newest;
	ready[l] = 0;
	acks[l] = 0;
	grace[l] = GRACE;
	forgetTerm(l);
	reopen(0, l);
	reopen(1, l)
}

proctype World() {
	do
#ifdef TIME
	:: atomic { TICKS -> tick(0) }
	:: d_step { !calm && DRIFTS && skipped[0] == 0 && lease[0] -> tick(1) }
#ifdef DEATHS
	:: d_step { !calm && dead[0] == 0 -> dead[0] = 1 }
#ifdef RETURNS
	:: d_step { !calm && dead[0] -> dead[0] = 0 }
#endif
#endif
#endif
	:: d_step { newest < TERMS && !calm -> elect(0) }
#if LEADERS > 1
	:: d_step { newest < TERMS && !calm -> elect(1) }
#endif
#ifdef NO_SEND_TIME
	:: d_step { term[0] == newest && acks[0] != term[0] -> acks[0] = term[0] }
#endif
#ifdef LIVE
	:: d_step { !calm -> calm = 1 }
#endif
	od
}

/* Where a session stands at first, its nodes know it, and have their leases. */
inline warm(n) {
	link[C(n, 0)] = FED; nodeTerm[n] = 1;
	known[n] = START; knownEpoch[n] = FIRST; live[n] = 1;
	lease[n] = LEASE;
#ifdef DEATHS
	theirs[C(n, 0)] = TERM_OF_LEASE;
#endif
	skip
}

init {
	atomic {
		term[0] = 1;
		ready[0] = 1;
		history[FIRST] = START;
		learn(0);
		if
#if defined(NEWCOMER) || defined(ALONE)
		:: START -> warm(0); holder[1] = 0; learn(0)
#else
		:: START -> warm(0); warm(1)
#endif
		:: else
		fi;
		run Leader(0); run Link(0, 0); run Feed(0, 0); run Node(0);
#ifndef ALONE
		run Link(1, 0); run Feed(1, 0); run Node(1);
#endif
#if LEADERS > 1
		learn(1);
		run Leader(1); run Link(0, 1); run Feed(0, 1);
#ifndef ALONE
		run Link(1, 1); run Feed(1, 1);
#endif
#endif
		run World()
	}
}
