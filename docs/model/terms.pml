/* Moves over elections: another leader, the same one again, one that has not heard of it. */
#define LEADERS 2
#define MOVES
#define COARSE(n) 1
#include "core.pml"
