package wirecase

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Failure is a case none of whose results held.
type Failure struct {
	Case      Case
	Malformed []string // what is wrong with the proxy's responses in any case
	Missed    []Missed // one for each accepted result

	outcome outcome
}

// Missed is why one accepted result does not hold.
type Missed struct {
	Result string
	Why    []string
}

// isLate tells whether all that keeps a result from holding is when a body began: that
// does not mend itself.
func isLate(err error) bool {
	var f *Failure
	return errors.As(err, &f) && len(f.Malformed) == 0 && slices.ContainsFunc(f.Missed, func(m Missed) bool {
		return !slices.ContainsFunc(m.Why, func(why string) bool { return !strings.HasPrefix(why, "body_starts_within_ms:") })
	})
}

// Error tells everything: what the case is about, why each result does not
// hold, and the bytes both ways.
func (f *Failure) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "wire case %s (%s): %s [%s]\n", f.Case.ID, f.Case.Level, f.Case.Reason, f.Case.Clause)
	for _, d := range f.Malformed {
		fmt.Fprintf(&b, "  malformed response: %s\n", d)
	}
	for _, m := range f.Missed {
		fmt.Fprintf(&b, "  not %q: %s\n", m.Result, strings.Join(m.Why, "\n    and: "))
	}
	fmt.Fprintf(&b, "  client sent:  %s\n", quoted(f.outcome.sent))
	for i, x := range f.outcome.backend {
		got := x.got
		if len(got) == 0 {
			got = x.msg.Raw
		}
		fmt.Fprintf(&b, "  backend got (%d):  %s\n  backend sent (%d): %s\n", i+1, quoted(got), i+1, quoted(x.sent))
	}
	fmt.Fprintf(&b, "  client got:   %s (%s)", quoted(f.outcome.client.Raw), ended(f.outcome.client))
	return b.String()
}

// quoted shows bytes, the middle left out where they are many.
func quoted(p []byte) string {
	const ends = 600
	if len(p) <= 2*ends {
		return strconv.QuoteToASCII(string(p))
	}
	return fmt.Sprintf("%s … %d bytes … %s", strconv.QuoteToASCII(string(p[:ends])), len(p)-2*ends, strconv.QuoteToASCII(string(p[len(p)-ends:])))
}
