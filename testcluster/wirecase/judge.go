package wirecase

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"time"
)

// outcome is all that was seen of one run.
type outcome struct {
	began   time.Time
	sent    []byte
	client  Seen
	backend []exchange
}

// faults collects why a result does not hold.
type faults []string

func (f *faults) add(format string, args ...any) { *f = append(*f, fmt.Sprintf(format, args...)) }

// judge finds one accepted result that holds in all its parts. A malformed
// response fails in every case.
func (c *Case) judge(o outcome) error {
	failed := &Failure{Case: *c, outcome: o, Malformed: malformed(o.client)}
	for _, r := range c.Accept {
		var f faults
		r.Client.judge(o, &f)
		r.Backend.judge(o, &f)
		if len(f) == 0 && len(failed.Malformed) == 0 {
			return nil
		}
		failed.Missed = append(failed.Missed, Missed{Result: r.Name, Why: f})
	}
	return failed
}

func malformed(s Seen) []string {
	found := slices.Clone(s.Defects)
	if s.head {
		found = append(found, "bytes that are no complete response head")
	}
	for _, m := range s.Finals {
		for _, i := range m.Interim {
			found = append(found, i.Defects...)
		}
		found = append(found, m.Defects...)
	}
	for _, i := range s.Interim {
		found = append(found, i.Defects...)
	}
	return found
}

func (w ClientWant) judge(o outcome, f *faults) {
	s := o.client
	if w.ClosedWithoutResponse && (len(s.Finals)+len(s.Interim) > 0 || s.head || s.Ended == "") {
		f.add("closed_without_response: %s, connection %s", statuses(s), ended(s))
	}
	if w.Statuses != nil && !slices.Equal(w.Statuses, statuses(s)) {
		f.add("statuses: got %v, want %v", statuses(s), w.Statuses)
	}
	if w.Closed != nil && *w.Closed != (s.Ended != "") {
		f.add("closed: want %v, connection %s", *w.Closed, ended(s))
	}
	for _, b := range w.WireNot {
		if bytes.Contains(s.Raw, []byte(b)) {
			f.add("wire_not: %q came", b)
		}
	}
	if w.After101 != nil && (!s.tunnel() || string(s.After101) != string(*w.After101)) {
		f.add("after_101: got %q behind %v, want %q", s.After101, statuses(s), *w.After101)
	}
	if !w.wantsResponse() {
		return
	}
	if len(s.Finals) == 0 {
		f.add("no final response came")
		return
	}
	w.judgeFirst(&s.Finals[0], o.began, f)
}

// wantsResponse tells whether a part is about the first final response.
func (w ClientWant) wantsResponse() bool {
	return w.Status != nil || w.Interim != nil || w.NoInterim || w.Version != "" || w.Body != nil ||
		w.Complete != nil || w.BodyStartsWithinMS > 0 || w.After101 != nil || w.HeaderWant.any()
}

func (w ClientWant) judgeFirst(m *Message, began time.Time, f *faults) {
	if w.Status != nil && !slices.ContainsFunc(w.Status, func(p string) bool { return isStatus(m.Status, p) }) {
		f.add("status: got %d, want %v", m.Status, w.Status)
	}
	var interim []int
	for _, i := range m.Interim {
		interim = append(interim, i.Status)
	}
	if w.Interim != nil && !slices.Equal(w.Interim, interim) {
		f.add("interim: got %v, want %v", interim, w.Interim)
	}
	if w.NoInterim && len(interim) > 0 {
		f.add("no_interim: got %v", interim)
	}
	if w.Version != "" && w.Version != m.Version {
		f.add("version: got %q, want %q", m.Version, w.Version)
	}
	if w.Complete != nil && (*w.Complete && !m.Complete || !*w.Complete && !m.Cut) {
		f.add("complete: want %v, got complete %v, cut off %v", *w.Complete, m.Complete, m.Cut)
	}
	judgeBody(m, w.Body, f)
	judgeStart(m, began, w.BodyStartsWithinMS, f)
	w.HeaderWant.judge(m, f)
}

// isStatus matches one pattern: a status, or a class such as 4xx, in which a
// 404 has no part: that is what a misrouted request gets.
func isStatus(status int, pattern string) bool {
	if class, ok := strings.CutSuffix(pattern, "xx"); ok {
		return fmt.Sprint(status/100) == class && status != 404
	}
	return fmt.Sprint(status) == pattern
}

// tunnel tells whether the connection left HTTP.
func (s *Seen) tunnel() bool {
	return len(s.Finals) > 0 && s.Finals[len(s.Finals)-1].Status == 101
}

func statuses(s Seen) []string {
	list := []string{}
	for _, m := range s.Finals {
		list = append(list, fmt.Sprint(m.Status))
	}
	return list
}

func ended(s Seen) string {
	if s.Ended == "" {
		return "open"
	}
	return "ended by " + s.Ended
}
