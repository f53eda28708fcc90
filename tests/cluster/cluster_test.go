// SPDX-License-Identifier: Apache-2.0

package cluster_test

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	cluster "tessera.dev/tests/cluster"
)

func TestPodsRunOnEveryNodeAndTheirLogsAreRead(t *testing.T) {
	c := sharedCluster(t)
	for _, m := range c.Nodes {
		pod(t, c, "hello-"+m.Name, m.Name, "hello")
	}
	for _, m := range c.Nodes {
		waitPhase(t, c, "hello-"+m.Name, "Succeeded")
		if log := kubectl(t, c, "logs", "hello-"+m.Name); log != "hello from hello-"+m.Name+"\n" {
			t.Errorf("log of the pod on %s: %q", m.Name, log)
		}
	}
}

func TestPodReachesTheAPIServerAsItsServiceAccountOnItsNode(t *testing.T) {
	c := sharedCluster(t)
	pod(t, c, "api", "n2", "api")
	waitPhase(t, c, "api", "Succeeded")
	log := kubectl(t, c, "logs", "api")
	for _, part := range []string{
		"system:serviceaccount:default:default", `authentication.kubernetes.io/node-name":["n2"]`,
	} {
		if !strings.Contains(log, part) {
			t.Errorf("the API server's answer lacks %q: %s", part, log)
		}
	}
}

func TestCommandRunsInAPodOfEveryNodeThroughKubectl(t *testing.T) {
	c := sharedCluster(t)
	for _, m := range c.Nodes {
		name := "exec-" + m.Name
		pod(t, c, name, m.Name, "stay")
		waitPhase(t, c, name, "Running")
		if out := kubectl(t, c, "exec", name, "--", "/testpod", "hello"); out != "hello from "+name+"\n" {
			t.Errorf("kubectl exec on %s printed %q", m.Name, out)
		}
	}
}

func TestComponentsRestartWhilePodsRun(t *testing.T) {
	c := sharedCluster(t)
	pod(t, c, "survivor", "n1", "stay")
	waitPhase(t, c, "survivor", "Running")
	for _, name := range []string{
		"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "containerd", "kubelet", "kube-proxy",
	} {
		t.Run(name, func(t *testing.T) {
			starts := state(t, c, name).Starts
			if err := c.Restart(t.Context(), name, 1, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			if now := state(t, c, name); !now.Running || now.Starts != starts+1 || now.Exit != "signal killed" {
				t.Errorf("after the restart: %+v", now)
			}
			if err := c.WaitReady(t.Context()); err != nil {
				t.Fatal(err)
			}
			pod(t, c, "after-"+name, "n1", "hello")
			waitPhase(t, c, "after-"+name, "Succeeded")
		})
	}
	restarts := kubectl(t, c, "get", "pod", "survivor", "-o",
		"jsonpath={.status.phase} {.status.containerStatuses[0].restartCount}")
	if restarts != "Running 0" {
		t.Errorf("the pod that kept running: %s", restarts)
	}
}

func TestStoppedComponentStaysDownUntilStarted(t *testing.T) {
	c := sharedCluster(t)
	if err := c.Stop(t.Context(), "kube-scheduler", 0); err != nil {
		t.Fatal(err)
	}
	pod(t, c, "unscheduled", "", "hello")
	if now := state(t, c, "kube-scheduler"); now.Running {
		t.Errorf("it runs: %+v", now)
	}
	if phase := kubectl(t, c, "get", "pod", "unscheduled", "-o", "jsonpath={.status.phase}"); phase != "Pending" {
		t.Errorf("without a scheduler the pod is %s", phase)
	}
	if err := c.Start(t.Context(), "kube-scheduler", 0); err != nil {
		t.Fatal(err)
	}
	waitPhase(t, c, "unscheduled", "Succeeded")
}

func TestContainerdThatIsEndedInTheNodeComesBackWithItsNewConfiguration(t *testing.T) {
	c := sharedCluster(t)
	starts := state(t, c, "containerd").Starts
	const dropIn = "/etc/containerd/conf.d/test.toml"
	script := `printf '%s\n' "version = 3" "[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.extra]" \
		"  runtime_type = 'io.containerd.runc.v2'" >` + dropIn + ` && pkill -TERM -x containerd`
	if _, err := c.Exec(t.Context(), 1, "sh", "-c", script); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Exec(context.Background(), 1, "rm", dropIn)
		c.Restart(context.Background(), "containerd", 1)
	})
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
		config, err := c.Exec(t.Context(), 1, "containerd", "config", "dump")
		if now := state(t, c, "containerd"); now.Running && now.Starts > starts {
			if !strings.Contains(config, "runtimes.extra") {
				t.Errorf("the drop-in is not in the configuration: %v\n%s", err, config)
			}
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("containerd did not come back")
		}
	}
	pod(t, c, "after-configuration", "n1", "hello")
	waitPhase(t, c, "after-configuration", "Succeeded")
}

func TestNodesShareNothingThatTheyChange(t *testing.T) {
	c := sharedCluster(t)
	const write = `mkdir -p "${1%/*}" && echo n1 >"$1"`
	for _, file := range []string{
		"/etc/tessera/x", "/opt/tessera/x", "/usr/lib/x.so", "/var/lib/tessera/x", "/var/lib/kubelet/x",
		"/run/tessera/x", "/etc/containerd/x", "/dev/nvidia0",
	} {
		if _, err := c.Exec(t.Context(), 1, "sh", "-c", write, "sh", file); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Exec(t.Context(), 2, "test", "!", "-e", file); err != nil {
			t.Errorf("node 2 sees %s of node 1", file)
		}
		if _, err := os.Stat(file); err == nil {
			t.Errorf("the host sees %s of node 1", file)
		}
		if _, err := c.Exec(t.Context(), 1, "rm", file); err != nil {
			t.Error(err)
		}
	}
}

func TestUpFindsARunningClusterAndRejectsAnotherShape(t *testing.T) {
	c := sharedCluster(t)
	again, err := cluster.Up(t.Context(), cluster.Options{Dir: c.Dir, Nodes: 2, Services: true})
	if err != nil || again.Head.PID != c.Head.PID {
		t.Errorf("the second Up: %v", err)
	}
	for _, other := range []cluster.Options{{Dir: c.Dir, Nodes: 1, Services: true}, {Dir: c.Dir, Nodes: 2}} {
		if _, err := cluster.Up(t.Context(), other); err == nil || !strings.Contains(err.Error(), "2 nodes with kube-proxy") {
			t.Errorf("Up with another shape: %v", err)
		}
	}
}

func TestDownLeavesNothingAndAnotherClusterAlone(t *testing.T) {
	other := sharedCluster(t)
	dir := testDir("gone")
	trace := newFootprint(dir)
	t.Cleanup(func() { cluster.Down(dir, nil) })
	c, err := cluster.Up(t.Context(), cluster.Options{Dir: dir, Tied: true, Log: testLog{t}})
	if err != nil {
		t.Fatal(err)
	}
	trace.add(t, c)
	if len(trace.traces()) == 0 {
		t.Fatal("a running cluster leaves no trace, so this test could not fail")
	}
	if err := c.LoadImage(t.Context(), buildTestImage(t)); err != nil {
		t.Fatal(err)
	}
	pod(t, c, "stay", "", "stay")
	waitPhase(t, c, "stay", "Running")
	if err := c.Down(); err != nil {
		t.Fatal(err)
	}
	trace.requireGone(t)
	if err := cluster.Down(dir, nil); err != nil {
		t.Errorf("the second Down: %v", err)
	}
	if err := other.WaitReady(t.Context()); err != nil {
		t.Errorf("the other cluster: %v", err)
	}
}

func TestUpFailsInSecondsAndNamesTheComponentAndItsLog(t *testing.T) {
	requireRoot(t)
	dir := testDir("fails")
	trace := newFootprint(dir)
	t.Cleanup(func() { cluster.Down(dir, nil) })
	options := cluster.Options{
		Dir: dir, Tied: true, Log: io.Discard,
		Flags: map[string][]string{"kube-apiserver": {"--no-such-flag"}},
	}
	begin := time.Now()
	_, err := cluster.Up(t.Context(), options)
	if err == nil {
		t.Fatal("Up succeeded")
	}
	for _, part := range []string{"kube-apiserver", "unknown flag: --no-such-flag", filepath.Join(dir, "logs")} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("the error lacks %q: %v", part, err)
		}
	}
	// The start of a cluster that works may take longer (startTimeout).
	if took := time.Since(begin); took > time.Minute {
		t.Errorf("it took %s", took)
	}
	if _, err := os.Stat(filepath.Join(dir, "logs", "control-plane", "kube-apiserver.log")); err != nil {
		t.Errorf("the log is not kept: %v", err)
	}
	c, err := cluster.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	trace.group = c.Group
	if err := cluster.Down(dir, nil); err != nil {
		t.Fatal(err)
	}
	trace.requireGone(t)
}

func TestDownClearsUpAfterAKilledUp(t *testing.T) {
	requireRoot(t)
	program := filepath.Join(t.TempDir(), "testcluster")
	if out, err := exec.Command("go", "build", "-o", program, "./cmd/testcluster").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	dir := testDir("killed")
	trace := newFootprint(dir)
	t.Cleanup(func() { cluster.Down(dir, nil) })
	up := exec.Command(program, "up", "--dir", dir, "--nodes", "2", "--services")
	if err := up.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { up.Process.Kill() })
	// Up is killed halfway: the machines run, the API server has started.
	log := filepath.Join(dir, "logs", "control-plane", "kube-apiserver.log")
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(10 * time.Millisecond) {
		if _, err := os.Stat(log); err == nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the API server did not begin")
		}
	}
	up.Process.Kill()
	up.Wait()
	c, err := cluster.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	trace.add(t, c)
	if err := cluster.Down(dir, nil); err != nil {
		t.Fatal(err)
	}
	trace.requireGone(t)
}

func TestTiedClusterEndsWithItsProcess(t *testing.T) {
	requireRoot(t)
	if dir := os.Getenv("TESSERA_TEST_TIED_DIR"); dir != "" {
		_, err := cluster.Up(context.Background(), cluster.Options{Dir: dir, Tied: true})
		t.Fatalf("Up returned before it was killed: %v", err)
	}
	dir := testDir("tied")
	t.Cleanup(func() { cluster.Down(dir, nil) })
	child := exec.Command("/proc/self/exe", "-test.run=^TestTiedClusterEndsWithItsProcess$")
	child.Args[0] = os.Args[0]
	child.Env = append(os.Environ(), "TESSERA_TEST_TIED_DIR="+dir)
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	var pid int
	for deadline := time.Now().Add(2 * time.Minute); pid == 0; time.Sleep(10 * time.Millisecond) {
		if c, err := cluster.Open(dir); err == nil {
			pid = c.Head.PID
		}
		if time.Now().After(deadline) {
			child.Process.Kill()
			t.Fatal("no supervisor began")
		}
	}
	child.Process.Kill()
	child.Wait()
	for deadline := time.Now().Add(time.Minute); alive(pid); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("supervisor %d outlives the process that it is tied to", pid)
		}
	}
}

func alive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && !strings.Contains(string(stat), ") Z ")
}
