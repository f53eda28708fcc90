// SPDX-License-Identifier: Apache-2.0

// Package e2e follows GPU requests from kubectl to a program that computes on the GPU that its container got.
// Kubernetes, containerd and runc are real, the images and manifests are Tessera's, and the GPUs are
// simulated. The cluster has one node; tests that need several nodes are in nodes/.
package e2e

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	cluster "tessera.dev/tests/cluster"
	"tessera.dev/tests/e2e/bed"
)

const (
	gpus = 8
	node = "n1"
)

var ctx = context.Background()

func TestMain(m *testing.M) {
	profile, err := pairsProfile()
	if err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		os.Exit(1)
	}
	options := cluster.Options{Name: "e2e",
		// Tests that kill the agent a hundred times must not measure the kubelet's back-off.
		KubeletConfig: map[string]any{"crashLoopBackOff": map[string]string{"maxContainerRestartPeriod": "1s"}}}
	code := bed.Main(m, options, []bed.GPUs{{Profile: profile, Count: gpus}}, func() error { return bed.InstallChart() })
	os.Remove(profile)
	os.Exit(code)
}

// pairsProfile writes a profile of eight A100 to a file and returns its path. The GPUs 2k and 2k+1 have NVLinks
// to each other.
func pairsProfile() (string, error) {
	text, err := exec.Command(bed.Tool("simgpu"), "profiles", "a100-sxm4-80gb").Output()
	if err != nil {
		return "", err
	}
	changed := strings.Replace(string(text), "topology: nvswitch", "topology: pairs", 1)
	if changed == string(text) {
		return "", fmt.Errorf("profile a100-sxm4-80gb has no NVSwitch")
	}
	// The nodes share /tmp.
	file, err := os.CreateTemp("/tmp", "e2e-*.yaml")
	if err != nil {
		return "", err
	}
	defer file.Close()
	_, err = file.WriteString(changed)
	return file.Name(), err
}

// simgpu runs the control tool of the simulated driver on the node.
func simgpu(t *testing.T, args ...string) string {
	t.Helper()
	return bed.Simgpu(t, 1, args...)
}

func onNode(t *testing.T, argv ...string) string {
	t.Helper()
	return bed.OnNode(t, 1, argv...)
}

func allocatable() int { return bed.Allocatable(node, bed.WholeGPU) }

// waitAllocatable waits until the node offers that many GPUs. After a timeout it shows why the agent offers others.
func waitAllocatable(t *testing.T, want int) {
	t.Helper()
	if !bed.Within(bed.PodTimeout, func() bool { return allocatable() == want }) {
		log, _ := bed.TryKubectl("-n", "tessera-system", "logs", bed.AgentOf(node), "-c", "agent", "--tail=20")
		t.Fatalf("not within %s: allocatable GPUs = %d, but %d\nGPUReady is %s\n%s", bed.PodTimeout, want, allocatable(),
			gpuCondition(t), log)
	}
}

// allocatableWatch records every change of the allocatable GPUs, from a watch of the node.
type allocatableWatch struct {
	stop context.CancelFunc
	mu   sync.Mutex
	seen []change
}

type change struct {
	at    time.Time
	count int
}

func watchAllocatable(t *testing.T) *allocatableWatch {
	t.Helper()
	limited, stop := context.WithCancel(ctx)
	cmd := bed.Shared.KubectlCommand(limited, "get", "node", node, "--watch", "-o",
		`jsonpath={.status.allocatable.nvidia\.com/gpu}{"\n"}`)
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	w := &allocatableWatch{stop: stop}
	go func() {
		for lines := bufio.NewScanner(pipe); lines.Scan(); {
			count, _ := strconv.Atoi(strings.TrimSpace(lines.Text()))
			w.mu.Lock()
			w.seen = append(w.seen, change{time.Now(), count})
			w.mu.Unlock()
		}
		cmd.Wait()
	}()
	t.Cleanup(stop)
	bed.Eventually(t, bed.PodTimeout, "the watch gives the node", func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return len(w.seen) > 0
	})
	return w
}

// longestBelow returns the longest time after `since` during which fewer than `want` GPUs were allocatable.
func (w *allocatableWatch) longestBelow(want int, since time.Time) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	var longest time.Duration
	var below time.Time
	for _, c := range w.seen {
		if c.count < want && below.IsZero() {
			below = c.at
		}
		if c.count >= want && !below.IsZero() {
			if gap := c.at.Sub(below); below.After(since) && gap > longest {
				longest = gap
			}
			below = time.Time{}
		}
	}
	if !below.IsZero() {
		longest = max(longest, time.Since(below))
	}
	return longest
}

// lastReached returns the last time after `since` at which the number of allocatable GPUs rose to `want` again.
// The time is zero if the number was never lower.
func (w *allocatableWatch) lastReached(want int, since time.Time) (reached time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	below := false
	for _, c := range w.seen {
		if c.at.Before(since) {
			continue
		}
		if c.count >= want && below {
			reached = c.at
		}
		below = c.count < want
	}
	return reached
}
