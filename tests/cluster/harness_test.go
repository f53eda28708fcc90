// SPDX-License-Identifier: Apache-2.0

package cluster_test

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	cluster "tessera.dev/tests/cluster"
	"tessera.dev/tools/image"
)

const (
	podImage = "tessera.test/testpod:1"
	podTime  = "120s"
)

// shared is a cluster of two nodes with kube-proxy, for tests that do not end it.
var shared struct {
	once    sync.Once
	cluster *cluster.Cluster
	err     error
}

func TestMain(m *testing.M) {
	code := m.Run()
	if c, err := cluster.Open(testDir("shared")); err == nil && code != 0 {
		if dest, err := os.MkdirTemp("", "testcluster-logs-"); err == nil && c.SaveLogs(dest) == nil {
			fmt.Fprintf(os.Stderr, "the logs of the cluster are in %s\n", dest)
		}
	}
	if err := cluster.Down(testDir("shared"), nil); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// testDir returns the same folder in every run of one source tree, so that a run removes the remains of a killed
// run.
func testDir(name string) string {
	wd, _ := os.Getwd()
	tree := sha256.Sum256([]byte(wd))
	return filepath.Join(cluster.DefaultRoot, fmt.Sprintf("test-%x-%s", tree[:4], name))
}

func requireRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("a cluster needs root")
	}
}

type testLog struct{ t *testing.T }

func (l testLog) Write(text []byte) (int, error) {
	l.t.Log(strings.TrimRight(string(text), "\n"))
	return len(text), nil
}

func sharedCluster(t *testing.T) *cluster.Cluster {
	t.Helper()
	requireRoot(t)
	shared.once.Do(func() {
		dir := testDir("shared")
		if shared.err = cluster.Down(dir, nil); shared.err != nil {
			return
		}
		options := cluster.Options{Dir: dir, Nodes: 2, Services: true, Tied: true, Log: os.Stderr}
		if shared.cluster, shared.err = cluster.Up(t.Context(), options); shared.err != nil {
			return
		}
		shared.err = shared.cluster.LoadImage(t.Context(), buildTestImage(t))
	})
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return shared.cluster
}

func buildTestImage(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	program := filepath.Join(dir, "testpod")
	build := exec.Command("go", "build", "-ldflags=-s -w", "-o", program, "./internal/testpod")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build testpod: %v\n%s", err, out)
	}
	b := image.New(podImage)
	b.Config.Entrypoint = []string{"/testpod"}
	if err := b.AddFile(program, "/testpod", 0o755); err != nil {
		t.Fatal(err)
	}
	archive := filepath.Join(dir, "testpod.tar")
	if err := b.WriteFile(archive); err != nil {
		t.Fatal(err)
	}
	return archive
}

// pod creates a pod that runs testpod with arg, on any node if node is empty, and removes it after the test.
func pod(t *testing.T, c *cluster.Cluster, name, node, arg string) {
	t.Helper()
	selector := "{}"
	if node != "" {
		selector = "{kubernetes.io/hostname: " + node + "}"
	}
	manifest := fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %[1]s, labels: {app: %[1]s}}
spec:
  restartPolicy: Never
  terminationGracePeriodSeconds: 1
  nodeSelector: %[2]s
  containers: [{name: main, image: %[3]q, imagePullPolicy: Never, args: [%[4]q]}]`, name, selector, podImage, arg)
	if err := c.Apply(t.Context(), manifest); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Kubectl(context.Background(), "delete", "pod", name, "--now", "--wait=false", "--ignore-not-found")
	})
}

func kubectl(t *testing.T, c *cluster.Cluster, args ...string) string {
	t.Helper()
	out, err := c.Kubectl(t.Context(), args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func waitPhase(t *testing.T, c *cluster.Cluster, name, phase string) {
	t.Helper()
	condition := "--for=jsonpath={.status.phase}=" + phase
	_, err := c.Kubectl(t.Context(), "wait", "pod/"+name, condition, "--timeout="+podTime)
	if err != nil {
		state, _ := c.Kubectl(t.Context(), "describe", "pod", name)
		t.Fatalf("%v\n%s", err, state)
	}
}

func state(t *testing.T, c *cluster.Cluster, name string) cluster.Component {
	t.Helper()
	all, err := c.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, each := range all {
		// kube-proxy runs on all machines.
		if each.Name == name && (each.Machine == "n1" || each.Machine == c.Head.Name && name != "kube-proxy") {
			return each
		}
	}
	t.Fatalf("no component %s", name)
	return cluster.Component{}
}
