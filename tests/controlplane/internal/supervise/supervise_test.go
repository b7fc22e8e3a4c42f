package supervise

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

const limit = 20 * time.Second

// group runs `sh -c`: the component's "name" is sh's own -c flag.
func group(t *testing.T) *Group {
	t.Helper()
	return New("/bin/sh", t.TempDir())
}

func TestADeadComponentIsNamedWithItsLastLine(t *testing.T) {
	g := group(t)
	defer g.Stop(limit)
	if err := g.Start("-c", "echo first; echo the reason >&2; exit 3"); err != nil {
		t.Fatal(err)
	}
	err := g.WaitFor(make(chan os.Signal), limit, func() error { return errors.New("not yet") })
	if err == nil || !strings.Contains(err.Error(), "exit status 3") || !strings.HasSuffix(err.Error(), "\nthe reason") {
		t.Fatalf("got %v", err)
	}
}

func TestWaitingEndsWithTheLastErrorOfTheCheck(t *testing.T) {
	g := group(t)
	err := g.WaitFor(make(chan os.Signal), time.Millisecond, func() error { return errors.New("connection refused") })
	if err == nil || !strings.Contains(err.Error(), "connection refused") {
		t.Fatalf("got %v", err)
	}
}

func TestASignalStopsTheRunWithoutError(t *testing.T) {
	g := group(t)
	stop := make(chan os.Signal, 1)
	if err := g.Start("-c", "exec sleep 600"); err != nil {
		t.Fatal(err)
	}
	stop <- syscall.SIGTERM
	if err := g.Run(stop); err != nil {
		t.Fatal(err)
	}
	g.Stop(limit)
	pid := g.Children()[0].Pid()
	if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("process %d is still there: %v", pid, err)
	}
}

func TestOneThatIgnoresTheSignalIsKilled(t *testing.T) {
	g := group(t)
	ready := filepath.Join(t.TempDir(), "ready")
	if err := g.Start("-c", "trap '' TERM; : >"+ready+"; while :; do sleep 600; done"); err != nil {
		t.Fatal(err)
	}
	if err := g.WaitFor(make(chan os.Signal), limit, func() error { _, err := os.Stat(ready); return err }); err != nil {
		t.Fatal(err)
	}
	g.Stop(100 * time.Millisecond)
	if err := g.Run(make(chan os.Signal)); err == nil || !strings.Contains(err.Error(), "killed") {
		t.Errorf("got %v", err)
	}
}
