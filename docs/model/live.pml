/* Whatever has happened: once the faults are over, every move ends and every turn that
 * waits starts, also beside a turn that never ends and a node that never comes back. */
#ifndef LEADERS
#define LEADERS 2
#endif
#define TIME
#define LIVE
#define MOVES
#define COARSE(n) 1
#define PATIENCE 1
#include "core.pml"

#define STARTED(n) (turn[n] == IDLE || turn[n] == RUNS)
#define ENDED(l)   (term[l] != newest || phase[l] == NOHOLD)

ltl ends { [] (calm -> <> (STARTED(0) && STARTED(1) && ENDED(0) && ENDED(LEADERS - 1))) }
