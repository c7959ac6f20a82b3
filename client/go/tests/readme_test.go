package tests

import (
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

func TestTheQuickStartRefusesAStaleWrite(t *testing.T) {
	command := exec.CommandContext(within(t, 5*time.Minute), "go", "run", "./quickstart")
	command.Env = append(os.Environ(), "RINGFENCE_ENDPOINTS="+strings.Join(sharedCluster(t).Endpoints, ","))
	told, err := command.CombinedOutput()
	if err != nil || !strings.Contains(string(told), "refused: STALE_TOKEN") {
		t.Fatalf("%v\n%s", err, told)
	}
}

// The lines of the README that show the client's use stand in the quick start, too.
func TestTheReadmeShowsTheQuickStart(t *testing.T) {
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile("quickstart/main.go")
	if err != nil {
		t.Fatal(err)
	}
	_, shown, found := strings.Cut(string(readme), "<!-- quick start -->\n```go\n")
	shown, _, closed := strings.Cut(shown, "\n```")
	if !found || !closed {
		t.Fatal("the README has no quick start")
	}
	for line := range strings.SplitSeq(shown, "\n") {
		if line = strings.TrimSpace(line); !strings.Contains(string(program), line) {
			t.Errorf("the README shows %q, which is not in quickstart/main.go", line)
		}
	}
}
