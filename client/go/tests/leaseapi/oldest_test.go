package leaseapi

import (
	"bufio"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// oldest is a process of the oldest client-go that this Go builds: 0.17, of Kubernetes 1.17.
type oldest struct {
	command *exec.Cmd
	lines   chan string
}

func startOldest(t *testing.T, program string, s *stage, identity string) *oldest {
	t.Helper()
	c := s.cluster
	command := exec.Command(program, c.nodes[0].host, filepath.Join(c.folder, "cert.pem"), c.token(identity), "shop", s.name, identity)
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = command.Process.Kill()
		_ = command.Wait()
	})
	o := &oldest{command: command, lines: make(chan string, 16)}
	go func() {
		for scanner := bufio.NewScanner(out); scanner.Scan(); {
			o.lines <- scanner.Text()
		}
	}()
	return o
}

func (o *oldest) says(t *testing.T, expected string, limit time.Duration) {
	t.Helper()
	select {
	case line := <-o.lines:
		if line != expected {
			t.Fatalf("%q, expected %q", line, expected)
		}
	case <-time.After(limit):
		t.Fatalf("not within %v: %q", limit, expected)
	}
}

// It acquires, renews, gives back and takes over, beside an elector of this day.
func TestTheOldestClientGoElects(t *testing.T) {
	t.Parallel()
	program := filepath.Join(t.TempDir(), "oldest")
	build := exec.Command("go", "build", "-o", program, ".")
	build.Dir = "oldest"
	if said, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, said)
	}
	s := newStage(t, sharedCluster(t))
	a := startOldest(t, program, s, "old-a")
	a.says(t, "leads", 10*time.Second)
	first := s.stays(t, s.lease(t), leaseDuration)
	if holder(first) != "old-a" {
		t.Fatal(first)
	}
	b := startOldest(t, program, s, "old-b")
	first = s.stays(t, first, leaseDuration)
	if err := a.command.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	a.says(t, "ended", 5*time.Second)
	b.says(t, "leads", nextMax+5*time.Second)
	second := s.lease(t)
	if holder(second) != "old-b" || token(t, second) <= token(t, first) {
		t.Fatal(first, second)
	}
	// A newer one takes over from the dead.
	if err := b.command.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if third := s.leads(t, s.elect(t, "new", settings{}), nextMax+5*time.Second); token(t, third) <= token(t, second) {
		t.Fatal(second, third)
	}
}
