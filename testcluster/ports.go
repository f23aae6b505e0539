package testcluster

import (
	"context"
	"fmt"
	"net"
)

// port is the address to listen on instead of the usual port.
func (o *Options) port(ctx context.Context, usual int) string {
	const free = "127.0.0.1:0"
	if !o.UsualPorts {
		return free
	}
	// Asked before it is taken, since demo backends share their port with a
	// socket of their own and so would share it with another cluster's too.
	address := fmt.Sprintf("127.0.0.1:%d", usual)
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return free
	}
	_ = l.Close() // it carried nothing
	return address
}
