/* A node: its end of a connection, and its turns. */

inline forgetBinding(n) {
	known[n] = 0; knownEpoch[n] = 0; live[n] = 0
}

/* A node never routes by a lower epoch than one it has seen. */
inline take(n, e, w) {
	if
	:: e >= knownEpoch[n] -> known[n] = w; knownEpoch[n] = e; live[n] = 1
	:: else
	fi
}

inline answerHold(n, l, num, force) {
	if
	:: force -> held[n] = num
	:: !force && BUSY(n) -> words[C(n, l)]!gotTerm, num, 0
	:: else -> held[n] = num; words[C(n, l)]!gotTerm, num, 1
	fi
}

/* The section begins anew: what the node knew is a last known binding from now on. */
inline beginSection(n, l) {
	if
#ifdef NO_GAP
	:: gotTerm == nodeTerm[n] -> skip
#endif
#ifdef NO_NEW_SECTION
	:: gotTerm > nodeTerm[n] -> skip
#endif
	:: else -> live[n] = 0
	fi;
#ifdef NO_HOLD_END
	if
	:: gotTerm == nodeTerm[n] -> held[n] = 0
	:: else
	fi;
#else
	held[n] = 0;
#endif
	nodeTerm[n] = gotTerm;
	nodeLeader[n] = l
}

inline heed(n, l) {
	if
	:: got == section ->
		beginSection(n, l);
		if
		:: gotNumber -> answerHold(n, l, gotNumber, gotBackend)
		:: else
		fi
	:: got == hold -> answerHold(n, l, gotNumber, gotBackend)
	:: got == release ->
		held[n] = 0;
		if
		:: knownEpoch[n] && gotBackend == NOWHERE -> forgetBinding(n)
		:: knownEpoch[n] && gotBackend != NOWHERE && gotNumber >= knownEpoch[n] -> known[n] = gotBackend; knownEpoch[n] = gotNumber
		:: else
		fi
	:: got == grant ->
		asks[C(n, l)] = 0;
		if
		:: LEFT(n, l) > lease[n] -> lease[n] = LEFT(n, l)
		:: else
		fi;
		age[C(n, l)] = 0
	:: got == bound -> binds[C(n, l)] = 0; take(n, gotNumber, gotBackend)
	fi
}

/* What was on its way is lost. */
inline cut(n, l) {
	do
	:: len(feed[C(n, l)]) > 0 -> feed[C(n, l)]?got, gotTerm, gotNumber, gotBackend
	:: else -> break
	od;
	do
	:: len(words[C(n, l)]) > 0 -> words[C(n, l)]?gotTerm, gotNumber, gotIdle
	:: else -> break
	od;
#ifdef BESIDE
	besideTerm[C(n, l)] = 0; besideBackend[C(n, l)] = 0; besideEpoch[C(n, l)] = 0; spoke[C(n, l)] = 0;
#endif
	asks[C(n, l)] = 0; binds[C(n, l)] = 0; age[C(n, l)] = 0;
	link[C(n, l)] = CLOSED
}

/* An answer of an older term answers nothing: the question may be put again. */
inline unanswered(n, l) {
	if
	:: got == grant -> asks[C(n, l)] = 0; age[C(n, l)] = 0
	:: got == bound -> binds[C(n, l)] = 0
	:: else
	fi
}

/* The node's end of a connection. */
proctype Feed(byte n, l) {
	do
	:: d_step { nempty(feed[C(n, l)]) && nfull(words[C(n, l)]) ->
		feed[C(n, l)]?got, gotTerm, gotNumber, gotBackend;
		if
		:: OLD(n) -> unanswered(n, l)
		:: else -> heed(n, l); NAMED(n, l)
		fi }
	:: d_step { !down[n] && link[C(n, l)] == CLOSED -> link[C(n, l)] = OPEN }
	:: d_step { cuts < CUTS && !calm && link[C(n, l)] == FED -> cuts++; cut(n, l) }

	:: d_step { FOLLOWS(n, l) && asks[C(n, l)] == 0 && lease[n] < LEASE && turn[n] != IDLE ->
		asks[C(n, l)] = 1 }
	:: d_step { FOLLOWS(n, l) && binds[C(n, l)] == 0 && turn[n] == WAITS && !live[n] ->
		binds[C(n, l)] = 1;
#ifdef BESIDE
		spoke[C(n, l)] = 0
#endif
		}
#ifdef BESIDE
	:: d_step { besideTerm[C(n, l)] ->
		gotTerm = besideTerm[C(n, l)]; gotNumber = besideEpoch[C(n, l)]; gotBackend = besideBackend[C(n, l)];
		besideTerm[C(n, l)] = 0; besideBackend[C(n, l)] = 0; besideEpoch[C(n, l)] = 0;
		binds[C(n, l)] = 0;
		if
		:: !OLD(n) && DROPS(n, l) == 0 -> take(n, gotNumber, gotBackend)
		:: else
		fi }
#endif
	od
}

inline endTurn(n) {
	turn[n] = IDLE; turnBackend[n] = 0; turnEpoch[n] = 0; excused[n] = 0
}

inline crash(n) {
	endTurn(n);
	forgetBinding(n);
	held[n] = 0; lease[n] = 0; skipped[n] = 0;
	nodeTerm[n] = 0; nodeLeader[n] = 0;
	cut(n, 0);
#if LEADERS > 1
	cut(n, 1);
#endif
	skip
}

proctype Node(byte n) {
	do
	/* Counted, looked and written in one step; time and holds cannot come in between. */
	:: d_step { COARSE(n) && (turn[n] == WAITS || turn[n] == IDLE && !down[n] && !calm) && MAY(n) ->
		turn[n] = RUNS;
#ifndef LIVE
		turnBackend[n] = known[n]; turnEpoch[n] = knownEpoch[n];
#endif
		assert(!OVERLAP(n)) }
	:: d_step { COARSE(n) && turn[n] == IDLE && !down[n] && !calm && !MAY(n) -> turn[n] = WAITS }
	:: d_step { !COARSE(n) && turn[n] == IDLE && !down[n] && !calm -> turn[n] = COUNTED }
	:: d_step { !COARSE(n) && turn[n] == WAITS && MAY(n) -> turn[n] = COUNTED }
	:: d_step { turn[n] == COUNTED ->
		if
		:: SEES(n) -> turn[n] = AFTER_LOOK; turnBackend[n] = known[n]; turnEpoch[n] = knownEpoch[n]
		:: else -> turn[n] = WAITS
		fi }
#ifdef TIME
	:: d_step { turn[n] == CHOSEN ->
		if
		:: LOOKS_AGAIN(n) -> turn[n] = LOOKED
		:: else -> turn[n] = COUNTED; turnBackend[n] = 0; turnEpoch[n] = 0
		fi }
#endif
#ifdef AVAILABLE
	/* Exception 3: no answer from the leader, and it goes on all the same. */
	:: d_step { turn[n] == WAITS && knownEpoch[n] && !MAY(n) ->
		turn[n] = RUNS; turnBackend[n] = known[n]; turnEpoch[n] = knownEpoch[n];
		excused[n] = 1 }
#endif
	:: d_step { turn[n] == LOOKED || turn[n] == LATE ->
		excused[n] = excused[n] || turn[n] == LATE && STALE_MARK;
		turn[n] = RUNS;
		assert(!OVERLAP(n)) }
	:: atomic { turn[n] == RUNS && TICKS -> endTurn(n) }
#ifdef FORGETS
	:: d_step { turn[n] == IDLE && knownEpoch[n] && !calm -> forgetBinding(n) }
#endif
	/* Its connections close with it, and the backends see its streams end. */
	:: d_step { crashes < CRASHES && !down[n] && !calm ->
		crashes++; down[n] = 1; crash(n) }
	:: d_step { down[n] && !calm -> down[n] = 0; boot[n]++ }
	od
}
