package handover

import (
	"fmt"
	"net"
	"strings"
)

// Notify tells a supervisor how this process is, as systemd would have it
// (sd_notify(3)); socket is what NOTIFY_SOCKET says, "" for nobody.
func Notify(socket string, lines ...string) error {
	if socket == "" {
		return nil
	}
	c, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: socket, Net: "unixgram"}) // a leading @ is an abstract one
	if err != nil {
		return fmt.Errorf("tell the supervisor: %w", err)
	}
	defer c.Close()
	if _, err := c.Write([]byte(strings.Join(lines, "\n"))); err != nil {
		return fmt.Errorf("tell the supervisor: %w", err)
	}
	return nil
}
