package wire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"testing"
)

// wsFrame builds a frame whose length is written in 0, 2 or 8 further bytes.
func wsFrame(first byte, masked bool, wide int, size int) []byte {
	var mask byte
	if masked {
		mask = 0x80
	}
	frame := []byte{first}
	switch wide {
	case 0:
		frame = append(frame, mask|byte(size))
	case 2:
		frame = binary.BigEndian.AppendUint16(append(frame, mask|126), uint16(size))
	case 8:
		frame = binary.BigEndian.AppendUint64(append(frame, mask|127), uint64(size))
	}
	if masked {
		frame = append(frame, 1, 2, 3, 4)
	}
	return append(frame, bytes.Repeat([]byte{0x88}, size)...)
}

func TestFrames(t *testing.T) {
	tests := []struct {
		name  string
		frame []byte
	}{
		{"empty", wsFrame(0x81, false, 0, 0)},
		{"empty, masked", wsFrame(0x81, true, 0, 0)},
		{"short", wsFrame(0x82, false, 0, 125)},
		{"short, masked", wsFrame(0x82, true, 0, 125)},
		{"16 bits", wsFrame(0x82, false, 2, 126)},
		{"16 bits, masked", wsFrame(0x02, true, 2, 65535)},
		{"64 bits", wsFrame(0x80, false, 8, 65536)},
		{"64 bits, masked", wsFrame(0x80, true, 8, 70000)},
		{"16 bits for 0", wsFrame(0x82, false, 2, 0)},
		{"64 bits for 3", wsFrame(0x82, true, 8, 3)},
		{"long ping", wsFrame(0x89, false, 2, 200)},
		{"reserved bits and opcode", wsFrame(0xff, true, 0, 5)},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for _, piece := range []int{1, 2, 3, 7, len(tt.frame)} {
				var f Frames
				for round := range 2 {
					passFrame(t, &f, tt.frame, piece)
					if t.Failed() {
						t.Fatalf("in pieces of %d, frame %d", piece, round)
					}
				}
			}
		})
	}
}

// passFrame hands f one frame in pieces, the next one's first byte behind it.
func passFrame(t *testing.T, f *Frames, frame []byte, piece int) {
	t.Helper()
	for at := 0; at < len(frame); {
		if f.AtBoundary() != (at == 0) || at > 0 && f.Left() == 0 || f.Left() > uint64(len(frame)-at) {
			t.Errorf("at %d of %d: boundary %v, left %d", at, len(frame), f.AtBoundary(), f.Left())
		}
		p := frame[at:min(at+piece, len(frame))]
		last := at+len(p) == len(frame)
		if last {
			p = append(p[:len(p):len(p)], 0x81)
		}
		n, done, err := f.Scan(p)
		if err != nil || done != last || at+n > len(frame) || n == 0 {
			t.Fatalf("at %d: %d bytes, done %v, %v", at, n, done, err)
		}
		at += n
	}
	if !f.AtBoundary() || f.Left() != 0 {
		t.Errorf("behind it: boundary %v, left %d", f.AtBoundary(), f.Left())
	}
}

func TestFramesLeft(t *testing.T) {
	tests := []struct {
		name  string
		start []byte
		want  uint64
	}{
		{"nothing", nil, 0},
		{"opcode", []byte{0x81}, 1},
		{"16 bits to come", []byte{0x81, 126}, 2},
		{"64 bits and a key to come", []byte{0x81, 0xff}, 12},
		{"a part of the length", []byte{0x81, 0xff, 0, 0, 0}, 9},
		{"key and payload", []byte{0x81, 0x85}, 9},
		{"largest", append([]byte{0x82, 127, 0x7f}, bytes.Repeat([]byte{0xff}, 7)...), 1<<63 - 1},
		{"largest, masked", append([]byte{0x82, 255, 0x7f}, bytes.Repeat([]byte{0xff}, 7)...), 1<<63 + 3},
	}
	for _, tt := range tests {
		var f Frames
		if err := f.Pass(tt.start); err != nil || f.Left() != tt.want || f.AtBoundary() != (tt.want == 0) {
			t.Errorf("%s: left %d, boundary %v, %v; want %d", tt.name, f.Left(), f.AtBoundary(), err, tt.want)
		}
	}
}

func TestFramesBroken(t *testing.T) {
	broken := []byte{0x82, 127, 0x80, 0, 0, 0, 0, 0, 0, 1, 'x'}
	var f Frames
	err := f.Pass(join(wsFrame(0x81, true, 0, 3), broken))
	if !errors.Is(err, ErrFrame) || f.AtBoundary() {
		t.Errorf("%v, boundary %v; want ErrFrame and none", err, f.AtBoundary())
	}
	if n, done, err := f.Scan([]byte{0x81, 0}); n != 0 || done || !errors.Is(err, ErrFrame) {
		t.Errorf("afterwards: %d, %v, %v", n, done, err)
	}
}

func TestFramesClosed(t *testing.T) {
	var f Frames
	if err := f.Pass(join(wsFrame(0x81, false, 0, 3), wsFrame(0x8a, false, 0, 0))); err != nil || f.Closed() {
		t.Fatalf("closed by a text and a pong (payload bytes look like a close): %v", err)
	}
	if err := f.Pass([]byte{0x88}); err != nil || !f.Closed() {
		t.Fatalf("not closed by the first byte of a close frame: %v", err)
	}
}

func TestCloseFrame(t *testing.T) {
	if got := CloseFrame(1001, false); !bytes.Equal(got, []byte{0x88, 2, 0x03, 0xe9}) {
		t.Errorf("to a client: % x", got)
	}
	got := CloseFrame(1001, true)
	if len(got) != 8 || got[0] != 0x88 || got[1] != 0x82 || got[6]^got[2] != 0x03 || got[7]^got[3] != 0xe9 {
		t.Errorf("to a server: % x", got)
	}
	for _, masked := range []bool{false, true} {
		var f Frames
		if n, done, err := f.Scan(CloseFrame(1001, masked)); !done || err != nil || !f.Closed() {
			t.Errorf("masked %v: not one frame: %d, %v", masked, n, err)
		}
	}
}

func TestFramesDoNotAllocate(t *testing.T) {
	p := wsFrame(0x82, true, 8, 1000)
	if n := testing.AllocsPerRun(100, func() { var f Frames; _ = f.Pass(p) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

// FuzzFrames compares with a reading of the whole input at once, by the
// picture in RFC 6455 section 5.2.
func FuzzFrames(f *testing.F) {
	f.Add([]byte("\x81\x02hi"), uint8(1))
	f.Add([]byte("\x81\x82\x01\x02\x03\x04hi\x88\x00"), uint8(3))
	f.Add(wsFrame(0x82, true, 2, 130), uint8(7))
	f.Add(wsFrame(0x82, false, 8, 70), uint8(2))
	f.Add([]byte("\x82\x7f\x80\x00\x00\x00\x00\x00\x00\x00"), uint8(4))
	f.Add([]byte("\x82\xff\x7f\xff\xff\xff\xff\xff\xff\xff\x00\x00"), uint8(200))
	f.Fuzz(func(t *testing.T, p []byte, piece uint8) {
		var scan Frames
		var ends []int
		var err error
		for at := 0; at < len(p) && err == nil; {
			n, done, e := scan.Scan(p[at:min(at+int(piece)+1, len(p))])
			if at += n; done {
				ends = append(ends, at)
			}
			err = e
		}
		want, broken, left := frameEnds(p)
		if len(ends) != len(want) || (err != nil) != broken {
			t.Fatalf("ends at %v, %v; want %v, broken %v", ends, err, want, broken)
		}
		for i := range ends {
			if ends[i] != want[i] {
				t.Fatalf("ends at %v; want %v", ends, want)
			}
		}
		if err == nil && (scan.AtBoundary() != (left == 0) || scan.Left() > left) {
			t.Fatalf("boundary %v, left %d; want %d", scan.AtBoundary(), scan.Left(), left)
		}
	})
}

// frameEnds lists where frames end in p; left is what the last one misses, an
// incomplete head counted as if zeros followed.
func frameEnds(p []byte) (ends []int, broken bool, left uint64) {
	for at := uint64(0); at < uint64(len(p)); {
		var head [14]byte
		copy(head[:], p[at:])
		size, rest := uint64(2), uint64(head[1]&0x7f)
		switch rest {
		case 126:
			size, rest = 4, uint64(binary.BigEndian.Uint16(head[2:]))
		case 127:
			size, rest = 10, binary.BigEndian.Uint64(head[2:])
		}
		if rest>>63 != 0 {
			return ends, true, 0
		}
		if head[1]&0x80 != 0 {
			size += 4
		}
		if at += size + rest; at > uint64(len(p)) {
			return ends, false, at - uint64(len(p))
		}
		ends = append(ends, int(at))
	}
	return ends, false, 0
}
