package consensus

import (
	"strconv"
	"strings"
)

// Name is the id of a replica in its group, and its Raft address: the node's, and
// of which life the replica is. A node that lost its replica and gets another one
// begins without the log that its votes and answers stood for, so it must be
// another member to all that have not heard of it: under the old id it could make
// a leader of one that was left behind.
func Name(node string, life uint64) string {
	if life == 0 {
		return node
	}
	return node + "#" + strconv.FormatUint(life, 10)
}

// parse takes a name apart.
func parse(name string) (node string, life uint64) {
	node, text, _ := strings.Cut(name, "#")
	life, _ = strconv.ParseUint(text, 10, 64) // 0 where there is none
	return node, life
}

func nodeOf[T ~string](name T) string {
	node, _ := parse(string(name))
	return node
}
