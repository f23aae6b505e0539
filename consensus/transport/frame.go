package transport

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
)

// Calls and feeds are carried in frames, integers big-endian:
//
//	u32 length of the body, tag u8, id u64, time u32, body
//
// id pairs an answer with its question, and counts the messages of a feed; time
// is how many ms a question may take.
const frameHead = 17

type tag uint8

const (
	tagAsk     tag = iota + 1
	tagAnswer      // the body is the answer
	tagFailed      // the body says why the service failed
	tagRefused     // time is a Code, the body says why
	tagOpen        // the first of a feed, from its reader
	tagMessage
	tagBeat // nothing to say, still here
)

type frame struct {
	tag  tag
	id   uint64
	time uint32
	body []byte
}

func (f frame) append(b []byte) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(len(f.body)))
	b = append(b, byte(f.tag))
	b = binary.BigEndian.AppendUint64(b, f.id)
	b = binary.BigEndian.AppendUint32(b, f.time)
	return append(b, f.body...)
}

// sizeError is a frame over the limit; its body is still unread.
type sizeError struct{ size, limit int }

func (e *sizeError) Error() string {
	return fmt.Sprintf("a message of %d bytes, the limit is %d", e.size, e.limit)
}

// readFrame's body is fresh memory, which the caller keeps. The head is
// returned with a sizeError, too.
func readFrame(r *bufio.Reader, limit int) (frame, error) {
	var head [frameHead]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return frame{}, err
	}
	f := frame{
		tag:  tag(head[4]),
		id:   binary.BigEndian.Uint64(head[5:]),
		time: binary.BigEndian.Uint32(head[13:]),
	}
	n := int(binary.BigEndian.Uint32(head[:]))
	if f.tag < tagAsk || f.tag > tagBeat {
		return frame{}, fmt.Errorf("a frame of unknown tag %d", f.tag)
	}
	if n > limit {
		return f, &sizeError{n, limit}
	}
	body, err := io.ReadAll(io.LimitReader(r, int64(n))) // grows as bytes come: a length alone takes no memory
	if err == nil && len(body) < n {
		err = io.ErrUnexpectedEOF
	}
	f.body = body
	return f, err
}
