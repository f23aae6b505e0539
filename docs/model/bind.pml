/* First turns and letting go: who binds, who forgets, what an answer may cross. */
#define START   0
#define EXPIRES
#define FORGETS
#define COARSE(n) 1
#include "core.pml"
