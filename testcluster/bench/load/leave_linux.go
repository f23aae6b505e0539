package load

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"
)

// Leave measures how long after a client has gone the backend's connection is
// closed. Its clients are plain sockets: milliseconds are what matters here.
type Leave struct {
	Target    netip.AddrPort
	MidStream bool // leave after the first event; else while the backend is silent, before the head
	Count     int
}

// never stands for a connection that was not closed while we waited.
const never = time.Second

// Run starts Count requests, lets their clients go one by one, and returns how
// long each backend connection outlived its client, at most one second.
func (x Leave) Run(ctx context.Context, b *Backend) (Histogram, error) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	var delay Histogram
	if x.Count > maxNotes {
		return delay, fmt.Errorf("leave %d times: at most %d", x.Count, maxNotes)
	}
	clients := make([]net.Conn, 0, x.Count)
	defer func() {
		for _, c := range clients {
			c.Close() // again for those that left, harmless
		}
	}()
	for id := range x.Count {
		c, err := x.begin(ctx, b, uint32(id))
		if err != nil {
			return delay, fmt.Errorf("request %d that is to be left: %w", id, err)
		}
		clients = append(clients, c)
	}
	left := make([]int64, x.Count)
	for id, c := range clients {
		left[id] = b.clock.now()
		c.Close()
	}
	return delay, x.collect(ctx, b, left, &delay)
}

// begin returns once the request is in the phase to be left.
func (x Leave) begin(ctx context.Context, b *Backend, id uint32) (net.Conn, error) {
	c, err := new(net.Dialer).DialContext(ctx, "tcp4", x.Target.String())
	if err != nil {
		return nil, err
	}
	if err := x.enter(ctx, b, c, id); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

func (x Leave) enter(ctx context.Context, b *Backend, c net.Conn, id uint32) error {
	target := fmt.Sprintf("/hold?id=%d", id)
	if x.MidStream {
		target = streamQuery(id, time.Hour, 150, true, true)
	}
	if _, err := c.Write(requestHead("GET", target, "")); err != nil {
		return err
	}
	select {
	case n := <-b.notes:
		if n.ID != id || n.Gone {
			return fmt.Errorf("backend noted %+v instead of its arrival", n)
		}
	case <-ctx.Done():
		return errors.New("request did not arrive at the backend")
	}
	if x.MidStream {
		return readFirstEvent(c, id)
	}
	return nil
}

func readFirstEvent(c net.Conn, id uint32) error {
	_ = c.SetReadDeadline(time.Now().Add(5 * time.Second))
	var a answer
	e := &events{stream: id, log: &eventLog{form: newEvent(150)}}
	for p := make([]byte, 4096); e.next == 0; {
		n, err := c.Read(p)
		if err != nil {
			return fmt.Errorf("read the first event: %w", err)
		}
		if _, err := a.feed(p[:n], e, 0); err != nil {
			return err
		}
	}
	return nil
}

func (x Leave) collect(ctx context.Context, b *Backend, left []int64, delay *Histogram) error {
	timeout := time.NewTimer(never)
	defer timeout.Stop()
	for delay.Total() < x.Count {
		select {
		case n := <-b.notes:
			if !n.Gone || int(n.ID) >= len(left) {
				return fmt.Errorf("backend noted %+v instead of an end", n)
			}
			delay.Add(min(never, time.Duration(n.at-left[n.ID])))
		case <-ctx.Done():
			return ctx.Err()
		case <-timeout.C:
			for delay.Total() < x.Count {
				delay.Add(never)
			}
		}
	}
	return nil
}
