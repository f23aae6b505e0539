package shards

import "time"

// recent is when sessions were moved for the asking, in two halves: the older one is
// forgotten as a whole when the newer is full, or old enough. The zero value knows of
// none.
type recent struct {
	newer, older map[Key]time.Duration
	began        time.Duration // the newer half
}

const (
	maxRecent  = 65536            // sessions in a half
	recentKept = 10 * time.Minute // a half takes in what comes, at most
)

func (r *recent) last(session Key) (at time.Duration, known bool) {
	if at, known = r.newer[session]; !known {
		at, known = r.older[session]
	}
	return at, known
}

// note takes one in. false: there is no place, for all are of the last rebindRest.
func (r *recent) note(session Key, now time.Duration) bool {
	if _, known := r.newer[session]; !known && (len(r.newer) >= maxRecent || now-r.began >= recentKept) {
		if now-r.began < rebindRest {
			return false
		}
		r.older, r.newer, r.began = r.newer, nil, now
	}
	if r.newer == nil {
		r.newer = make(map[Key]time.Duration)
	}
	r.newer[session] = now
	return true
}
