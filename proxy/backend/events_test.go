package backend

import (
	"context"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
)

func TestEvents(t *testing.T) {
	var all Events
	all.Publish(Event{Reason: "nobody listens"})
	a, b := all.Subscribe(), all.Subscribe()
	all.Publish(Event{Reason: "1"})
	all.Publish(Event{Reason: "2"})
	for _, s := range []*Subscription{a, b} {
		got, lost, err := s.Next(t.Context())
		if err != nil || lost != 0 || len(got) != 2 || got[0].Reason != "1" || got[1].Reason != "2" {
			t.Errorf("got %v, %d lost, %v", got, lost, err)
		}
	}
	a.Close()
	a.Close()
	all.Publish(Event{Reason: "3"})
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if got, _, err := a.Next(gone); err == nil {
		t.Errorf("a closed subscription got %v", got)
	}
	if got, _, err := b.Next(t.Context()); err != nil || len(got) != 1 {
		t.Errorf("the other got %v, %v", got, err)
	}
}

// Who does not read loses the oldest, is told how many, and holds up nobody.
func TestSlowSubscriber(t *testing.T) {
	var all Events
	s := all.Subscribe()
	defer s.Close()
	for i := range maxUnread + 7 {
		all.Publish(Event{Reason: strconv.Itoa(i)})
	}
	got, lost, err := s.Next(t.Context())
	if err != nil || lost != 7 || len(got) != maxUnread || got[0].Reason != "7" {
		t.Errorf("%d events from %q on, %d lost, %v", len(got), got[0].Reason, lost, err)
	}
	all.Publish(Event{Reason: "next"})
	if got, lost, _ := s.Next(t.Context()); lost != 0 || len(got) != 1 || got[0].Reason != "next" {
		t.Errorf("then %v, %d lost", got, lost)
	}
}

func TestNextWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var all Events
		s := all.Subscribe()
		defer s.Close()
		var got []Event
		var reading sync.WaitGroup
		reading.Go(func() { got, _, _ = s.Next(t.Context()) })
		synctest.Wait()
		if got != nil {
			t.Fatalf("got %v before there was anything", got)
		}
		all.Publish(Event{Reason: "x"})
		reading.Wait()
		if len(got) != 1 {
			t.Errorf("got %v", got)
		}
	})
}
