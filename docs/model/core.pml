/* All of it, in the order in which it reads. */
#include "state.pml"
#include "rules.pml"
#include "leader.pml"
#include "node.pml"
#include "world.pml"
