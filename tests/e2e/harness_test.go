// SPDX-License-Identifier: Apache-2.0

// Package e2e follows GPU requests from kubectl to a program that computes on the GPU it was given:
// real Kubernetes, containerd and runc, our images and manifests, simulated GPUs.
package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	cluster "tessera.dev/tests/cluster"
)

const (
	gpus       = 8
	driverRoot = "/run/nvidia/driver"
	node       = "n1"
	// A pod needs about a second; the machine may be busy with other suites.
	podTimeout = 60 * time.Second
)

var (
	long = flag.Bool("long", false, "the long mode: 100 rounds of each kind of restart")
	keep = flag.Bool("keep", false, "leave the cluster up at the end")

	shared *cluster.Cluster
	root   string
	ctx    = context.Background()
)

func TestMain(m *testing.M) {
	flag.Parse()
	code, err := runAll(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		code = 1
	}
	os.Exit(code)
}

func runAll(m *testing.M) (code int, err error) {
	if root, err = filepath.Abs("../.."); err != nil {
		return 1, err
	}
	options := cluster.Options{Name: "e2e", Nodes: 1, Log: os.Stderr, Tied: !*keep,
		// A test that kills the agent a hundred times measures us, not the kubelet's back-off.
		KubeletConfig: map[string]any{"crashLoopBackOff": map[string]string{"maxContainerRestartPeriod": "1s"}}}
	if shared, err = cluster.Up(ctx, options); err != nil {
		return 1, err
	}
	defer func() {
		if *keep {
			return
		}
		if code != 0 || err != nil {
			saveLogs()
		}
		if downErr := shared.Down(); downErr != nil && err == nil {
			err = downErr
		}
	}()
	if err := deploy(); err != nil {
		return 1, err
	}
	return m.Run(), nil
}

// saveLogs keeps what a failed run left, because Down removes it.
func saveLogs() {
	out := filepath.Join(root, "build", "logs", "e2e")
	os.RemoveAll(out)
	if err := os.MkdirAll(out, 0o755); err != nil {
		return
	}
	shared.SaveLogs(out)
	text, _ := shared.Kubectl(ctx, "-n", "tessera-system", "logs", "daemonset/tessera-agent")
	os.WriteFile(filepath.Join(out, "agent.log"), []byte(text), 0o644)
	text, _ = shared.Kubectl(ctx, "get", "pods,events", "-A", "-o", "yaml")
	os.WriteFile(filepath.Join(out, "objects.yaml"), []byte(text), 0o644)
	fmt.Fprintln(os.Stderr, "e2e: logs are in", out)
}

// pairsProfile is eight A100 of which 2k and 2k+1 have NVLinks to each other, as a file.
func pairsProfile() (string, error) {
	text, err := exec.Command(tool("simgpu"), "profiles", "a100-sxm4-80gb").Output()
	if err != nil {
		return "", err
	}
	changed := strings.Replace(string(text), "topology: nvswitch", "topology: pairs", 1)
	if changed == string(text) {
		return "", fmt.Errorf("profile a100-sxm4-80gb has no NVSwitch")
	}
	// /tmp is the node's, too.
	file, err := os.CreateTemp("/tmp", "e2e-*.yaml")
	if err != nil {
		return "", err
	}
	defer file.Close()
	_, err = file.WriteString(changed)
	return file.Name(), err
}

// deploy brings GPUs, images and Tessera onto the node.
func deploy() error {
	profile, err := pairsProfile()
	if err != nil {
		return err
	}
	defer os.Remove(profile)
	if _, err := shared.Exec(ctx, 1, tool("simgpu"), "create", "--profile", profile, "--root", driverRoot, "--device-nodes"); err != nil {
		return err
	}
	if err := loadImages(); err != nil {
		return err
	}
	if _, err := shared.Kubectl(ctx, "apply", "-k", filepath.Join(root, "deploy/simulated")); err != nil {
		return err
	}
	_, err = shared.Kubectl(ctx, "-n", "tessera-system", "rollout", "status", "daemonset/tessera-agent", "--timeout=60s")
	if err != nil {
		return err
	}
	deadline := time.Now().Add(30 * time.Second)
	for allocatable() != gpus {
		if time.Now().After(deadline) {
			return fmt.Errorf("the node offers %d GPUs after 30 s, not %d", allocatable(), gpus)
		}
		time.Sleep(100 * time.Millisecond)
	}
	return nil
}

func loadImages() error {
	out, err := os.MkdirTemp("", "e2e-images")
	if err != nil {
		return err
	}
	defer os.RemoveAll(out)
	if text, err := exec.Command(filepath.Join(root, "scripts/images"), out).CombinedOutput(); err != nil {
		return fmt.Errorf("scripts/images: %w: %s", err, text)
	}
	probe := filepath.Join(out, "probe")
	build := exec.Command("go", "build", "-o", probe, "./probe")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if text, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("building the probe: %w: %s", err, text)
	}
	variants := map[string][]string{
		"probe":     nil,
		"probe-all": {"--env", "NVIDIA_VISIBLE_DEVICES=all", "--env", "NVIDIA_DRIVER_CAPABILITIES=all"},
	}
	for name, extra := range variants {
		args := append([]string{"image", "--tag", "tessera.dev/tests/" + name + ":dev", "--out",
			filepath.Join(out, name+".tar"), "--file", probe + ":/probe:0755", "--entrypoint", "/probe"}, extra...)
		if text, err := exec.Command(filepath.Join(root, "build/bin/testcluster"), args...).CombinedOutput(); err != nil {
			return fmt.Errorf("image %s: %w: %s", name, err, text)
		}
	}
	archives, err := filepath.Glob(filepath.Join(out, "*.tar"))
	if err != nil {
		return err
	}
	for _, archive := range archives {
		if err := shared.LoadImage(ctx, archive); err != nil {
			return err
		}
	}
	return nil
}

func tool(name string) string { return filepath.Join(root, "build/release/bin", name) }

// simgpu runs the control tool of the simulated driver on the node.
func simgpu(t *testing.T, args ...string) string {
	t.Helper()
	return onNode(t, append([]string{tool("simgpu")}, append(args, "--root", driverRoot)...)...)
}

func onNode(t *testing.T, argv ...string) string {
	t.Helper()
	text, err := shared.Exec(ctx, 1, argv...)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func kubectl(t *testing.T, args ...string) string {
	t.Helper()
	text, err := shared.Kubectl(ctx, args...)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(text)
}

func allocatable() int {
	text, err := shared.Kubectl(ctx, "get", "node", node, "-o", `jsonpath={.status.allocatable.nvidia\.com/gpu}`)
	count, convErr := strconv.Atoi(strings.TrimSpace(text))
	if err != nil || convErr != nil {
		return -1
	}
	return count
}

func waitAllocatable(t *testing.T, want int, within time.Duration) time.Duration {
	t.Helper()
	began := time.Now()
	eventually(t, within, fmt.Sprintf("allocatable GPUs = %d", want), func() bool { return allocatable() == want })
	return time.Since(began)
}

func eventually(t *testing.T, within time.Duration, what string, check func() bool) {
	t.Helper()
	deadline := time.Now().Add(within)
	for !check() {
		if time.Now().After(deadline) {
			t.Fatalf("not within %s: %s", within, what)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// container is one container of a test pod.
type container struct {
	Name  string
	Image string // vectoradd or a tests/ image
	GPUs  int
	Args  []string
	Env   map[string]string
}

// podSpec is a pod of restartPolicy Never.
type podSpec struct {
	Name           string
	Init           []container
	Containers     []container
	ReadOnlyRootFS bool
	RuntimeClass   string
}

type object = map[string]any

func (c container) manifest(readOnly bool) object {
	image := "tessera.dev/samples/vectoradd:dev"
	if c.Image != "" && c.Image != "vectoradd" {
		image = "tessera.dev/tests/" + c.Image + ":dev"
	}
	m := object{"name": c.Name, "image": image, "imagePullPolicy": "Never", "args": c.Args,
		"securityContext": object{"readOnlyRootFilesystem": readOnly}}
	if c.GPUs > 0 {
		m["resources"] = object{"limits": object{"nvidia.com/gpu": c.GPUs}}
	}
	var env []object
	for name, value := range c.Env {
		env = append(env, object{"name": name, "value": value})
	}
	m["env"] = env
	return m
}

// create applies the pod; the test's end deletes it and waits until its GPUs are free again.
func (p podSpec) create(t *testing.T) string {
	t.Helper()
	list := func(containers []container) []object {
		var all []object
		for _, c := range containers {
			all = append(all, c.manifest(p.ReadOnlyRootFS))
		}
		return all
	}
	spec := object{"restartPolicy": "Never", "terminationGracePeriodSeconds": 0,
		"initContainers": list(p.Init), "containers": list(p.Containers)}
	if p.RuntimeClass != "" {
		spec["runtimeClassName"] = p.RuntimeClass
	}
	text, err := json.Marshal(object{"apiVersion": "v1", "kind": "Pod",
		"metadata": object{"name": p.Name, "namespace": "default"}, "spec": spec})
	if err != nil {
		t.Fatal(err)
	}
	if err := shared.Apply(ctx, string(text)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { deletePods(t, p.Name) })
	return p.Name
}

func deletePods(t *testing.T, names ...string) {
	t.Helper()
	if t.Failed() {
		text, _ := shared.Kubectl(ctx, append([]string{"describe", "pod"}, names...)...)
		t.Log(text)
	}
	args := append([]string{"delete", "pod", "--ignore-not-found", "--grace-period=0", "--timeout=60s"}, names...)
	if _, err := shared.Kubectl(ctx, args...); err != nil {
		t.Error(err)
	}
}

// single is a pod of one container that adds vectors.
func single(name string, count int, args ...string) podSpec {
	return podSpec{Name: name, Containers: []container{{Name: "main", GPUs: count, Args: args}}}
}

func waitPhase(t *testing.T, pod, phase string) {
	t.Helper()
	_, err := shared.Kubectl(ctx, "wait", "pod/"+pod, "--for=jsonpath={.status.phase}="+phase,
		"--timeout="+podTimeout.String())
	if err != nil {
		text, _ := shared.Kubectl(ctx, "describe", "pod", pod)
		log, _ := shared.Kubectl(ctx, "logs", pod, "--all-containers", "--ignore-errors")
		t.Fatalf("%v\n%s\n%s", err, text, log)
	}
}

func phase(t *testing.T, pod string) string {
	t.Helper()
	return kubectl(t, "get", "pod", pod, "-o", "jsonpath={.status.phase}")
}

func logs(t *testing.T, pod string, args ...string) string {
	t.Helper()
	return kubectl(t, append([]string{"logs", pod}, args...)...)
}

var uuidPattern = regexp.MustCompile(`GPU-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`)

// uuids are the GPUs that a vectorAdd log names, each once, in order.
func uuids(text string) []string {
	var found []string
	seen := map[string]bool{}
	for _, uuid := range uuidPattern.FindAllString(text, -1) {
		if !seen[uuid] {
			seen[uuid] = true
			found = append(found, uuid)
		}
	}
	return found
}

func passed(t *testing.T, pod string, count int) []string {
	t.Helper()
	text := logs(t, pod, "--all-containers")
	if !strings.Contains(text, "Test PASSED") {
		t.Fatalf("%s did not print Test PASSED:\n%s", pod, text)
	}
	found := uuids(text)
	if len(found) != count {
		t.Fatalf("%s saw %d GPUs, not %d:\n%s", pod, len(found), count, text)
	}
	return found
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
	cmd := shared.KubectlCommand(limited, "get", "node", node, "--watch", "-o",
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
	eventually(t, 10*time.Second, "the watch gives the node", func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return len(w.seen) > 0
	})
	return w
}

// longestBelow is the longest time since `since` in which fewer than `want` were offered.
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

// lastReached is when `want` were offered again after there were fewer since `since`; zero if there never were.
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
