package leaseapi

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/rest"
)

// sleeperVariable makes this test binary an elector of its own: "HOST CA NAME TOKEN RELEASE".
const sleeperVariable = "RINGFENCE_TEST_LEASE_ELECTOR"

func runSleeper() error {
	settings := strings.Fields(os.Getenv(sleeperVariable))
	release, err := strconv.ParseBool(settings[4])
	if err != nil {
		return err
	}
	config := &rest.Config{Host: "https://" + settings[0], BearerToken: settings[3],
		TLSClientConfig: rest.TLSClientConfig{CAFile: settings[1]}}
	le, err := newElector(config, settings[2], "sleeper", release, func(ctx context.Context) {
		fmt.Println("leads")
		<-ctx.Done()
		fmt.Println("ended")
	})
	if err != nil {
		return err
	}
	le.Run(context.Background())
	time.Sleep(time.Second) // For the last words.
	return nil
}

// A process is stopped while it leads, and goes on when its successor has come and gone: it ends its
// term, and is not granted a second one inside of it.
func TestASleeperEndsItsTerm(t *testing.T) {
	t.Parallel()
	for _, release := range []bool{false, true} {
		t.Run(fmt.Sprintf("release=%v", release), func(t *testing.T) {
			t.Parallel()
			testSleeper(t, release)
		})
	}
}

func testSleeper(t *testing.T, release bool) {
	s := newStage(t, sharedCluster(t))
	s.name = strings.ReplaceAll(s.name, "=", "-")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	command := exec.Command(self)
	command.Env = append(os.Environ(), fmt.Sprintf("%s=%s %s %s %s %v", sleeperVariable, s.cluster.nodes[0].host,
		filepath.Join(s.cluster.folder, "cert.pem"), s.name, s.cluster.token(s.name), release))
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
	lines := make(chan string, 100)
	go func() {
		defer close(lines)
		for scanner := bufio.NewScanner(out); scanner.Scan(); {
			lines <- scanner.Text()
		}
	}()
	says := func(want string, limit time.Duration) {
		t.Helper()
		select {
		case line := <-lines:
			if line != want {
				t.Fatalf("%q instead of %q", line, want)
			}
		case <-time.After(limit):
			t.Fatalf("the elector does not say %q within %v", want, limit)
		}
	}
	says("leads", 10*time.Second)
	first := s.lease(t)
	if err := command.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	b := s.elect(t, "b", settings{release: true})
	second := s.leads(t, b, nextMax)
	s.resign(t, b)
	if err := command.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	woke := time.Now()
	for ended := false; !ended; time.Sleep(20 * time.Millisecond) {
		if now := s.lease(t); holder(now) != "" {
			t.Fatalf("%v after it woke it holds token %d inside of the term with token %d (the successor's: %d)",
				time.Since(woke), token(t, now), token(t, first), token(t, second))
		}
		select {
		case line := <-lines:
			if line != "ended" {
				t.Fatal(line)
			}
			ended = true
		default:
		}
		if time.Since(woke) > renewDeadline+2*time.Second {
			t.Fatal("the elector believes in its old term")
		}
	}
}
