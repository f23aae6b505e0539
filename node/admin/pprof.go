package admin

import (
	"bytes"
	"fmt"
	"runtime/pprof"
	"runtime/trace"
	"strings"
	"time"
)

// How long a profile and a trace may run, in seconds. A trace is held in
// memory until it is sent, and may grow by tens of MiB in a second.
const (
	defaultProfile, maxProfile = 30, 60
	defaultTrace, maxTrace     = 1, 5
)

// profiles are what "go tool pprof" and "go tool trace" fetch. net/http/pprof
// has them too, but adds itself to a server that all of the process share.
func (s *Server) profiles() []route {
	return []route{
		{method: "GET", path: "/debug/pprof/", do: s.profileIndex},
		{method: "GET", path: "/debug/pprof/profile", do: s.cpuProfile, query: []string{"seconds"}},
		{method: "GET", path: "/debug/pprof/trace", do: s.trace, query: []string{"seconds"}},
		{method: "GET", path: "/debug/pprof/{name}", do: s.profile, query: []string{"debug"}},
	}
}

func (s *Server) profileIndex(c *call) error {
	c.SetBodyString("profile\ntrace\n" + strings.Join(profileNames(), "\n") + "\n")
	return nil
}

func profileNames() []string {
	var names []string
	for _, p := range pprof.Profiles() {
		names = append(names, p.Name())
	}
	return names
}

func (s *Server) cpuProfile(c *call) error {
	seconds, err := c.number("seconds", defaultProfile, 1, maxProfile)
	if err != nil {
		return err
	}
	var out bytes.Buffer
	if err := pprof.StartCPUProfile(&out); err != nil {
		return refuse(Conflict, "%v; wait until it is done", err) // the process has one
	}
	s.wait(seconds)
	pprof.StopCPUProfile()
	c.putBytes(out.Bytes())
	return nil
}

func (s *Server) trace(c *call) error {
	seconds, err := c.number("seconds", defaultTrace, 1, maxTrace)
	if err != nil {
		return err
	}
	var out bytes.Buffer
	if err := trace.Start(&out); err != nil {
		return refuse(Conflict, "%v; wait until it is done", err)
	}
	s.wait(seconds)
	trace.Stop()
	c.putBytes(out.Bytes())
	return nil
}

func (s *Server) profile(c *call) error {
	name := c.path["name"]
	p := pprof.Lookup(name)
	if p == nil {
		return refuse(NotFound, "there is no profile %q; there are profile, trace, %s", name, strings.Join(profileNames(), ", "))
	}
	debug, err := c.number("debug", 0, 0, 2) // 0 is the form that go tool pprof reads; the others are text
	if err != nil {
		return err
	}
	var out bytes.Buffer
	if err := p.WriteTo(&out, debug); err != nil {
		return fmt.Errorf("profile %s: %w", name, err)
	}
	if debug > 0 {
		c.Response.SetBodyRaw(out.Bytes())
		return nil
	}
	c.putBytes(out.Bytes())
	return nil
}

func (c *call) putBytes(b []byte) {
	c.SetContentType("application/octet-stream")
	c.Response.SetBodyRaw(b)
}

// wait ends early when the server stops.
func (s *Server) wait(seconds int) {
	timer := time.NewTimer(time.Duration(seconds) * time.Second)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-s.ctx.Done():
	}
}
