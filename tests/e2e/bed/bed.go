// SPDX-License-Identifier: Apache-2.0

// Package bed is the common base of the packages of end-to-end tests. It starts one test cluster for each package,
// with simulated GPUs, installs Tessera as a person would, and has the functions that the tests use.
// A test process has one cluster, so the cluster is a variable here.
package bed

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	cluster "tessera.dev/tests/cluster"
)

const (
	// DriverRoot is the folder of a node's simulated driver, the same as with NVIDIA's GPU operator.
	DriverRoot = "/run/nvidia/driver"
	// PodTimeout bounds the start of a pod and the report of a change in the API server. They take some seconds on an
	// idle machine. A test that passes never waits so long, but a loaded machine may be slow, and stand still for seconds.
	PodTimeout = 2 * time.Minute
	// WholeGPU is the resource of a whole GPU.
	WholeGPU = "nvidia.com/gpu"
)

var (
	// Long runs 100 rounds of each kind of restart.
	Long = flag.Bool("long", false, "the long mode: 100 rounds of each kind of restart")
	keep = flag.Bool("keep", false, "leave the cluster up at the end")

	// Root is the source tree.
	Root = sourceTree()
	// Shared is the cluster of all tests of the package.
	Shared *cluster.Cluster
	// NodeGPUs are the GPUs of the nodes in order.
	NodeGPUs []GPUs

	ctx = context.Background()
)

// GPUs describes the GPUs of one node: their number, and a profile of simgpu by name or as a file.
type GPUs struct {
	Profile string
	Count   int
}

func sourceTree() string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Join(filepath.Dir(file), "../../..")
}

// Tool returns the path of a program of the release build.
func Tool(name string) string { return filepath.Join(Root, "build/release/bin", name) }

// Main starts a cluster of as many nodes as there are entries of nodes, gives the nodes their GPUs and the images,
// calls prepare, runs the tests and removes the cluster. Returns the exit code for TestMain.
func Main(m *testing.M, options cluster.Options, nodes []GPUs, prepare func() error) int {
	flag.Parse()
	NodeGPUs = nodes
	code, err := runAll(m, options, prepare)
	if err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		return 1
	}
	return code
}

func runAll(m *testing.M, options cluster.Options, prepare func() error) (code int, err error) {
	options.Nodes, options.Log, options.Tied = len(NodeGPUs), os.Stderr, !*keep
	if Shared, err = cluster.Up(ctx, options); err != nil {
		return 1, err
	}
	defer func() {
		if *keep {
			return
		}
		if code != 0 || err != nil {
			saveLogs(options.Name)
		}
		if downErr := Shared.Down(); downErr != nil && err == nil {
			err = downErr
		}
	}()
	if err := addGPUs(); err != nil {
		return 1, err
	}
	if err := loadImages(); err != nil {
		return 1, err
	}
	if err := prepare(); err != nil {
		return 1, err
	}
	return m.Run(), nil
}

// saveLogs keeps the logs of a failed run, because Down removes them.
func saveLogs(name string) {
	out := filepath.Join(Root, "build", "logs", name)
	os.RemoveAll(out)
	if err := os.MkdirAll(out, 0o755); err != nil {
		return
	}
	Shared.SaveLogs(out)
	for i, m := range Shared.Nodes {
		text, _ := Shared.Kubectl(ctx, "-n", "tessera-system", "logs", AgentOf(m.Name))
		os.WriteFile(filepath.Join(out, fmt.Sprintf("agent-%d.log", i+1)), []byte(text), 0o644)
	}
	text, _ := Shared.Kubectl(ctx, "get", "pods,events", "-A", "-o", "yaml")
	os.WriteFile(filepath.Join(out, "objects.yaml"), []byte(text), 0o644)
	fmt.Fprintln(os.Stderr, "e2e: logs are in", out)
}

// AgentOf returns kubectl's name of the agent's pod on a node: "pod/tessera-agent-x7k2p".
func AgentOf(node string) string {
	text, _ := Shared.Kubectl(ctx, "-n", "tessera-system", "get", "pod", "-o", "name",
		"-l", "app.kubernetes.io/name=tessera-agent", "--field-selector", "spec.nodeName="+node)
	return strings.TrimSpace(text)
}

// addGPUs gives each node its simulated GPUs.
func addGPUs() error {
	for i, gpus := range NodeGPUs {
		_, err := Shared.Exec(ctx, i+1, Tool("simgpu"), "create", "--profile", gpus.Profile,
			"--gpus", fmt.Sprint(gpus.Count), "--root", DriverRoot, "--device-nodes", "--force")
		if err != nil {
			return err
		}
	}
	return nil
}

// UpgradeChart upgrades Tessera with the chart, and waits for its pods.
func UpgradeChart(t *testing.T, flags ...string) {
	t.Helper()
	if err := applyChart(flags); err != nil {
		t.Fatal(err)
	}
}

// applyChart adds values that save waiting time: agents with other options start on all nodes at once, and the
// GPUs of a pod whose processes do not end are withdrawn sooner.
func applyChart(flags []string) error { return ThisRelease.applyChart(flags) }

func (r Release) applyChart(flags []string) error {
	args := []string{"upgrade", "--install", "tessera", filepath.Join(r.Tree, "deploy/chart"), "--wait", "--timeout=180s",
		"--namespace", "tessera-system", "--create-namespace",
		"--values", filepath.Join(Root, "deploy/simulated/values.yaml"),
		"--set", "daemonsets.rollingUpdate.maxUnavailable=100%", "--set", "image.tag=" + r.Tag,
		"--set-json", `agent.env=[{"name":"RELEASE_TIMEOUT","value":"10"}]`}
	_, err := Shared.Helm(ctx, append(args, flags...)...)
	return err
}

// InstallChart installs Tessera with the chart, or upgrades it, and waits until all nodes offer their GPUs.
func InstallChart(flags ...string) error {
	if err := applyChart(flags); err != nil {
		return err
	}
	deadline := time.Now().Add(PodTimeout)
	for i, gpus := range NodeGPUs {
		name := Shared.Nodes[i].Name
		for Allocatable(name, WholeGPU) != gpus.Count {
			if time.Now().After(deadline) {
				return fmt.Errorf("node %s offers %d GPUs after %s, not %d", name, Allocatable(name, WholeGPU), PodTimeout, gpus.Count)
			}
			time.Sleep(pollPeriod)
		}
	}
	return nil
}

// makeImage writes the image tessera.dev/tests/NAME:TAG as NAME-TAG.tar. scripts/images has built the program.
func makeImage(out, name, tag string, args ...string) error {
	args = append([]string{"--tag", "tessera.dev/tests/" + name + ":" + tag,
		"--out", filepath.Join(out, name+"-"+tag+".tar")}, args...)
	if text, err := exec.Command(filepath.Join(Root, "build/bin/make-image"), args...).CombinedOutput(); err != nil {
		return fmt.Errorf("image %s: %w: %s", name, err, text)
	}
	return nil
}

func loadImages() error {
	out, err := os.MkdirTemp("", "e2e-images")
	if err != nil {
		return err
	}
	defer os.RemoveAll(out)
	if text, err := exec.Command(filepath.Join(Root, "scripts/images"), out).CombinedOutput(); err != nil {
		return fmt.Errorf("scripts/images: %w: %s", err, text)
	}
	probe := filepath.Join(out, "probe")
	build := exec.Command("go", "build", "-o", probe, "./probe")
	build.Dir = filepath.Join(Root, "tests/e2e")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if text, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("building the probe: %w: %s", err, text)
	}
	variants := map[string][]string{
		"probe":     nil,
		"attacker":  {"--elf", filepath.Join(Root, "build/release/bin/vectoradd") + ":/usr/bin/vectoradd", "--ldcache"},
		"probe-all": {"--env", "NVIDIA_VISIBLE_DEVICES=all", "--env", "NVIDIA_DRIVER_CAPABILITIES=all"},
	}
	for name, extra := range variants {
		args := append([]string{"--file", probe + ":/probe:0755", "--entrypoint", "/probe"}, extra...)
		if err := makeImage(out, name, "dev", args...); err != nil {
			return err
		}
	}
	if err := makeDriverImages(out, map[string]string{"dev": ""}); err != nil {
		return err
	}
	return loadArchives(out)
}

// loadArchives gives the images of a folder to all nodes.
func loadArchives(out string) error {
	archives, err := filepath.Glob(filepath.Join(out, "*.tar"))
	if err != nil {
		return err
	}
	for _, archive := range archives {
		if err := Shared.LoadImage(ctx, archive); err != nil {
			return err
		}
	}
	return nil
}
