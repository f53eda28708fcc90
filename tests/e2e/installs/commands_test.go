// SPDX-License-Identifier: Apache-2.0

package installs

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"tessera.dev/tests/e2e/bed"
)

var rounds = flag.Int("rounds", 0, "rounds of install, upgrade and uninstall; 0: one, or 100 with -long")

// settings returns the flags with the values for this cluster.
func settings() []string {
	return []string{"-f", filepath.Join(bed.Root, "deploy/simulated/values.yaml"),
		"--set", "daemonsets.rollingUpdate.maxUnavailable=100%", "--wait", "--timeout=180"}
}

// nodesStayReady watches the nodes until the test ends, and fails the test if a node was not Ready meanwhile.
func nodesStayReady(t *testing.T) {
	t.Helper()
	watch := bed.Shared.KubectlCommand(ctx, "get", "nodes", "--watch", "-o",
		`jsonpath={.metadata.name}={.status.conditions[?(@.type=="Ready")].status}{"\n"}`)
	var seen bytes.Buffer
	watch.Stdout = &seen
	if err := watch.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		watch.Process.Kill()
		watch.Wait()
		lines := strings.Fields(seen.String())
		if len(lines) < len(bed.Shared.Nodes) {
			t.Errorf("the watch saw %d nodes, not %d", len(lines), len(bed.Shared.Nodes))
		}
		for _, line := range lines {
			if !strings.HasSuffix(line, "=True") {
				t.Errorf("a node was not Ready: %s", line)
			}
		}
	})
}

// marks returns the labels, annotations, conditions and resources on a Node that Tessera wrote.
func marks(t *testing.T, name string) (found []string) {
	t.Helper()
	var node struct {
		Metadata struct {
			Labels, Annotations map[string]string
			ManagedFields       []struct{ Manager string }
		}
		Status struct {
			Capacity, Allocatable map[string]string
			Conditions            []struct{ Type string }
		}
	}
	text := bed.Kubectl(t, "get", "node", name, "-o", "json", "--show-managed-fields")
	if err := json.Unmarshal([]byte(text), &node); err != nil {
		t.Fatal(err)
	}
	for _, names := range []map[string]string{node.Metadata.Labels, node.Metadata.Annotations} {
		for key := range names {
			if strings.HasPrefix(key, "nvidia.com/") || strings.HasPrefix(key, "tessera.dev/") || strings.HasPrefix(key, "gaia.tencent.com/") {
				found = append(found, key)
			}
		}
	}
	for _, condition := range node.Status.Conditions {
		if condition.Type == "GPUReady" {
			found = append(found, condition.Type)
		}
	}
	for _, amounts := range []map[string]string{node.Status.Capacity, node.Status.Allocatable} {
		if _, ok := amounts["aliyun.com/gpu-count"]; ok {
			found = append(found, "aliyun.com/gpu-count")
		}
	}
	slices.Sort(found)
	return found
}

// leftovers returns the names of Tessera's objects in the API server.
func leftovers(t *testing.T) string {
	t.Helper()
	kinds := strings.Fields(bed.Kubectl(t, "api-resources", "--verbs=list", "-o", "name"))
	kinds = slices.DeleteFunc(kinds, func(kind string) bool { return strings.HasPrefix(kind, "events") || kind == "componentstatuses" })
	labeled := bed.Kubectl(t, "get", strings.Join(kinds, ","), "-A", "-l", "app.kubernetes.io/part-of=tessera", "-o", "name")
	text, _ := bed.TryKubectl("get", "namespace", "tessera-system", "-o", "name", "--ignore-not-found")
	return strings.TrimSpace(labeled + text)
}

// TestInstallUpgradeUninstall shows that the command can install, change and remove Tessera without Helm, and
// that pods and nodes are not disturbed.
func TestInstallUpgradeUninstall(t *testing.T) {
	removeAtTheEnd(t)
	if err := bed.InstallChart(); err != nil {
		t.Fatal(err)
	}
	nodesStayReady(t)

	// The command does not change a release of Helm.
	for _, verb := range []string{"install", "upgrade", "uninstall"} {
		if text, code := bed.TryTessera(verb); code != 78 || !strings.Contains(text, "installed by Helm, as release tessera") {
			t.Errorf("tessera %s over a release of Helm ends with %d: %s", verb, code, text)
		}
	}
	helm(t, "uninstall", "tessera", "--namespace", "tessera-system", "--wait", "--timeout=180s")
	bed.Kubectl(t, "delete", "namespace", "tessera-system")
	// The command also removes from the nodes what Helm left there.
	if len(marks(t, "n1")) == 0 {
		t.Error("the agent had written nothing on n1")
	}
	bed.Tessera(t, "uninstall")
	for _, node := range bed.Shared.Nodes {
		if left := marks(t, node.Name); len(left) > 0 {
			t.Errorf("%s has %v after an uninstall", node.Name, left)
		}
	}

	// The namespace is gone, and the server checks the objects nevertheless.
	if objects := bed.Tessera(t, "install", "--dry-run=server"); !strings.Contains(objects, "kind: DaemonSet") {
		t.Errorf("a dry run prints %.600s", objects)
	}
	for _, mode := range []string{"--dry-run", "--dry-run=server"} {
		text, code := bed.TryTessera("install", mode, "--set", "daemonsets.nodeSelector.a b=c", "--set", "scheduler.nodeSelector.c d=e")
		if code != 64 || !strings.Contains(text, "DaemonSet tessera-system/tessera-agent: ") || !strings.Contains(text, "spec.template.spec.nodeSelector") ||
			!strings.Contains(text, "Deployment tessera-system/tessera-scheduler: ") {
			t.Errorf("%s of values that the API server rejects ends with %d: %s", mode, code, text)
		}
	}
	if text, code := bed.TryTessera("install", "--dry-run=client", "--set", "daemonsets.nodeSelector.a b=c"); code != 0 {
		t.Errorf("--dry-run=client ends with %d: %s", code, text)
	}

	began := time.Now()
	text := bed.Tessera(t, append([]string{"install"}, settings()...)...)
	t.Logf("install to ready: %.1f s on %d nodes\n%s", time.Since(began).Seconds(), len(bed.Shared.Nodes), text)
	if text, code := bed.TryTessera("install", "--force", "--as", "stranger"); code != 77 || !strings.Contains(text, "cluster-admin") {
		t.Errorf("an install without rights ends with %d: %s", code, text)
	}
	if text, code := bed.TryTessera("install"); code == 0 || !strings.Contains(text, "use \"tessera upgrade\"") {
		t.Errorf("a second install ends with %d: %s", code, text)
	}
	pod := bed.Single("through-uninstall", 1, "--hold", "86400").Create(t)
	bed.WaitPhase(t, pod, "Running")
	unchanged := func(when string) {
		t.Helper()
		if text := bed.Kubectl(t, "get", "pod", pod, "-o", "jsonpath={.status.phase} {.status.containerStatuses[0].restartCount}"); text != "Running 0" {
			t.Errorf("%s the pod is %s", when, text)
		}
	}

	plan := bed.Tessera(t, "upgrade", "--set", "scheduler.policy=BestFit", "--dry-run")
	for _, want := range []string{
		"settings: scheduler: (none) -> {\"policy\":\"BestFit\"}",
		"Deployment tessera-system/tessera-scheduler: spec.template.spec.containers[scheduler].args[0]: \"--policy=Tessera\" -> \"--policy=BestFit\"",
	} {
		if !strings.Contains(plan, want) {
			t.Errorf("%q is missing in the plan %s", want, plan)
		}
	}
	if strings.Contains(plan, "DaemonSet") {
		t.Errorf("the plan changes agents: %s", plan)
	}
	arguments := func() string {
		return bed.Kubectl(t, "-n", "tessera-system", "get", "daemonset/tessera-agent", "deployment/tessera-scheduler",
			"-o", "jsonpath={.items[*].spec.template.spec.containers[0].args}")
	}
	if text := arguments(); strings.Contains(text, "BestFit") {
		t.Errorf("--dry-run changed the scheduler: %s", text)
	}
	bed.Tessera(t, "upgrade", "--set", "scheduler.policy=BestFit", "--wait")
	bed.Tessera(t, "upgrade", "--set", "privilegedPolicy.enabled=false", "--set", "agent.extraArgs={--log-format=json}", "--wait")
	if text := arguments(); !strings.Contains(text, "BestFit") || !strings.Contains(text, "json") || !strings.Contains(text, "/run/nvidia/driver") {
		t.Errorf("the upgrades did not keep settings, or did not reach the pods: %s", text)
	}
	if text, err := bed.TryKubectl("get", "validatingadmissionpolicy", "tessera-privileged"); err == nil {
		t.Errorf("the upgrade left a policy that is turned off: %s", text)
	}
	if text := bed.Tessera(t, "upgrade"); !strings.Contains(text, "no object changes") {
		t.Errorf("an upgrade without new settings changes %s", text)
	}
	unchanged("after upgrades")

	text, code := bed.TryTessera("uninstall")
	if code != 78 || !regexp.MustCompile(`1 pod with GPUs on nodes: default/`+pod).MatchString(text) {
		t.Errorf("tessera uninstall with a pod ends with %d: %s", code, text)
	}
	if text := bed.Tessera(t, "uninstall", "--force", "--dry-run"); !strings.Contains(text, "DaemonSet tessera-system/tessera-agent: would be deleted") {
		t.Errorf("the plan of an uninstall is %s", text)
	}
	// The inventory of the installation does not list this object.
	bed.Kubectl(t, "-n", "tessera-system", "create", "configmap", "left-over")
	bed.Kubectl(t, "-n", "tessera-system", "label", "configmap", "left-over", "app.kubernetes.io/part-of=tessera")
	t.Log(bed.Tessera(t, "uninstall", "--force"))
	unchanged("after the uninstall")
	if left := leftovers(t); left != "" {
		t.Errorf("the uninstall left %s", left)
	}
	for i, node := range bed.Shared.Nodes {
		if left := marks(t, node.Name); len(left) > 0 {
			t.Errorf("%s has %v after the uninstall", node.Name, left)
		}
		if text := bed.OnNode(t, i+1, "/bin/sh", "-c", "ls /etc/containerd /etc/containerd/conf.d 2>/dev/null | grep tessera; grep -rl tessera-runtime /etc/containerd; ls /run/tessera-runtime/trees 2>/dev/null; true"); text != "" {
			t.Errorf("the uninstall left files on %s: %s", node.Name, text)
		}
	}
	if *rounds == 0 && *bed.Long {
		*rounds = 100
	}
	for round := range max(*rounds, 1) {
		began := time.Now()
		bed.Tessera(t, append([]string{"install"}, settings()...)...)
		bed.Tessera(t, "upgrade", "--set", "scheduler.policy=BestFit", "--wait")
		bed.Tessera(t, "uninstall", "--force")
		unchanged(fmt.Sprintf("after round %d", round+1))
		t.Logf("round %d: %.1f s", round+1, time.Since(began).Seconds())
	}
	// containerd needs tessera-runtime to stop the pod, so the program is still on the node.
	bed.DeletePods(t, pod)
	bed.Kubectl(t, "wait", "node", "--all", "--for=condition=Ready", "--timeout="+strconv.Itoa(int(bed.PodTimeout.Seconds()))+"s")
}
