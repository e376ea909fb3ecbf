package main

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// shares are the partitions that one member of a group holds.
type shares struct {
	mutex sync.Mutex
	held  map[int32]bool
	lost  map[int32]bool
}

func newShares() *shares {
	return &shares{held: map[int32]bool{}, lost: map[int32]bool{}}
}

func (s *shares) add(_ context.Context, _ *kgo.Client, given map[string][]int32) {
	s.change(given, func(partition int32) { s.held[partition] = true })
}

func (s *shares) remove(_ context.Context, _ *kgo.Client, taken map[string][]int32) {
	s.change(taken, func(partition int32) {
		delete(s.held, partition)
		s.lost[partition] = true
	})
}

func (s *shares) change(changed map[string][]int32, each func(int32)) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	for _, partitions := range changed {
		for _, partition := range partitions {
			each(partition)
		}
	}
}

func (s *shares) count() int {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return len(s.held)
}

// numbers are the partitions that it holds, in order.
func (s *shares) numbers() []int32 {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return slices.Sorted(maps.Keys(s.held))
}

// losses counts the partitions that were ever taken away.
func (s *shares) losses() int {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return len(s.lost)
}

// kept counts the partitions that were never taken away: a cooperative member keeps what it need not give.
func (s *shares) kept() int {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return len(s.held) - len(s.lost)
}

func until(ctx context.Context, ready func() bool) error {
	for !ready() {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
	}
	return nil
}
