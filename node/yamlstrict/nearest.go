package yamlstrict

import "strings"

// didYouMean says which of the known names a wrong one was meant to be: the
// nearest, or all of them if none is near.
func didYouMean(name string, known []string) (advice, near string) {
	if near = Nearest(name, known); near != "" {
		return "did you mean " + near + "?", near
	}
	return "write one of " + strings.Join(known, ", "), ""
}

// Nearest is the known name that the fewest typing slips make of name; "" if
// none is so near that it was probably meant.
func Nearest(name string, known []string) string {
	if len(name) > maxShown {
		return ""
	}
	best, least := "", max(2, len(name)/3)+1
	for _, k := range known {
		if d := distance(strings.ToLower(name), strings.ToLower(k)); d < least {
			best, least = k, d
		}
	}
	return best
}

// distance counts the letters to add, drop, change or swap with their
// neighbour to make b of a.
func distance(a, b string) int {
	var before []int // the row above the row above
	above := make([]int, len(b)+1)
	for j := range above {
		above[j] = j
	}
	for i := range len(a) {
		row := make([]int, len(b)+1)
		row[0] = i + 1
		for j := range len(b) {
			change := above[j]
			if a[i] != b[j] {
				change++
			}
			row[j+1] = min(change, above[j+1]+1, row[j]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
		before, above = above, row
	}
	return above[len(b)]
}
