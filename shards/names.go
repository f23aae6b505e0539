package shards

// names gives text numbers while they are in use. A new text gets the lowest
// number that is free, so the same calls give the same numbers everywhere.
type names struct {
	text   []string // by number; "": free
	uses   []int    // by number
	number map[string]uint32
	free   int // numbers in text that are
}

// take returns the number of a text and counts one use more.
func (n *names) take(text string) uint32 {
	at, ok := n.number[text]
	if !ok {
		at = n.vacant()
		n.text[at] = text
		if n.number == nil {
			n.number = make(map[string]uint32)
		}
		n.number[text] = at
	}
	n.uses[at]++
	return at
}

func (n *names) vacant() uint32 {
	if n.free > 0 {
		for i, text := range n.text {
			if text == "" {
				n.free--
				return uint32(i)
			}
		}
	}
	n.text, n.uses = append(n.text, ""), append(n.uses, 0)
	return uint32(len(n.text) - 1)
}

// give takes a use back; with the last one the number is free.
func (n *names) give(at uint32) {
	n.uses[at]--
	if n.uses[at] == 0 {
		delete(n.number, n.text[at])
		n.text[at] = ""
		n.free++
	}
}

// count is how often a text is used.
func (n *names) count(text string) int {
	if at, ok := n.number[text]; ok {
		return n.uses[at]
	}
	return 0
}
