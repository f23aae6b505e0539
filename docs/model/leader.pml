/* Who leads: the table, moves, and the leader's end of each connection. */

/* A node whose feed broke is told nothing: its section begins anew. */
inline tell(n, l, what, num, which) {
	if
	:: link[C(n, l)] == FED -> feed[C(n, l)]!what, term[l], num, which
	:: else
	fi
}

inline learn(l) {
	ownBackend[l] = backend;
	ownEpoch[l] = epoch;
	ownHolder[C(0, l)] = holder[0];
	ownHolder[C(1, l)] = holder[1]
}

/* P1: an epoch has one backend, for ever. */
inline become(to) {
	assert(!LEFT_BEHIND(to));
	backend = to;
	if
#ifdef NO_FLOOR
	:: to == NOWHERE -> epoch = 0
#endif
	:: to != NOWHERE ->
		epoch++;
		assert(history[epoch] == 0 || history[epoch] == to);
		history[epoch] = to
	:: else
	fi
}

inline forgetEntry() {
	entryTerm = 0; entryHold = 0; entryFrom = 0; entryTo = 0; entryBy = 0
}

/* Table.Apply: a move is refused if its entry is of another term than its hold. */
inline apply() {
	if
#ifdef NO_TERM_CHECK
	:: entryFrom == epoch && backend != NOWHERE -> become(entryTo)
#else
	:: entryFrom == epoch && backend != NOWHERE && entryHold == entryTerm -> become(entryTo)
#endif
	:: else
	fi;
	forgetEntry()
}

/* The hold ends, and each node hears what stands now. */
inline letGo(l) {
	phase[l] = NOHOLD;
	target[l] = 0;
	patience[l] = 0;
	word[C(0, l)] = 0;
	word[C(1, l)] = 0;
	tell(0, l, release, ownEpoch[l], ownBackend[l]);
	tell(1, l, release, ownEpoch[l], ownBackend[l])
}

inline askHolder(n, l) {
	if
	:: ownHolder[C(n, l)] -> tell(n, l, hold, number[l], 0)
	:: else
	fi
}

/* One question to all holders. A busy session is not held: the move is tried again. */
inline beginHold(l, to) {
	holds++;
	phase[l] = HOLDS;
	number[l]++;
	target[l] = to;
	patience[l] = PATIENCE;
	askHolder(0, l);
	askHolder(1, l)
}

inline forgetNode(n, l) {
	word[C(n, l)] = 0;
	theirs[C(n, l)] = 0;
	if
	:: asks[C(n, l)] == 2 || asks[C(n, l)] == 3 -> asks[C(n, l)] = 0; age[C(n, l)] = 0
	:: else
	fi;
	if
	:: binds[C(n, l)] == 3 -> binds[C(n, l)] = 0
	:: else
	fi
}

/* What a leader holds in memory dies with its term, also when it is elected again. */
inline forgetTerm(l) {
#ifndef NO_FORGETTING
	phase[l] = NOHOLD; number[l] = 0; target[l] = 0; patience[l] = 0;
	forgetNode(0, l);
	forgetNode(1, l);
#endif
	skip
}

proctype Leader(byte l) {
	do
	/* It commits an entry of its own term. An older one is decided before: it is in this
	 * leader's log, or is overwritten. */
	:: d_step { term[l] == newest && !ready[l] && entryTerm ->
		apply(); learn(l); ready[l] = 1; agreed = newest }
	:: d_step { term[l] == newest && !ready[l] && (entryTerm == 0 || entryBy != l) ->
		forgetEntry(); learn(l); ready[l] = 1; agreed = newest }

#ifdef MOVES
	:: d_step { FREE(l) -> beginHold(l, 3 - ownBackend[l]) }
#endif
#ifdef EXPIRES
#ifdef NO_EXPIRY_HOLD
	:: d_step { FREE(l) && COMMITS(l) -> holds++; become(NOWHERE); learn(l); letGo(l) }
#else
	:: d_step { FREE(l) -> beginHold(l, NOWHERE) }
#endif
#endif
	:: d_step { ACTS(l) && CANCELS(l) && ROOMY(l) -> letGo(l) }

	/* All are idle: from here on it cannot be cancelled. */
	:: d_step { ACTS(l) && phase[l] == HOLDS && queueHold[l] == 0 &&
			(ownHolder[C(0, l)] == 0 || word[C(0, l)]) &&
			(ownHolder[C(1, l)] == 0 || word[C(1, l)]) ->
		phase[l] = DECIDED;
		queueHold[l] = term[l]; queueFrom[l] = ownEpoch[l]; queueTo[l] = target[l] }

	/* Raft takes it, in the term that it has by then. */
	:: d_step { queueHold[l] && term[l] && entryTerm == 0 && (ready[l] || term[l] != newest) ->
		if
		:: term[l] >= agreed ->
			entryTerm = term[l]; entryBy = l;
			entryHold = queueHold[l]; entryFrom = queueFrom[l]; entryTo = queueTo[l]
		:: else /* never to be committed: a majority has a newer term's entry */
		fi;
		queueHold[l] = 0; queueFrom[l] = 0; queueTo[l] = 0;
		if
		:: phase[l] == DECIDED -> phase[l] = WRITTEN
		:: else
		fi }

	/* The outcome. */
	:: d_step { COMMITS(l) && entryTerm == term[l] && entryBy == l && ROOMY(l) ->
		apply(); learn(l);
		if
		:: phase[l] == WRITTEN || phase[l] == NOHOLD -> letGo(l)
		:: else
		fi }

#ifdef BACKEND_DIES
	/* Exception 1: no hold, one entry. */
	:: d_step { COMMITS(l) && grace[l] == 0 && diedAt == 0 && backend != NOWHERE && !calm && ROOMY(l) ->
		diedAt = epoch; become(3 - backend); learn(l);
		if
		:: phase[l] == NOHOLD -> letGo(l)
		:: else
		fi }
#endif

#if LEADERS > 1
	/* It hears that another leads. */
	:: d_step { term[l] && term[l] < newest ->
		term[l] = 0; ready[l] = 0; grace[l] = 0; forgetTerm(l) }
#endif
	od
}

/* Whoever is no holder any more is asked no more: its turns go on unseen. They are a
 * stated exception if its own lease has lapsed, by its own count. */
inline excuse(n) {
	if
#ifndef NO_EXCEPTION_2
	:: turn[n] == RUNS && lease[n] == 0 && dead[n] -> excused[n] = 1
#endif
#ifndef NO_EXCEPTION_4
	:: turn[n] == LATE -> excused[n] = 1
#endif
	:: else
	fi
}

/* The leader's end of a connection. */
proctype Link(byte n, l) {
	do
	/* The section begins with the hold in force. */
	:: d_step { ACTS(l) && link[C(n, l)] == OPEN && nfull(feed[C(n, l)]) ->
		link[C(n, l)] = FED;
		word[C(n, l)] = 0;
#ifdef NO_HOLDS_FIRST
		feed[C(n, l)]!section, term[l], 0, 0
#else
		feed[C(n, l)]!section, term[l], (phase[l] -> number[l] : 0), FORCE(l)
#endif
		}

	/* A question for the lease comes; the leader counts from here. */
	:: d_step { ACTS(l) && link[C(n, l)] == FED && asks[C(n, l)] == 1 ->
#ifdef DEATHS
		theirs[C(n, l)] = TERM_OF_LEASE;
#endif
		asks[C(n, l)] = 2 }
	:: d_step { ACTS(l) && asks[C(n, l)] == 2 && PROVEN(l) ->
		asks[C(n, l)] = 3 }
	/* A holder is a committed entry; who becomes one is told of the hold first, or has its
	 * section begun anew (-DANEW). */
	:: d_step { COMMITS(l) && asks[C(n, l)] == 3 && ownHolder[C(n, l)] != boot[n] && nfull(feed[C(n, l)]) ->
		holder[n] = boot[n];
		learn(l);
		word[C(n, l)] = 0;
#if defined(ANEW)
		link[C(n, l)] = OPEN
#elif !defined(NO_HOLD_FOR_NEW)
		if
		:: phase[l] -> tell(n, l, hold, number[l], FORCE(l))
		:: else
		fi
#endif
		}
	:: d_step { ACTS(l) && asks[C(n, l)] == 3 && ownHolder[C(n, l)] == boot[n] && link[C(n, l)] == FED && nfull(feed[C(n, l)]) ->
		asks[C(n, l)] = 4;
		feed[C(n, l)]!grant, term[l], 0, 0 }

	/* A question for the binding; `held` is answered by silence here. */
	:: d_step { ACTS(l) && link[C(n, l)] == FED && binds[C(n, l)] == 1 && PROVEN(l) ->
		binds[C(n, l)] = 3 }
	:: d_step { COMMITS(l) && binds[C(n, l)] == 3 && phase[l] == NOHOLD && ownBackend[l] == NOWHERE ->
		become(n + 1);
		learn(l) }
	:: d_step { ACTS(l) && binds[C(n, l)] == 3 && ANSWERS(l) && ownBackend[l] != NOWHERE && link[C(n, l)] == FED && nfull(feed[C(n, l)]) ->
		binds[C(n, l)] = 4;
#ifdef BESIDE
		besideTerm[C(n, l)] = term[l]; besideBackend[C(n, l)] = ownBackend[l]; besideEpoch[C(n, l)] = ownEpoch[l]
#else
		feed[C(n, l)]!bound, term[l], ownEpoch[l], ownBackend[l]
#endif
		}

	/* A holder's word. It names the hold. */
	:: d_step { nempty(words[C(n, l)]) && (term[l] == 0 || (ACTS(l) && ROOMY(l))) ->
		words[C(n, l)]?gotTerm, gotNumber, gotIdle;
		if
		:: MATCHES(l) && gotIdle -> word[C(n, l)] = 1
		:: MATCHES(l) && !gotIdle -> letGo(l)
		:: else
		fi }

#ifdef DEATHS
	/* Exception 2: the node is dead by meta, and its lease has lapsed. Under `available` a
	 * lapsed lease is enough. */
	:: d_step { COMMITS(l) && grace[l] == 0 && ownHolder[C(n, l)] && theirs[C(n, l)] == 0 && GONE(n) ->
		holder[n] = 0;
		learn(l);
		excuse(n) }
#endif
	od
}
