/* Moves under one leader: holds and their answers, feeds that break, nodes that restart. */
#define MOVES
#include "core.pml"
