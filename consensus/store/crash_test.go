package store

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"sync"
	"testing"

	"github.com/hashicorp/raft"
)

// play is what this test binary does as another process: see TestMain.
func play(role string) int {
	p := os.Getenv("STORE_TEST_PATH")
	switch role {
	case "writer":
		return writer(p)
	case "full":
		return fillUp(p)
	case "raft":
		return raftOnSickDisk(p, os.Getenv("STORE_TEST_CURE") == "yes")
	}
	return 2
}

func child(t *testing.T, role, p string, env ...string) *exec.Cmd {
	t.Helper()
	exe, err := os.Executable()
	must(t, err)
	cmd := exec.CommandContext(t.Context(), exe)
	cmd.Env = append(os.Environ(), append(env, "STORE_TEST_ROLE="+role, "STORE_TEST_PATH="+p)...)
	return cmd
}

const crashSlots = 4

// saying is one fixed-size word from the writer to the test: what it is about
// to do, or what was acknowledged to it.
type saying struct {
	What  byte // A appended up to, V voted, P about to remove the prefix up to, S the suffix from, E everything
	Slot  byte
	Value uint64
}

// body makes an entry whose content follows from its place.
func body(slot, index uint64) []byte {
	return bytes.Repeat(fmt.Appendf(nil, "%d:%d ", slot, index), int(index%40)+1)
}

// writer appends, votes and removes in some slots at once until it is killed.
func writer(p string) int {
	st, err := New(Options{Path: p})
	if err == nil {
		err = st.Start(context.Background())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	var mu sync.Mutex
	say := func(what byte, slot, value uint64) {
		mu.Lock()
		defer mu.Unlock()
		_ = binary.Write(os.Stdout, binary.BigEndian, saying{what, byte(slot), value})
	}
	var all sync.WaitGroup
	for n := range uint64(crashSlots) {
		all.Go(func() { err = writeSlot(st, n, say) })
	}
	all.Wait()
	fmt.Fprintln(os.Stderr, err)
	return 1
}

func writeSlot(st *Store, n uint64, say func(byte, uint64, uint64)) error {
	s, err := st.Open(key(n))
	if err != nil {
		return err
	}
	vote, _ := s.GetUint64([]byte("LastVoteTerm"))
	for rand := rand.New(rand.NewPCG(n, vote)); ; {
		first, last := s.lane.span()
		switch dice := rand.IntN(20); {
		case dice == 0 && last > first:
			upto := first + rand.Uint64N(last-first)
			say('P', n, upto)
			err = s.DeleteRange(first, upto)
		case dice == 1 && last > first:
			from := first + 1 + rand.Uint64N(last-first)
			say('S', n, from)
			err = s.DeleteRange(from, last)
		case dice == 2 && rand.IntN(5) == 0:
			say('E', n, 0)
			err = s.DeleteRange(first, last)
		case dice < 6:
			vote++
			if err = s.SetUint64([]byte("LastVoteTerm"), vote); err == nil {
				say('V', n, vote)
			}
		default:
			var es []*raft.Log
			for i := last + 1; i <= last+1+rand.Uint64N(9); i++ {
				es = append(es, &raft.Log{Index: i, Term: 1, Data: body(n, i)})
			}
			if err = s.StoreLogs(es); err == nil {
				say('A', n, es[len(es)-1].Index)
			}
		}
		if err != nil {
			return err
		}
	}
}

// ledger is what the test knows of a slot: what must be there after a crash.
type ledger struct {
	vote        uint64
	first, last uint64 // at least these
	open        bool   // removed, or about to be: nothing need be there, and the new log's begin may be
}

func (l *ledger) hear(w saying) {
	switch w.What {
	case 'A':
		l.last, l.open = w.Value, false
	case 'V':
		l.vote = w.Value
	case 'P':
		l.first = w.Value + 1
	case 'S':
		l.last = w.Value - 1
	case 'E':
		l.first, l.open = 1, true // the next log begins at 1
	}
}

// TestKill kills a process that writes, again and again, and looks each time
// whether what it said it had is there. (The page cache outlives a process: a
// power cut is another matter, and rests on never leaving out an fsync.)
func TestKill(t *testing.T) {
	const rounds = 16
	p := path(t)
	known := make([]ledger, crashSlots)
	for i := range known {
		known[i] = ledger{first: 1, open: true}
	}
	for round := range rounds {
		cmd := child(t, "writer", p)
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		out, err := cmd.StdoutPipe()
		must(t, err)
		must(t, cmd.Start())
		heard, wait := 0, 1+rand.IntN(500)
		for in := bufio.NewReader(out); ; heard++ {
			var w saying
			if err := binary.Read(in, binary.BigEndian, &w); err != nil {
				if err != io.EOF {
					t.Errorf("round %d: %v", round, err)
				}
				break
			}
			known[w.Slot].hear(w)
			if heard == wait {
				must(t, cmd.Process.Kill())
			}
		}
		_ = cmd.Wait()
		if heard <= wait {
			t.Fatalf("round %d: the writer ended by itself: %s", round, stderr.String())
		}
		survey(t, p, known)
	}
}

func survey(t *testing.T, p string, known []ledger) {
	t.Helper()
	st := begin(t, Options{Path: p})
	for n := range known {
		s, k := open(t, st, key(uint64(n))), &known[n]
		first, last := s.lane.span()
		if !k.open && (last == 0 || first > k.first || last < k.last) {
			t.Errorf("slot %d: log is %d to %d, want at least %d to %d", n, first, last, k.first, k.last)
		}
		must(t, s.Each(func(e *raft.Log) error {
			if !bytes.Equal(e.Data, body(uint64(n), e.Index)) {
				return fmt.Errorf("slot %d: entry %d is %q", n, e.Index, e.Data)
			}
			return nil
		}))
		vote, _ := s.GetUint64([]byte("LastVoteTerm"))
		if vote != k.vote && vote != k.vote+1 {
			t.Errorf("slot %d: vote %d, want %d or, not acknowledged, one more", n, vote, k.vote)
		}
		*k = ledger{vote: vote, first: max(first, 1), last: last, open: last == 0}
	}
	stop(t, st)
}
