/* Leases: time, a slow clock, a node that is declared dead and is not, a deposed leader. */
#define LEADERS 2
#define TIME
#define DEATHS
#define MOVES
#define ALONE
#include "core.pml"
