package leaseapi

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// kubectl finds one: that of `cargo xtask kubernetes`, or one on the path.
func kubectl(t *testing.T) string {
	t.Helper()
	cached := os.Getenv("RINGFENCE_KUBERNETES_CACHE")
	if cached == "" {
		if cache, err := os.UserCacheDir(); err == nil {
			cached = filepath.Join(cache, "ringfence", "kubernetes")
		}
	}
	places := []string{filepath.Join(os.Getenv("KUBEBUILDER_ASSETS"), "kubectl")}
	built, _ := filepath.Glob(filepath.Join(cached, "v*", "kubectl")) // Only a wrong pattern is an error.
	for _, place := range append(places, built...) {
		if _, err := os.Stat(place); err == nil && filepath.IsAbs(place) {
			return place
		}
	}
	place, err := exec.LookPath("kubectl")
	if err != nil {
		without(t, "no kubectl: build it with cargo xtask kubernetes, or put one on the path")
	}
	return place
}

func TestKubectl(t *testing.T) {
	t.Parallel()
	s := newStage(t, sharedCluster(t))
	folder := t.TempDir()
	write := func(name, text string) string {
		t.Helper()
		path := filepath.Join(folder, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	config := s.cluster.kubeconfig(t, s.cluster.nodes[0].host, s.cluster.token("kubectl"))
	binary := kubectl(t)
	command := func(arguments ...string) *exec.Cmd {
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		t.Cleanup(cancel)
		command := exec.CommandContext(ctx, binary, arguments...)
		command.Env = append(os.Environ(), "HOME="+folder, "KUBECONFIG="+config)
		return command
	}
	// run runs kubectl, and says what it says where that is not what is expected.
	run := func(want string, arguments ...string) string {
		t.Helper()
		told, err := command(arguments...).CombinedOutput()
		if err != nil || !strings.Contains(string(told), want) {
			t.Errorf("kubectl %s: %v, without %q:\n%s", strings.Join(arguments, " "), err, want, told)
		}
		return string(told)
	}
	a := s.elect(t, "a", settings{})
	first := s.leads(t, a, 5*time.Second)

	watching := command("get", "lease", "--watch", "--no-headers")
	out, err := watching.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := watching.Start(); err != nil {
		t.Fatal(err)
	}
	lines := make(chan string, 1000)
	go func() {
		defer close(lines)
		for scanner := bufio.NewScanner(out); scanner.Scan(); {
			lines <- scanner.Text()
		}
	}()

	told := run(s.name, "get", "leases")
	if !strings.Contains(told, "HOLDER") || !strings.Contains(told, "AGE") {
		t.Error(told)
	}
	run("holderIdentity: a", "get", "lease", s.name, "--output", "yaml")
	run(s.name, "get", "leases", "--all-namespaces", "--output", "wide")
	run("lease.coordination.k8s.io/"+s.name, "get", "lease", s.name, "--output", "name")
	run("Holder Identity:", "describe", "lease", s.name)
	run("annotated", "annotate", "lease", s.name, "example.com/why=because")
	run("labeled", "label", "lease", s.name, "team=one")
	run(s.name, "get", "lease", "--selector", "team=one")
	run("because", "get", "lease", s.name, "--output", `jsonpath={.metadata.annotations.example\.com/why}`)
	run("coordination.k8s.io", "api-resources")
	run("coordination.k8s.io/v1", "api-versions")
	run("Server Version", "version")
	run("holderIdentity", "explain", "lease.spec")

	applied := s.name + "-applied"
	manifest := func(color string) string {
		return write("lease.yaml", fmt.Sprintf(`
apiVersion: coordination.k8s.io/v1
kind: Lease
metadata: {name: %s, labels: {color: %s}}
`, applied, color))
	}
	run("created", "apply", "--filename", manifest("red"))
	run("unchanged", "apply", "--filename", manifest("red"))
	run("configured", "apply", "--filename", manifest("blue"))
	run("serverside-applied", "apply", "--server-side", "--force-conflicts", "--filename", manifest("green"))
	run("green", "get", "lease", applied, "--output", "jsonpath={.metadata.labels.color}")
	run("server dry run", "apply", "--dry-run=server", "--server-side", "--force-conflicts", "--filename", manifest("black"))
	run("green", "get", "lease", applied, "--output", "jsonpath={.metadata.labels.color}")
	run("replaced", "replace", "--filename", manifest("white"))
	run("patched", "patch", "lease", applied, "--patch", `{"metadata":{"labels":{"color":"grey"}}}`)
	run("deleted", "delete", "lease", applied)
	if told, err := command("get", "lease", applied).CombinedOutput(); err == nil || !strings.Contains(string(told), "NotFound") {
		t.Errorf("%v: %s", err, told)
	}

	// Nothing of it disturbed the election.
	s.stays(t, first, leaseDuration)
	var seen []string
	for len(lines) > 0 {
		seen = append(seen, <-lines)
	}
	all := strings.Join(seen, "\n")
	if strings.Count(all, s.name+" ") < 3 || !strings.Contains(all, applied) {
		t.Errorf("kubectl get --watch:\n%s", all)
	}
	_ = watching.Process.Kill()
	_ = watching.Wait()
	run("deleted", "delete", "lease", s.name)
	select {
	case <-a.ended:
	case <-time.After(nextMax):
		t.Error("a goes on after its lease was deleted")
	}
}
