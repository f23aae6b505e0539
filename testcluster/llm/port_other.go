//go:build !linux && !darwin

package llm

import (
	"context"
	"io"
	"net"
)

func listenShared(ctx context.Context, network, address string) (net.Listener, error) {
	return new(net.ListenConfig).Listen(ctx, network, address)
}

// keepPort keeps nothing here: a port that refuses may be taken by another
// program before it is opened again, which SetFaults then reports.
func keepPort(net.Addr) (io.Closer, error) { return io.NopCloser(nil), nil }
