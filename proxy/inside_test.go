package proxy

import "time"

// SetPartTime has WebSockets end within another time when a drain is over, for tests
// that look at how and not at how long.
func (s *Server) SetPartTime(d time.Duration) { s.partTime = d }
