// Package supervise runs the components as processes of their own and ends
// them all, in order, whatever happens.
package supervise

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// poll is how often a readiness check is tried.
const poll = 50 * time.Millisecond

// Child is one component, running as a process of its own.
type Child struct {
	Name string
	cmd  *exec.Cmd
	done chan struct{}
	err  error
}

// Pid of the process.
func (c *Child) Pid() int { return c.cmd.Process.Pid }

// Group starts programs that log below one folder.
type Group struct {
	program, logs string
	children      []*Child
	exited        chan *Child
}

// New prepares a group: every component is `program NAME ARG...`, its output goes to logs/NAME.log.
func New(program, logs string) *Group {
	// As many as are ever started: a component that ends must never block on telling so.
	return &Group{program: program, logs: logs, exited: make(chan *Child, 16)}
}

// Start runs one component.
func (g *Group) Start(name string, args ...string) error {
	out, err := os.Create(filepath.Join(g.logs, name+".log"))
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	defer out.Close()
	cmd := exec.Command(g.program, append([]string{name}, args...)...)
	cmd.Stdout, cmd.Stderr = out, out
	// Own process group: Ctrl-C reaches only the supervisor, which stops them in
	// order. Pdeathsig: none is left behind if the supervisor is killed hard.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	c := &Child{Name: name, cmd: cmd, done: make(chan struct{})}
	g.children = append(g.children, c)
	go func() {
		c.err = cmd.Wait()
		close(c.done)
		g.exited <- c
	}()
	return nil
}

// Children in the order of their start.
func (g *Group) Children() []*Child { return g.children }

// Stop ends the components, last started first, each before the next. One that
// has not ended within grace is killed.
func (g *Group) Stop(grace time.Duration) {
	for i := len(g.children) - 1; i >= 0; i-- {
		c := g.children[i]
		// An error means that it has ended already.
		_ = c.cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-c.done:
		case <-time.After(grace):
			_ = c.cmd.Process.Kill()
			<-c.done
		}
	}
}

// WaitFor polls check until it passes, a component dies, a signal comes or the time is over.
func (g *Group) WaitFor(stop <-chan os.Signal, limit time.Duration, check func() error) error {
	end := time.After(limit)
	for {
		err := check()
		if err == nil {
			return nil
		}
		select {
		case c := <-g.exited:
			return fmt.Errorf("%s ended while starting: %v%s", c.Name, c.err, g.lastLine(c))
		case <-stop:
			return errors.New("stopped while starting")
		case <-end:
			return fmt.Errorf("not ready after %s: %w", limit, err)
		case <-time.After(poll):
		}
	}
}

// Run waits for a signal (no error) or for the first component that ends by itself (an error).
func (g *Group) Run(stop <-chan os.Signal) error {
	select {
	case <-stop:
		return nil
	case c := <-g.exited:
		return fmt.Errorf("%s ended by itself: %v%s", c.Name, c.err, g.lastLine(c))
	}
}

// lastLine is the last line that a dead component logged: most often its reason.
func (g *Group) lastLine(c *Child) string {
	b, err := os.ReadFile(filepath.Join(g.logs, c.Name+".log"))
	if err != nil || len(b) == 0 {
		return ""
	}
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	return "\n" + lines[len(lines)-1]
}
