package wirecase

import (
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
)

// sockets counts the proxy's ends of client connections that are not closed.
// Other tests open descriptors of this process meanwhile, so those tell
// nothing; the kernel's table does.
func (r *rig) sockets() int {
	r.t.Helper()
	_, port, err := net.SplitHostPort(r.addr)
	if err != nil {
		r.t.Fatal(err)
	}
	n, err := strconv.Atoi(port)
	if err != nil {
		r.t.Fatal(err)
	}
	table, err := os.ReadFile("/proc/net/tcp")
	if err != nil {
		r.t.Fatal(err)
	}
	held := 0
	for line := range strings.Lines(string(table)) {
		f := strings.Fields(line)
		// Columns: number, local address, remote address, state, queues, timer, retransmits, uid, timeout, inode (0: no descriptor).
		if len(f) > 9 && strings.HasSuffix(f[1], fmt.Sprintf(":%04X", n)) && f[3] != "0A" && f[9] != "0" {
			held++
		}
	}
	return held
}
