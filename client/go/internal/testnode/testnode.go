// Package testnode runs real nodes for tests.
package testnode

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// startMax is how long a cluster may take to be ready.
const startMax = 2 * time.Minute

// Node is a process of a cluster.
type Node struct {
	Name   string `json:"name"`
	Client string `json:"client"`
	PID    int    `json:"pid"`
}

// Cluster is a cluster on loopback, of `ringfence dev`.
type Cluster struct {
	Endpoints []string `json:"endpoints"`
	Nodes     []Node   `json:"nodes"`
	Leader    string   `json:"leader"`

	command *exec.Cmd
	folder  string
}

// Binary is the program to test: RINGFENCE_BIN, or what cargo builds in the repository that this module
// is part of.
var Binary = sync.OnceValues(func() (string, error) {
	if path := os.Getenv("RINGFENCE_BIN"); path != "" {
		absolute, err := filepath.Abs(path)
		if err == nil {
			_, err = os.Stat(absolute)
		}
		if err != nil {
			return "", fmt.Errorf("RINGFENCE_BIN: %w; name the ringfence binary by an absolute path", err)
		}
		return absolute, nil
	}
	_, here, _, _ := runtime.Caller(0)
	root := filepath.Join(filepath.Dir(here), "..", "..", "..", "..")
	build := exec.Command("cargo", "build", "--package", "ringfence", "--bin", "ringfence")
	build.Dir, build.Stdout, build.Stderr = root, os.Stderr, os.Stderr
	fmt.Fprintln(os.Stderr, "RINGFENCE_BIN is not set: cargo build --package ringfence, which takes minutes at first")
	if err := build.Run(); err != nil {
		return "", fmt.Errorf("cargo build: %w; or name a ringfence binary by RINGFENCE_BIN", err)
	}
	target := os.Getenv("CARGO_TARGET_DIR")
	if target == "" {
		target = filepath.Join(root, "target")
	}
	return filepath.Join(target, "debug", "ringfence"), nil
})

// Start starts a cluster and waits until it has a leader. Stop ends it. More arguments are those of
// `ringfence dev`.
func Start(nodes int, more ...string) (*Cluster, error) {
	binary, err := Binary()
	if err != nil {
		return nil, err
	}
	var failures []error
	for range 5 {
		cluster, err := start(binary, nodes, more)
		if err == nil {
			return cluster, nil
		}
		// Another process may have taken one of its ports.
		failures = append(failures, err)
	}
	return nil, errors.Join(failures...)
}

func start(binary string, nodes int, more []string) (*Cluster, error) {
	port, err := freePorts(nodes)
	if err != nil {
		return nil, err
	}
	folder, err := os.MkdirTemp("", "ringfence-go-")
	if err != nil {
		return nil, err
	}
	c := &Cluster{folder: folder}
	c.command = exec.Command(binary, append([]string{"dev", "--json", "--nodes", strconv.Itoa(nodes),
		"--port", strconv.Itoa(port), "--data-dir", filepath.Join(folder, "data")}, more...)...)
	log, err := os.Create(filepath.Join(folder, "dev.log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	c.command.Stderr = log
	stdout, err := c.command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := c.command.Start(); err != nil {
		return nil, err
	}
	ready := make(chan error, 1)
	go func() {
		lines := bufio.NewReader(stdout)
		line, err := lines.ReadBytes('\n')
		if err == nil {
			err = json.Unmarshal(line, c)
		}
		ready <- err
		_, _ = io.Copy(io.Discard, lines)
	}()
	select {
	case err = <-ready:
	case <-time.After(startMax):
		err = fmt.Errorf("no cluster within %v", startMax)
	}
	if err != nil {
		said, _ := os.ReadFile(log.Name())
		c.Stop()
		return nil, fmt.Errorf("ringfence dev: %w\n%s", err, said)
	}
	return c, nil
}

// Stop ends all nodes.
func (c *Cluster) Stop() {
	_ = c.command.Process.Signal(syscall.SIGTERM)
	for _, node := range c.Nodes {
		// One that is stopped does not hear of a SIGTERM.
		_ = syscall.Kill(node.PID, syscall.SIGCONT)
	}
	over := make(chan struct{})
	go func() {
		_ = c.command.Wait()
		close(over)
	}()
	select {
	case <-over:
	case <-time.After(20 * time.Second):
		_ = c.command.Process.Kill()
		for _, node := range c.Nodes {
			_ = syscall.Kill(node.PID, syscall.SIGKILL)
		}
		<-over
	}
	_ = os.RemoveAll(c.folder)
}

// Socket is a node's own socket, by which its administrators come.
func (c *Cluster) Socket(node string) string {
	return filepath.Join(c.folder, "data", node, "admin.sock")
}

// Command runs a command of an administrator by the first node's socket, and returns what it prints.
func (c *Cluster) Command(ctx context.Context, arguments ...string) (string, error) {
	return Command(ctx, append([]string{"--endpoints", "unix:" + c.Socket(c.Nodes[0].Name)}, arguments...)...)
}

// Command runs ringfence and returns what it prints.
func Command(ctx context.Context, arguments ...string) (string, error) {
	binary, err := Binary()
	if err != nil {
		return "", err
	}
	command := exec.CommandContext(ctx, binary, arguments...)
	var complaint strings.Builder
	command.Stderr = &complaint
	told, err := command.Output()
	if err != nil {
		return "", fmt.Errorf("ringfence %s: %w: %s", strings.Join(arguments, " "), err, complaint.String())
	}
	return strings.TrimSpace(string(told)), nil
}

// LeaderNow asks the nodes who leads.
func (c *Cluster) LeaderNow(ctx context.Context) (*Node, error) {
	binary, err := Binary()
	if err != nil {
		return nil, err
	}
	for {
		for i := range c.Nodes {
			ask := exec.CommandContext(ctx, binary, "cluster", "status", "--json", "--timeout", "1s",
				"--endpoints", c.Nodes[i].Client)
			told, err := ask.Output()
			var status struct {
				Role string `json:"role"`
			}
			if err == nil && json.Unmarshal(told, &status) == nil && status.Role == "leader" {
				return &c.Nodes[i], nil
			}
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// freePorts finds a port from which on all that a cluster needs are free.
func freePorts(nodes int) (int, error) {
	for range 100 {
		first := 20000 + rand.IntN(1000)*12
		free := true
		for node := range nodes {
			for offset := range 3 {
				port := first + 10*node + offset
				listener, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
				if err != nil {
					free = false
					continue
				}
				_ = listener.Close()
			}
		}
		if free {
			return first, nil
		}
	}
	return 0, errors.New("no free ports were found between 20000 and 32000")
}
