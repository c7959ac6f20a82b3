package leaseapi

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"ringfence.io/client/go/tests/internal/controlplane"
)

const (
	// holdersVariable is how many electors TestLoad has lead, each its own lease, with the durations that
	// are client-go's standard. Without it there is no such test: it takes minutes.
	holdersVariable = "RINGFENCE_LEASE_HOLDERS"
	// takeoversMax is how many of them die, each with a second candidate.
	takeoversMax = 100
	// loadTime is how long their renewals are measured.
	loadTime = time.Minute
	// startsMax is how many begin at once.
	startsMax = 20
)

// usage is what a process has used so far.
type usage struct {
	processor time.Duration
	memory    int // bytes, at present
	passed    int // bytes, to all files and sockets
}

func usageOf(t *testing.T, command *exec.Cmd) usage {
	t.Helper()
	folder := fmt.Sprintf("/proc/%d/", command.Process.Pid)
	stat, err := os.ReadFile(folder + "stat")
	if err != nil {
		t.Fatal(err)
	}
	// Behind the name, which may have spaces.
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	ticks := number(t, fields[11]) + number(t, fields[12])
	return usage{
		processor: time.Duration(ticks) * time.Second / 100,
		memory:    lineOf(t, folder+"status", "VmRSS:") << 10,
		passed:    lineOf(t, folder+"io", "wchar:"),
	}
}

func number(t *testing.T, text string) int {
	t.Helper()
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// lineOf is the number behind a key in a file of /proc.
func lineOf(t *testing.T, path, key string) int {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if rest, found := strings.CutPrefix(line, key); found {
			return number(t, strings.Fields(rest)[0])
		}
	}
	t.Fatalf("%s has no line %s", path, key)
	return 0
}

// served is who serves the electors of TestLoad.
type served struct {
	hosts     []string
	config    func(l *link, pod string) *rest.Config
	processes map[string]*exec.Cmd
}

// byRingfence is three nodes.
func byRingfence(t *testing.T) *served {
	c, err := startCluster(3)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.stop)
	s := &served{hosts: c.hosts(), processes: make(map[string]*exec.Cmd)}
	s.config = func(l *link, pod string) *rest.Config { return c.config(l, c.token(pod)) }
	for _, n := range c.nodes {
		s.processes[n.name] = n.command
	}
	return s
}

// byKubernetes is an API server in front of three members of etcd. All electors are an administrator, whom it
// does not keep waiting for the sake of others.
func byKubernetes(t *testing.T) *served {
	if _, err := controlplane.Assets(); err != nil {
		without(t, err.Error())
	}
	plane := controlplane.Start(t, controlplane.Options{Members: 3})
	plane.Apply(t, "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop}\n")
	s := &served{hosts: []string{strings.TrimPrefix(plane.Address, "https://")}, processes: plane.Processes}
	s.config = func(l *link, _ string) *rest.Config {
		config := plane.Config(controlplane.AdminToken)
		config.Dial, config.QPS = l.dial, -1
		return config
	}
	return s
}

// candidate runs an elector with client-go's standard durations.
func (s *served) candidate(t *testing.T, lease, pod string) *elector {
	t.Helper()
	e := &elector{identity: pod, link: newLink(s.hosts...), began: make(chan time.Time, 1), ended: make(chan struct{})}
	config := s.config(e.link, pod)
	config.Timeout = 5 * time.Second // As in every controller manager.
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Error(err)
		return nil
	}
	le, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: &resourcelock.LeaseLock{LeaseMeta: metav1.ObjectMeta{Namespace: "shop", Name: lease},
			Client: client.CoordinationV1(), LockConfig: resourcelock.ResourceLockConfig{Identity: pod}},
		LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 2 * time.Second,
		Callbacks: leaderelection.LeaderCallbacks{OnStoppedLeading: func() {}, OnStartedLeading: func(ctx context.Context) {
			e.began <- time.Now()
			<-ctx.Done()
		}},
	})
	if err != nil {
		t.Error(err)
		return nil
	}
	e.run(t, le)
	return e
}

// TestLoad measures what many electors cost, and how long a takeover takes: of Ringfence, and of what
// electors use otherwise. It fails if an elector that is not disturbed loses its term.
func TestLoad(t *testing.T) {
	text := os.Getenv(holdersVariable)
	if text == "" {
		t.Skip(holdersVariable + " is not set")
	}
	holders := number(t, text)
	t.Run("ringfence", func(t *testing.T) { byRingfence(t).load(t, holders) })
	t.Run("kubernetes", func(t *testing.T) { byKubernetes(t).load(t, holders) })
}

func (s *served) load(t *testing.T, holders int) {
	leading := make([]*elector, holders)
	var starts sync.WaitGroup
	for first := range startsMax {
		starts.Add(1)
		go func() {
			defer starts.Done()
			for i := first; i < holders; i += startsMax {
				leading[i] = s.candidate(t, fmt.Sprintf("load-%d", i), fmt.Sprintf("load-%d-a", i))
				if leading[i] == nil {
					return
				}
				<-leading[i].began
			}
		}()
	}
	starts.Wait()
	if t.Failed() {
		return
	}

	before := make(map[string]usage)
	for name, process := range s.processes {
		before[name] = usageOf(t, process)
	}
	version, disks := s.version(t), onDisks(t)
	began := time.Now()
	time.Sleep(loadTime)
	took := time.Since(began)
	renewals := s.version(t) - version
	t.Logf("%d holders: %.0f renewals a second", holders, float64(renewals)/took.Seconds())
	var all usage
	for _, name := range slices.Sorted(maps.Keys(s.processes)) {
		used := usageOf(t, s.processes[name])
		used.processor -= before[name].processor
		used.passed -= before[name].passed
		used.log(t, name, took, renewals)
		all.processor += used.processor
		all.memory += used.memory
		all.passed += used.passed
	}
	all.log(t, "all", took, renewals)
	t.Logf("disks of this machine: %d bytes a renewal", (onDisks(t)-disks)/renewals)
	for _, e := range leading {
		select {
		case <-e.ended:
			t.Errorf("%s lost its term", e.identity)
		default:
		}
	}
	s.takeovers(t, leading[:min(holders, takeoversMax)])
}

func (u usage) log(t *testing.T, name string, took time.Duration, renewals int) {
	t.Logf("%s: %.1f %% of a processor, %d MB, %d bytes to files and sockets a renewal", name,
		100*u.processor.Seconds()/took.Seconds(), u.memory>>20, u.passed/renewals)
}

// onDisks is how many bytes were written to the disks of this machine so far. What the kernel counts for a
// process are whole folios, of up to a megabyte each.
func onDisks(t *testing.T) int {
	t.Helper()
	disks, err := filepath.Glob("/sys/block/*/device")
	if err != nil || len(disks) == 0 {
		// A virtual disk may have none: those that are not made of others.
		disks, _ = filepath.Glob("/sys/block/vd*/stat")
	}
	sectors := 0
	for _, disk := range disks {
		text, err := os.ReadFile(filepath.Join(filepath.Dir(disk), "stat"))
		if err != nil {
			t.Fatal(err)
		}
		sectors += number(t, strings.Fields(string(text))[6])
	}
	return sectors * 512
}

// version is that of the newest change of any object.
func (s *served) version(t *testing.T) int {
	t.Helper()
	looker, err := kubernetes.NewForConfig(s.config(newLink(s.hosts...), "looker"))
	if err != nil {
		t.Fatal(err)
	}
	list, err := looker.CoordinationV1().Leases("shop").List(within(t, time.Minute), metav1.ListOptions{Limit: 1})
	if err != nil {
		t.Fatal(err)
	}
	return number(t, list.ResourceVersion)
}

// takeovers has holders die, and measures how long their successors take.
func (s *served) takeovers(t *testing.T, dying []*elector) {
	var next []*elector
	for i := range dying {
		next = append(next, s.candidate(t, fmt.Sprintf("load-%d", i), fmt.Sprintf("load-%d-b", i)))
	}
	time.Sleep(5 * time.Second)
	var ends sync.WaitGroup
	times := make([]time.Duration, len(dying))
	for i, e := range dying {
		ends.Add(1)
		go func() {
			defer ends.Done()
			time.Sleep(time.Duration(i) * 20 * time.Millisecond)
			died := time.Now()
			e.link.cut()
			select {
			case led := <-next[i].began:
				times[i] = led.Sub(died)
			case <-time.After(2 * time.Minute):
				t.Errorf("no successor of %s", e.identity)
			}
		}()
	}
	ends.Wait()
	slices.Sort(times)
	at := func(percent int) time.Duration {
		return times[(len(times)-1)*percent/100].Round(10 * time.Millisecond)
	}
	t.Logf("%d takeovers after a death: p50 %v, p99 %v", len(times), at(50), at(99))
}
