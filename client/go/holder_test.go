package ringfence_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	ringfence "ringfence.io/client/go"
)

// holderVariable makes this test binary a process that holds a lease: "ENDPOINT NAME".
const holderVariable = "RINGFENCE_TEST_HOLDER"

// holder holds a lease and asks in a tight loop whether it does. Between two questions more than half
// a second means that the process was stopped; it tells what the first answer after that is.
func holder() {
	endpoint, name, _ := strings.Cut(os.Getenv(holderVariable), " ")
	ctx := context.Background()
	client, err := ringfence.Connect(ctx, []string{endpoint})
	if err != nil {
		fmt.Println("failed", err)
		return
	}
	lease, err := client.Lock(ctx, name, ringfence.SessionOptions{TTL: time.Second})
	if err != nil {
		fmt.Println("failed", err)
		return
	}
	fmt.Println("held", lease.Token())
	for before := time.Now(); ; {
		valid := lease.Valid()
		now := time.Now()
		if now.Sub(before) > 500*time.Millisecond {
			fmt.Println("woke", valid)
			for range 200 {
				time.Sleep(10 * time.Millisecond)
				if lease.Valid() {
					fmt.Println("believes again")
				}
			}
			select {
			case <-lease.Lost():
				fmt.Println("lost", lease.Err())
			default:
				fmt.Println("Lost is not closed")
			}
			return
		}
		if !valid {
			fmt.Println("lost while awake", lease.Err())
			return
		}
		before = now
		time.Sleep(100 * time.Microsecond)
	}
}

func TestAHolderThatSleptPastItsLeaseKnowsAtOnce(t *testing.T) {
	cluster := sharedCluster(t)
	name := freshName(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	process := exec.CommandContext(t.Context(), self)
	process.Env = append(os.Environ(), holderVariable+"="+cluster.Endpoints[0]+" "+name)
	process.Stderr = os.Stderr
	stdout, err := process.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := process.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = process.Process.Kill()
		_ = process.Wait()
	}()
	lines := bufio.NewScanner(stdout)
	next := func() string {
		if !lines.Scan() {
			t.Fatal("the holder has ended", lines.Err())
		}
		return lines.Text()
	}
	first := next()
	token, err := strconv.ParseUint(strings.TrimPrefix(first, "held "), 10, 64)
	if err != nil {
		t.Fatal(first)
	}
	time.Sleep(700 * time.Millisecond)
	if err := process.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	client := connect(t, cluster)
	lease := acquire(t, session(t, client, 2*time.Second), name)
	if lease.Token() <= token {
		t.Errorf("token %d behind %d", lease.Token(), token)
	}
	if err := process.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if line := next(); line != "woke false" {
		t.Error(line)
	}
	if line := next(); !strings.HasPrefix(line, "lost no keep-alive") {
		t.Error(line)
	}
	if !lease.Valid() {
		t.Error("what the old holder did when it woke ended its successor's lease:", lease.Err())
	}
}
