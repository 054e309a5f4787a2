package pebblex

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
)

func TestCommitterPassesEveryItemOnceAndInOrder(t *testing.T) {
	const writers, each = 16, 500
	last := make([]int, writers)
	var total int
	c := NewCommitter(CommitterConfig[[2]int]{Queue: 8, MaxItems: 10, Commit: func(items [][2]int) {
		if len(items) == 0 || len(items) > 10 {
			t.Errorf("a batch of %d items", len(items))
		}
		for _, it := range items {
			total++
			if it[1] != last[it[0]]+1 {
				t.Errorf("writer %d: item %d after %d", it[0], it[1], last[it[0]])
			}
			last[it[0]] = it[1]
		}
	}})
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for i := range each {
				if err := c.Submit(t.Context(), [2]int{w, i + 1}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	c.Close()
	if total != writers*each {
		t.Errorf("%d items committed, want %d", total, writers*each)
	}
}

// TestCommitterGathersWhileItCommits holds the first commit until all others
// have queued up: they must come as few large batches, cut at both bounds.
func TestCommitterGathersWhileItCommits(t *testing.T) {
	for _, tc := range []struct {
		name               string
		maxItems, maxBytes int
		sizes              []int
		want               [][]int
	}{
		{"one batch", 100, 0, []int{1, 2, 3, 4}, [][]int{{1}, {2, 3, 4}}},
		{"item bound", 2, 0, []int{1, 2, 3, 4, 5, 6}, [][]int{{1}, {2, 3}, {4, 5}, {6}}},
		{"byte bound", 100, 10, []int{1, 4, 6, 1, 9, 1}, [][]int{{1}, {4, 6}, {1, 9}, {1}}},
		{"byte bound exceeded by one", 100, 9, []int{1, 4, 6, 1, 9, 1}, [][]int{{1}, {4}, {6, 1}, {9}, {1}}},
		{"one item over the bound", 100, 5, []int{1, 50, 2, 60}, [][]int{{1}, {50}, {2}, {60}}},
		{"bounds below one", -1, 0, []int{1, 2}, [][]int{{1}, {2}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				release := make(chan struct{})
				var got [][]int
				c := NewCommitter(CommitterConfig[int]{
					Queue: len(tc.sizes), MaxItems: tc.maxItems, MaxBytes: tc.maxBytes,
					Size: func(n int) int { return n },
					Commit: func(items []int) {
						<-release
						got = append(got, slices.Clone(items))
					},
				})
				for i, n := range tc.sizes {
					if err := c.Submit(t.Context(), n); err != nil {
						t.Fatal(err)
					}
					if i == 0 {
						synctest.Wait() // the first item is being committed
					}
				}
				close(release)
				c.Close()
				if !slices.EqualFunc(got, tc.want, slices.Equal) {
					t.Errorf("batches %v, want %v", got, tc.want)
				}
			})
		})
	}
}

func TestCommitterRefusesWhatItWillNotCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		var got []int
		c := NewCommitter(CommitterConfig[int]{Queue: 1, MaxItems: 1, Commit: func(items []int) {
			<-release
			got = append(got, items...)
		}})
		for i := range 2 { // one being committed, one queued
			if err := c.Submit(t.Context(), i); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		ctx, cancel := context.WithCancel(t.Context())
		refused := make(chan error, 2)
		go func() { refused <- c.Submit(ctx, 2) }()
		synctest.Wait()
		cancel()
		if err := <-refused; !errors.Is(err, context.Canceled) {
			t.Errorf("full queue, cancelled: %v", err)
		}
		go func() { refused <- c.Submit(t.Context(), 3) }()
		synctest.Wait()
		go c.Close()
		if err := <-refused; !errors.Is(err, ErrClosed) {
			t.Errorf("full queue, closing: %v, want ErrClosed", err)
		}
		close(release)
		c.Close()
		if err := c.Submit(t.Context(), 4); !errors.Is(err, ErrClosed) {
			t.Errorf("after close: %v, want ErrClosed", err)
		}
		if !slices.Equal(got, []int{0, 1}) {
			t.Errorf("committed %v, want the two accepted items", got)
		}
	})
}

func TestCommitterCloseRacesWithSubmit(t *testing.T) {
	for range 200 {
		var committed atomic.Int64
		c := NewCommitter(CommitterConfig[int]{Queue: 2, MaxItems: 3, Commit: func(items []int) {
			committed.Add(int64(len(items)))
		}})
		var accepted atomic.Int64
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for {
					if err := c.Submit(t.Context(), 1); err != nil {
						return
					}
					accepted.Add(1)
				}
			})
		}
		wg.Go(c.Close)
		wg.Wait()
		if committed.Load() != accepted.Load() {
			t.Fatalf("accepted %d, committed %d", accepted.Load(), committed.Load())
		}
	}
}

func BenchmarkCommitter(b *testing.B) {
	c := NewCommitter(CommitterConfig[chan<- struct{}]{Queue: 1024, MaxItems: 1000, Commit: func(items []chan<- struct{}) {
		for _, done := range items {
			done <- struct{}{}
		}
	}})
	defer c.Close()
	b.RunParallel(func(pb *testing.PB) {
		done := make(chan struct{}, 1)
		for pb.Next() {
			if err := c.Submit(b.Context(), done); err != nil {
				b.Error(err)
			}
			<-done
		}
	})
}
