/*
 * The protocol of starling's sessions: one session, two backends, two nodes, and one or
 * two processes that may lead its shard. The files beside this one say how much of it
 * is switched on, and include it; README.md says what is left out.
 *
 * Each step is one indivisible action of one process. A paused process is one whose
 * next step comes late, a late message one whose receiver is: both are in here without
 * a word. Time passes by World's ticks, at any moment, in paused processes too.
 *
 * -DNO_SOMETHING takes out one rule: look for the macro to find the rule.
 */

/* What the files beside this one may say otherwise. */
#ifndef LEADERS
#define LEADERS 1   /* processes that may lead the shard */
#endif
#define LINKS (2 * LEADERS)
#ifndef TERMS
#define TERMS 1     /* the highest term there may be */
#endif
#ifndef START
#define START 1     /* the session's backend at first, 0 for none */
#endif
#define FIRST (START > 0)
#ifndef HOLDS_MAX
#define HOLDS_MAX 1 /* how many moves are begun */
#endif
#ifndef CUTS
#define CUTS 0      /* how many times a feed breaks */
#endif
#ifndef CRASHES
#define CRASHES 0   /* how many times a node's process ends */
#endif
#ifndef ROOM
#define ROOM 3      /* messages on their way in one direction */
#endif
#ifdef TIME
#define AFTER_LOOK CHOSEN
#else
#define AFTER_LOOK LOOKED
#define MARGIN 0
#endif
#ifndef LEASE
#define LEASE 1     /* ticks */
#endif
#ifndef MARGIN
#define MARGIN 1
#endif
#ifndef DRIFTS
#define DRIFTS 0    /* whether node 0's clock may be slow, by a tick in a lease */
#endif
#ifndef COARSE
#define COARSE(n) 0 /* whether this node counts, looks and writes in one step */
#endif
#ifndef PATIENCE
#define PATIENCE 0
#endif

#define IDLE    0 /* a node's turn of the session: there is none */
#define WAITS   1 /* it is held, or has no lease or no binding; it is not counted */
#define COUNTED 2 /* it is counted, and looks next */
#define CHOSEN  3 /* it has looked: knows where to go, and connects */
#define LOOKED  4 /* it has looked once more, and writes its first byte next */
#define LATE    5 /* as LOOKED, but the lease has lapsed since */
#define RUNS    6 /* its backend may have seen it, and its end is not read yet */

#define CLOSED 0 /* a connection from a node to a leader, which is a feed */
#define OPEN   1 /* the leader has to begin the section */
#define FED    2

#define NOHOLD  0 /* a move, at the leader: there is none */
#define HOLDS   1 /* it has asked the holders for their word */
#define DECIDED 2 /* all were idle; raft shall take the entry next */
#define WRITTEN 3 /* the entry is in the log, and may or may not commit */

#define NOWHERE 0 /* where a move goes that lets go; else to the other backend */

#define C(n, l) ((n) * LEADERS + (l))

mtype = { section, hold, release, grant, bound };

/* What is agreed: the table of the shard, and the one entry that is not decided yet. */
byte backend = START, epoch = FIRST;        /* of the session; the epoch is the floor when it has no backend */
byte holder[2] = 1;                         /* the boot that holds, 0 for none */
byte newest = 1;                            /* the highest term that has a leader */
byte agreed = 1;                            /* the highest term that has committed an entry */
byte entryTerm, entryHold, entryFrom, entryTo, entryBy;
byte history[8];                            /* by epoch: the backend, to check P1 by */
byte diedAt;                                /* the epoch whose backend was declared dead */
bit dead[2];                                /* nodes, by a committed entry of meta */

/* A node: its boot, its turn, and what it has heard of the session. */
byte boot[2] = 1;
bit down[2];
byte turn[2], turnBackend[2], turnEpoch[2];
bit excused[2];                             /* the turn is a stated exception, and was counted as such */
byte nodeTerm[2], nodeLeader[2];            /* the section that it follows */
byte known[2], knownEpoch[2];
bit live[2];                                /* what it knows is of this section, and not a last known binding */
byte held[2];                               /* by the hold of this number */
byte lease[2];                              /* ticks that are left */
bit skipped[2];                             /* its clock, which is slow, has lost the tick that it may lose */

/* A leader, or who takes itself for one. All but its table dies with the term. */
byte term[LEADERS];
bit ready[LEADERS];                         /* it has applied an entry of its own term */
byte ownBackend[LEADERS], ownEpoch[LEADERS], ownHolder[LINKS]; /* its table, which may lag */
byte phase[LEADERS], number[LEADERS], target[LEADERS];
byte patience[LEADERS];                     /* ticks until the drain timeout */
byte grace[LEADERS];                        /* ticks until it may change what an older term granted */
bit word[LINKS];                            /* this holder was idle, and holds */
byte theirs[LINKS];                         /* ticks until it takes this node's lease for lapsed */
byte acks[LEADERS];                         /* the term of voters' answers that are on their way to it */
byte queueHold[LEADERS], queueFrom[LEADERS], queueTo[LEADERS]; /* what raft shall take next */

/* A connection, and two questions of the node's: 0 none, 1 on its way, 2 there, 3 proven, 4 answered. */
byte link[LINKS] = OPEN;
byte asks[LINKS], binds[LINKS];
byte age[LINKS];                            /* ticks since the node asked for a lease */
chan feed[LINKS] = [ROOM] of { mtype, byte, byte, byte };  /* term, number or epoch, backend or in force */
chan words[LINKS] = [HOLDS_MAX + CUTS + 2 * CRASHES + TERMS + 1] of { byte, byte, bit };         /* answers to holds: term, number, idle */
#ifdef BESIDE
byte besideTerm[LINKS], besideBackend[LINKS], besideEpoch[LINKS]; /* answers to binds */
bit spoke[LINKS];                           /* the feed has named the session since the question */
#endif

byte cuts, crashes, holds;                  /* how many there were */
bit calm;                                   /* the faults are over */

hidden mtype got;                           /* of the message that is read */
hidden byte gotTerm, gotNumber, gotBackend, gotIdle;
