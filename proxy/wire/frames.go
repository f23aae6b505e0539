package wire

import (
	"crypto/rand"
	"errors"
)

// ErrFrame is a WebSocket frame whose length has the top bit set (RFC 6455
// section 5.2): where it ends cannot be told, nor where any later one does.
var ErrFrame = errors.New("broken WebSocket frame length")

type frameState uint8

const (
	frameStart frameState = iota
	frameLength
	frameLongLength // the 2 or 8 bytes that follow a length of 126 or 127
	frameBody       // masking key and payload
	frameBroken
)

// Frames finds the boundaries of WebSocket frames in one direction of a tunnel
// whose bytes come in any pieces. The zero value stands at a boundary. It never
// looks into payloads, and takes whatever has a clear end: masked or not,
// reserved bits and opcodes (extensions are the peers' business), lengths in
// more bytes than they need, long control frames. Its word is only asked for to
// end a tunnel between two frames; judging them is up to the peers.
type Frames struct {
	state  frameState
	digits uint8  // bytes of the length to come
	mask   uint8  // bytes of the masking key
	left   uint64 // bytes of the frame to come; the length while it is read
	closed bool
}

// Scan goes over p and returns how many bytes belong to the frame that is under
// way, or that begins with p; done tells that its end is among them. After
// ErrFrame it only fails.
func (f *Frames) Scan(p []byte) (n int, done bool, err error) {
	for n < len(p) && f.state != frameBroken {
		if f.state == frameBody {
			step := min(f.left, uint64(len(p)-n))
			n += int(step)
			f.left -= step
		} else {
			f.step(p[n])
			n++
		}
		if f.state == frameBody && f.left == 0 {
			f.state = frameStart
			return n, true, nil
		}
	}
	if f.state == frameBroken {
		return n, false, ErrFrame
	}
	return n, false, nil
}

// Pass goes over all of p, however many frames it touches.
func (f *Frames) Pass(p []byte) error {
	for len(p) > 0 {
		n, _, err := f.Scan(p)
		if err != nil {
			return err
		}
		p = p[n:]
	}
	return nil
}

// AtBoundary tells whether no frame is under way.
func (f *Frames) AtBoundary() bool { return f.state == frameStart }

// Left is how many bytes are missing up to the next boundary; while the length
// of a frame is still being read, the least that can be.
func (f *Frames) Left() uint64 {
	switch f.state {
	case frameLength:
		return 1
	case frameLongLength:
		return uint64(f.digits) + uint64(f.mask)
	}
	return f.left
}

// Closed tells whether a close frame has begun: after it this direction brings
// no other, and none may be added (RFC 6455 section 5.5.1).
func (f *Frames) Closed() bool { return f.closed }

// step takes one byte of a frame's head.
func (f *Frames) step(b byte) {
	switch f.state {
	case frameStart:
		f.closed = f.closed || b&0xf == 8
		f.left, f.state = 0, frameLength
	case frameLength:
		f.mask = b >> 7 * 4
		switch b & 0x7f {
		case 126:
			f.digits, f.state = 2, frameLongLength
		case 127:
			f.digits, f.state = 8, frameLongLength
		default:
			f.left, f.state = uint64(b&0x7f)+uint64(f.mask), frameBody
		}
	case frameLongLength:
		if f.digits == 8 && b >= 0x80 {
			f.state, f.left = frameBroken, 0
			return
		}
		f.left = f.left<<8 | uint64(b)
		if f.digits--; f.digits == 0 {
			f.left += uint64(f.mask)
			f.state = frameBody
		}
	}
}

// CloseFrame is a WebSocket close frame with a status code, such as 1001 for
// going away. What goes to a server has to be masked, what goes to a client
// must not be.
func CloseFrame(code int, masked bool) []byte {
	if code < 1000 || code > 4999 {
		panic("BUG: not a code that a close frame may carry")
	}
	frame := []byte{0x88, 2, byte(code >> 8), byte(code)}
	if !masked {
		return frame
	}
	var key [4]byte
	_, _ = rand.Read(key[:]) // never fails
	return []byte{0x88, 0x82, key[0], key[1], key[2], key[3], frame[2] ^ key[0], frame[3] ^ key[1]}
}
