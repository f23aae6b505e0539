/*
 * The rules, a macro each, as design section 5 has them. -DNO_SOMETHING takes one out.
 */

/* A leader acts only after it has applied an entry of its own term. */
#ifdef NO_BARRIER
#define ACTS(l) (term[l] > 0)
#else
#define ACTS(l) (ready[l])
#endif

/* What raft lets through: this leader's entry, now. */
#define COMMITS(l) (ready[l] && term[l] == newest)

/* A majority of voters has answered, in this leader's term, what was sent to them after
 * the question came: at some moment since then nobody had a higher term. */
#if defined(NO_QUORUM)
#define PROVEN(l) (true)
#elif defined(NO_SEND_TIME)
#define PROVEN(l) (term[l] == newest || acks[l] == term[l])
#else
#define PROVEN(l) (term[l] == newest)
#endif

/* A turn is counted before the node looks, until its end. */
#ifdef NO_COUNT_FIRST
#define BUSY(n) (turn[n] == RUNS)
#else
#define BUSY(n) (turn[n] >= COUNTED)
#endif

/* What lets a turn start. */
#define MAY(n) (held[n] == 0 && live[n] && lease[n] > 0)

/* What the first look asks. It need not know that the lease lasts: a clock that lags
 * will do, for the last look asks again. */
#ifdef LATE_FIRST_LOOK
#define SEES(n) (held[n] == 0 && live[n])
#else
#define SEES(n) MAY(n)
#endif

/* The node looks once more right before the first byte. */
#ifdef NO_LAST_LOOK
#define LOOKS_AGAIN(n) (true)
#else
#define LOOKS_AGAIN(n) (MAY(n) && turnEpoch[n] == knownEpoch[n])
#endif

/* There is room in both feeds; in the product a feed without is cut. */
#define ROOMY(l) (nfull(feed[C(0, l)]) && nfull(feed[C(1, l)]))

/* A change may begin: nothing of an older term's may last. */
#define FREE(l) (ACTS(l) && phase[l] == NOHOLD && ownBackend[l] != NOWHERE && grace[l] == 0 && holds < HOLDS_MAX && ROOMY(l))

/* A hold may be called off, but not once the change is proposed: from then on it lasts,
 * and the leader is silent about the session, until the outcome is known. */
#if defined(NO_SILENCE)
#define CANCELS(l) (phase[l] != NOHOLD)
#elif defined(NO_DRAIN_TIMEOUT)
#define CANCELS(l) (false)
#elif defined(LIVE)
#define CANCELS(l) (phase[l] == HOLDS && (!calm || patience[l] == 0))
#else
#define CANCELS(l) (phase[l] == HOLDS)
#endif

/* A hold that is in force already, decided, binds a node also while a turn is counted:
 * without lease or binding until now that turn cannot be past its last look. */
#ifdef NO_FORCE
#define FORCE(l) 0
#else
#define FORCE(l) (phase[l] >= DECIDED)
#endif

/* During a hold no question for the binding is answered. */
#ifdef NO_HELD_ANSWER
#define ANSWERS(l) (true)
#else
#define ANSWERS(l) (phase[l] == NOHOLD)
#endif

/* A word counts for the hold that it names: its term, and its number in that term. */
#if defined(NO_NUMBER)
#define MATCHES(l) (ACTS(l) && phase[l] == HOLDS && gotTerm == term[l])
#elif defined(NO_TERM_IN_NUMBER)
#define MATCHES(l) (ACTS(l) && phase[l] == HOLDS && gotNumber == number[l])
#else
#define MATCHES(l) (ACTS(l) && phase[l] == HOLDS && gotTerm == term[l] && gotNumber == number[l])
#endif

/* Who is asked no more: a holder that is dead by meta. (Its lease has lapsed, too.) */
#if defined(NO_HOLDERS) || defined(AVAILABLE)
#define GONE(n) (true)
#else
#define GONE(n) (dead[n])
#endif

/* Under `available` a turn that does not end within the lease of its last look is stale. */
#if defined(AVAILABLE) && !defined(NO_STALE_MARK)
#define STALE_MARK 1
#else
#define STALE_MARK 0
#endif

/* A node counts its lease from the moment it asked. */
#ifdef NO_ASK_TIME
#define LEFT(n, l) LEASE
#else
#define LEFT(n, l) (LEASE - age[C(n, l)])
#endif

/* The leader's count has a margin for clocks that run apart. */
#ifdef NO_MARGIN
#define TERM_OF_LEASE LEASE
#else
#define TERM_OF_LEASE (LEASE + MARGIN)
#endif

/* For so long a new leader takes no lease of an older one's for lapsed. */
#if defined(NO_GRACE) || !defined(TIME)
#define GRACE 0
#else
#define GRACE TERM_OF_LEASE
#endif

/* A section of a newer term has begun: what an older leader says is over. */
#ifdef NO_SECTION_TERM
#define OLD(n) (false)
#else
#define OLD(n) (gotTerm < nodeTerm[n])
#endif

#define FOLLOWS(n, l) (!down[n] && nodeTerm[n] && nodeLeader[n] == l && link[C(n, l)] == FED)

/* An answer that travels beside the feed is dropped if the feed spoke in between. */
#ifdef BESIDE
#define NAMED(n, l) if :: got != grant -> spoke[C(n, l)] = 1 :: else fi
#else
#define NAMED(n, l) skip
#endif
#ifdef NO_ORDER
#define DROPS(n, l) 0
#else
#define DROPS(n, l) spoke[C(n, l)]
#endif

/* P3: no two turns of the session run on two backends, the stated exceptions apart. A
 * node that is alone has a world beside it that starts turns wherever the binding says,
 * from the moment of its commit. */
#ifdef ALONE
#define OVERLAP(n) (turnBackend[n] != backend && !EXCUSED(n))
#define LEFT_BEHIND(to) (turn[0] == RUNS && turnBackend[0] != to && !EXCUSED(0))
#else
#define OVERLAP(n) (turn[1 - n] == RUNS && turnBackend[1 - n] != turnBackend[n] && \
	!EXCUSED(n) && !EXCUSED(1 - n))
#define LEFT_BEHIND(to) (false)
#endif
#ifdef NO_EXCEPTION_1
#define EXCUSED(n) (excused[n])
#else
#define EXCUSED(n) (excused[n] || turnEpoch[n] <= diedAt)
#endif

/* While faults last a tick may come at any moment; in the calm nothing is slower than time. */
#ifdef LIVE
#define TICKS (!calm || timeout)
#else
#define TICKS (true)
#endif

#define COUNTDOWN(v) if :: v > 0 -> v-- :: else fi
