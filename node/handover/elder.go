package handover

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"syscall"
)

// Elder is the process that hands over, as its heir sees it.
type Elder struct {
	*talk
	Lock    *os.File // the data directory's, which it shares
	Sockets *Sockets
}

// Inherit finds out whether this process is an heir; nil: it is not. It takes the
// variable that says so out of the environment.
func Inherit() (*Elder, error) {
	value := os.Getenv(variable)
	if value == "" {
		return nil, nil
	}
	if err := os.Unsetenv(variable); err != nil {
		return nil, err
	}
	if value != strconv.Itoa(talkFD) {
		return nil, fmt.Errorf("%s is %q; it is for starling itself to set", variable, value)
	}
	syscall.CloseOnExec(lockFD)
	t, err := newTalk(talkFD)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), sayTime)
	defer cancel()
	offer, err := t.hear(ctx, wordOffer)
	e := &Elder{talk: t, Lock: os.NewFile(lockFD, "lock")}
	switch {
	case err != nil:
		return nil, fmt.Errorf("hear what is handed over: %w", err)
	case offer.Version != version:
		return nil, e.Fail(fmt.Errorf("the process before hands over by version %d, this one takes %d; stop it, and start this one", offer.Version, version))
	case len(offer.Sockets) > maxSockets:
		return nil, e.Fail(fmt.Errorf("%d sockets are handed over, the limit is %d", len(offer.Sockets), maxSockets))
	}
	for i := range offer.Sockets {
		offer.Sockets[i].fd = firstFD + i
		syscall.CloseOnExec(firstFD + i)
	}
	e.Sockets = NewSockets(offer.Sockets)
	return e, nil
}

// Take asks for the directory, and returns when it is this process's, with what else
// the one before leaves; nil: nothing.
func (e *Elder) Take(ctx context.Context) (estate []byte, err error) {
	w, err := e.ask(ctx, word{Word: wordTake, PID: os.Getpid(), Takes: true}, wordYours)
	return w.Estate, err
}

// Ready says that this process serves, by which version of the program, and returns
// when it is to take connections in.
func (e *Elder) Ready(ctx context.Context, program string) error {
	_, err := e.ask(ctx, word{Word: wordReady, Program: program}, wordGo)
	if err == nil {
		e.close()
	}
	return err
}

// ask says a word and waits for another. Who is gone has left everything, unless its
// last word was that all is undone.
func (e *Elder) ask(ctx context.Context, say word, due string) (answer word, err error) {
	unsaid := e.say(say)
	answer, err = e.hear(ctx, due)
	if unsaid != nil && err == nil {
		err = unsaid // the answer is to nothing that was asked
	}
	if errors.Is(err, ErrGone) {
		return word{}, nil
	}
	return answer, err
}

// Fail tells the elder why this process does not take over, and returns that.
func (e *Elder) Fail(why error) error {
	_ = e.say(word{Word: wordFailed, Why: why.Error()}) // unsaid, it is seen by this one's end
	e.close()
	return why
}

func isReset(err error) bool {
	return errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}
