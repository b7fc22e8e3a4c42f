package peer

import (
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// SkipClock runs at the speed of the real clock, from a start of its own, but
// does not wait: After(d) fires at once and moves the clock by d. So the
// validation delay (15 s) costs nothing in reality and counts in simulated
// time, and the single-node timeout (3 min on this clock) acts on the time the
// computation really takes, like the multi-node one (1 min, a context).
type SkipClock struct {
	clock.RealClock
	mu    sync.Mutex
	start time.Time
	base  time.Time
	extra time.Duration
}

// NewSkipClock starts a clock at base.
func NewSkipClock(base time.Time) *SkipClock { return &SkipClock{start: time.Now(), base: base} }

// Now implements clock.PassiveClock.
func (c *SkipClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.base.Add(time.Since(c.start) + c.extra)
}

// Since implements clock.PassiveClock.
func (c *SkipClock) Since(t time.Time) time.Duration { return c.Now().Sub(t) }

// Step moves the clock.
func (c *SkipClock) Step(d time.Duration) {
	c.mu.Lock()
	c.extra += d
	c.mu.Unlock()
}

// After implements clock.Clock.
func (c *SkipClock) After(d time.Duration) <-chan time.Time {
	c.Step(d)
	ch := make(chan time.Time, 1)
	ch <- c.Now()
	return ch
}
