package gossip

import (
	"encoding/binary"
	"errors"
)

// memberlist writes its messages as maps of names to scalars in msgpack. What
// follows reads just that: no lists, no nesting, nothing longer than its input.

var errShape = errors.New("it is no message of memberlist's")

const maxFields = 16 // of a message; memberlist's own have at most 8

// field is one entry of a message: a number, or bytes.
type field struct {
	name  string
	num   uint64
	bytes []byte
	isNum bool
}

// readFields takes one map off b.
func readFields(b []byte) (fields []field, rest []byte, err error) {
	n, b, err := mapSize(b)
	if err != nil {
		return nil, nil, err
	}
	for range n {
		name, after, err := readScalar(b)
		if err != nil || name.isNum || len(name.bytes) > 32 {
			return nil, nil, errShape
		}
		value, after, err := readScalar(after)
		if err != nil {
			return nil, nil, err
		}
		value.name = string(name.bytes)
		for _, f := range fields {
			if f.name == value.name {
				return nil, nil, errShape // two readers may take different ones
			}
		}
		fields, b = append(fields, value), after
	}
	return fields, b, nil
}

func mapSize(b []byte) (n int, rest []byte, err error) {
	switch {
	case len(b) > 0 && b[0]&0xf0 == 0x80:
		n, rest = int(b[0]&0x0f), b[1:]
	case len(b) > 2 && b[0] == 0xde:
		n, rest = int(binary.BigEndian.Uint16(b[1:])), b[3:]
	default:
		return 0, nil, errShape
	}
	if n > maxFields {
		return 0, nil, errShape
	}
	return n, rest, nil
}

// readScalar takes nil, a truth value, a whole number, text or bytes off b.
func readScalar(b []byte) (f field, rest []byte, err error) {
	if len(b) == 0 {
		return f, nil, errShape
	}
	first, b := b[0], b[1:]
	switch {
	case first < 0x80 || first >= 0xe0: // small numbers; those below zero have no place here but are harmless as large ones
		return field{isNum: true, num: uint64(int64(int8(first)))}, b, nil
	case first&0xe0 == 0xa0:
		return readBytes(b, uint64(first&0x1f))
	}
	switch first {
	case 0xc0:
		return field{}, b, nil
	case 0xc2, 0xc3:
		return field{isNum: true, num: uint64(first & 1)}, b, nil
	case 0xcc, 0xd0:
		return readNumber(b, 1)
	case 0xcd, 0xd1:
		return readNumber(b, 2)
	case 0xce, 0xd2:
		return readNumber(b, 4)
	case 0xcf, 0xd3:
		return readNumber(b, 8)
	case 0xc4, 0xd9:
		return readLong(b, 1)
	case 0xc5, 0xda:
		return readLong(b, 2)
	case 0xc6, 0xdb:
		return readLong(b, 4)
	}
	return f, nil, errShape
}

func readNumber(b []byte, size int) (field, []byte, error) {
	if len(b) < size {
		return field{}, nil, errShape
	}
	var wide [8]byte
	copy(wide[8-size:], b[:size])
	return field{isNum: true, num: binary.BigEndian.Uint64(wide[:])}, b[size:], nil
}

func readLong(b []byte, size int) (field, []byte, error) {
	n, b, err := readNumber(b, size)
	if err != nil {
		return field{}, nil, err
	}
	return readBytes(b, n.num)
}

func readBytes(b []byte, n uint64) (field, []byte, error) {
	if n > uint64(len(b)) {
		return field{}, nil, errShape
	}
	return field{bytes: b[:n]}, b[n:], nil
}
