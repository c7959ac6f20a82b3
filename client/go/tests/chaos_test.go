package tests

import (
	"bufio"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestUnderFaultsNoPromiseIsBroken has `ringfence chaos` disturb and judge a client in Go like those in
// Rust.
func TestUnderFaultsNoPromiseIsBroken(t *testing.T) {
	client := filepath.Join(t.TempDir(), "chaosclient")
	if said, err := exec.Command("go", "build", "-o", client, "./chaosclient").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, said)
	}
	report := filepath.Join(t.TempDir(), "report")
	run := exec.CommandContext(t.Context(), ringfenceBinary(t), "chaos", "--nodes", "3", "--clients", "4",
		"--duration", "20s", "--faults", "kill,pause", "--no-control", "--report", report, "--client", client)
	said, err := run.CombinedOutput()
	// 2: nothing was broken, but so short a run has not shown all that a whole one shows.
	if code := run.ProcessState.ExitCode(); code != 0 && code != 2 {
		t.Fatalf("%v: %s", err, said)
	}
	history, err := os.Open(filepath.Join(report, "history.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	defer history.Close()
	beliefs := 0
	for lines := bufio.NewScanner(history); lines.Scan(); {
		var record struct{ Belief *struct{ Client int } }
		if err := json.Unmarshal(lines.Bytes(), &record); err != nil {
			t.Fatal(err)
		}
		if record.Belief != nil && record.Belief.Client == 4 {
			beliefs++
		}
	}
	t.Logf("%d beliefs; %s", beliefs, said)
	if beliefs <= 5 {
		t.Errorf("%d beliefs: %s", beliefs, said)
	}
}
