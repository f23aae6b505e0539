package consensus

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// An entry holds many commands: version u8, count uvarint, then each command's
// length uvarint and bytes. No command opens a leader's term.
const (
	entryVersion = 1
	maxCommands  = 256
	maxBatch     = 64 << 10 // bytes of commands in an entry; a larger one goes alone
	maxCommand   = 1 << 20
)

var errEntry = errors.New("entry cannot be decoded")

func encodeEntry(commands [][]byte) []byte {
	size := 4
	for _, c := range commands {
		size += len(c) + 4
	}
	b := append(make([]byte, 0, size), entryVersion)
	b = binary.AppendUvarint(b, uint64(len(commands)))
	for _, c := range commands {
		b = binary.AppendUvarint(b, uint64(len(c)))
		b = append(b, c...)
	}
	return b
}

// decodeEntry's commands are parts of b.
func decodeEntry(b []byte) ([][]byte, error) {
	if len(b) == 0 || b[0] != entryVersion {
		return nil, fmt.Errorf("%w: version %d, this program knows %d; was it written by a newer one?", errEntry, first(b), entryVersion)
	}
	count, b, err := takeUvarint(b[1:])
	if err != nil || count > maxCommands {
		return nil, fmt.Errorf("%w: %d commands", errEntry, count)
	}
	commands := make([][]byte, 0, count)
	for range count {
		var n uint64
		if n, b, err = takeUvarint(b); err != nil || n > uint64(len(b)) {
			return nil, fmt.Errorf("%w: command %d is cut short", errEntry, len(commands))
		}
		commands = append(commands, b[:n:n])
		b = b[n:]
	}
	if len(b) > 0 {
		return nil, fmt.Errorf("%w: %d bytes too many", errEntry, len(b))
	}
	return commands, nil
}

func takeUvarint(b []byte) (uint64, []byte, error) {
	v, n := binary.Uvarint(b)
	if n <= 0 {
		return 0, nil, errEntry
	}
	return v, b[n:], nil
}

func first(b []byte) int {
	if len(b) == 0 {
		return -1
	}
	return int(b[0])
}
