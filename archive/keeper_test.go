package archive

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/verae/archive/internal/fault"
)

// marks is a keeper whose writes take some time and fail on request.
type marks struct {
	*keeper
	takes  time.Duration
	broken atomic.Bool
	began  []time.Duration // of each write, since the start
	bones  []uint64        // written
	failed int
}

func newMarks() *marks {
	m, start := &marks{}, time.Now()
	m.keeper = newKeeper(markEvery, mark{note: "size 0"}, func(bones []bone, head treeHead) (mark, error) {
		m.began = append(m.began, time.Since(start))
		broken := m.broken.Load()
		time.Sleep(m.takes)
		if broken {
			return mark{}, errDisk
		}
		for _, e := range bones {
			m.bones = append(m.bones, e.seq)
		}
		return mark{head, fmt.Sprint("size ", head.size)}, nil
	}, func(error) { m.failed++ })
	return m
}

// add offers a record.
func (m *marks) add(seq uint64) { m.offer([]bone{{seq: seq}}, treeHead{seq: seq, size: int64(seq)}) }

// TestLaw8TheMarkIsASecondBehindAtMost: at once when it was quiet, then not more
// often than once a second, and never a record later than a second after it.
func TestLaw8TheMarkIsASecondBehindAtMost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMarks()
		for seq := range uint64(26) {
			m.add(seq + 1)
			synctest.Wait()
			if age := m.age(); age > markEvery {
				t.Errorf("a record has been waiting for %s", age)
			}
			time.Sleep(100 * time.Millisecond)
		}
		if err := m.close(); err != nil {
			t.Fatal(err)
		}
		// Close came with all covered by the write at 2.5 s, or writes the rest.
		want := []time.Duration{0, time.Second, 2 * time.Second, 2600 * time.Millisecond}
		if !slices.Equal(m.began, want) {
			t.Errorf("written at %v, want %v", m.began, want)
		}
		if got := m.published.Load(); got.seq != 26 || got.note != "size 26" {
			t.Errorf("published %+v", got)
		}
		for i, seq := range m.bones {
			if seq != uint64(i+1) {
				t.Fatalf("the skeleton was given %v", m.bones)
			}
		}
	})
}

// TestMarkComesAtOnceForWhoAsks: whoever waits does not wait for the second, and
// what comes during a write is in the next.
func TestMarkComesAtOnceForWhoAsks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMarks()
		m.takes = 10 * time.Millisecond
		m.add(1)
		time.Sleep(100 * time.Millisecond)
		m.add(2)
		began := time.Now()
		if note, err := m.await(t.Context(), 2); err != nil || note != "size 2" {
			t.Errorf("%q, %v", note, err)
		}
		if took := time.Since(began); took != m.takes {
			t.Errorf("it took %s", took)
		}
		m.add(3)
		done := make(chan time.Duration)
		ask := func(seq uint64) {
			if _, err := m.await(t.Context(), seq); err != nil {
				t.Error(err)
			}
			done <- time.Since(began)
		}
		began = time.Now()
		go ask(3)
		time.Sleep(m.takes / 2)
		m.add(4)
		go ask(4)
		if first, second := <-done, <-done; first != m.takes || second != 2*m.takes {
			t.Errorf("covered after %s and %s", first, second)
		}
		if note, err := m.await(t.Context(), 1); err != nil || note != "size 4" {
			t.Errorf("what is covered already: %q, %v", note, err)
		}
		if err := m.close(); err != nil {
			t.Fatal(err)
		}
	})
}

// TestMarkThatCanNotBeWritten: it is tried again, puts are refused when it is
// overdue, and all is well when it succeeds.
func TestMarkThatCanNotBeWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMarks()
		m.broken.Store(true)
		m.add(1)
		time.Sleep(5 * time.Second)
		m.add(2)
		time.Sleep(5 * time.Second)
		if err := m.overdue(); err != nil {
			t.Errorf("after ten seconds: %v", err)
		}
		time.Sleep(time.Second)
		if err := m.overdue(); fault.CodeOf(err) != "MARK_STALE" || !fault.Is(err, fault.Transient) {
			t.Errorf("after eleven: %v", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		if _, err := m.await(ctx, 2); !fault.Is(err, fault.Transient) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a put that waits: %v", err)
		}
		if _, err := m.await(t.Context(), 2); fault.CodeOf(err) != "MARK_STALE" {
			t.Errorf("a put that would wait for ever: %v", err)
		}
		synctest.Wait()
		if m.failed < 10 || m.published.Load().note != "size 0" {
			t.Errorf("%d failures told, published %s", m.failed, m.published.Load().note)
		}
		synctest.Wait()
		m.broken.Store(false)
		time.Sleep(time.Second)
		synctest.Wait()
		if err := m.overdue(); err != nil || m.age() != 0 || m.published.Load().note != "size 2" || !slices.Equal(m.bones, []uint64{1, 2}) {
			t.Errorf("mended: %v, published %+v with %v", err, m.published.Load(), m.bones)
		}
		m.broken.Store(true)
		m.add(3)
		if err := m.close(); !errors.Is(err, errDisk) {
			t.Errorf("closed with %v", err)
		}
		if _, err := m.await(t.Context(), 3); fault.CodeOf(err) != "CLOSED" {
			t.Errorf("a put that waits for a closed keeper: %v", err)
		}
	})
}
