// SPDX-License-Identifier: Apache-2.0

package nodes

import (
	"bufio"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"tessera.dev/tests/e2e/bed"
)

// installConsole installs the console by the chart, on n1, and removes it when the test ends.
func installConsole(t *testing.T) {
	t.Helper()
	t.Cleanup(func() { bed.UpgradeChart(t) })
	bed.UpgradeChart(t, "--set", "console.enabled=true", "--set", `console.nodeSelector.kubernetes\.io/hostname=n1`)
	bed.Kubectl(t, "-n", "tessera-system", "rollout", "status", "deployment/tessera-console", "--timeout=180s")
}

// forward makes the console reachable as its documentation says, and returns its address.
func forward(t *testing.T) string {
	t.Helper()
	command := bed.Shared.KubectlCommand(ctx, "-n", "tessera-system", "port-forward", "deployment/tessera-console", ":8090")
	out, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		command.Process.Kill()
		command.Wait()
	})
	line, _ := bufio.NewReader(out).ReadString('\n')
	address := regexp.MustCompile(`127\.0\.0\.1:\d+`).FindString(line)
	if address == "" {
		t.Fatalf("port-forward says %q", line)
	}
	return "http://" + address
}

// addTrainingPool adds a second DaemonSet of agents, for the nodes with the label use=training. These agents offer
// whole GPUs only. An installation with node pools (spec.pools) has such a DaemonSet for each pool.
func addTrainingPool(t *testing.T) {
	t.Helper()
	get := func() bed.Object {
		var set bed.Object
		bed.Get(t, "/apis/apps/v1/namespaces/tessera-system/daemonsets/tessera-agent", &set)
		return set
	}
	set := get()
	spec := set["spec"].(bed.Object)
	template := spec["template"].(bed.Object)
	pod := template["spec"].(bed.Object)
	labels := bed.Object{"app.kubernetes.io/name": "tessera-agent", "app.kubernetes.io/part-of": "tessera", "tessera.dev/pool": "training"}
	selector, _ := pod["nodeSelector"].(bed.Object)
	if selector == nil {
		selector = bed.Object{}
	}
	selector["use"] = "training"
	pod["nodeSelector"] = selector
	for _, container := range pod["containers"].([]any) {
		agent := container.(bed.Object)
		if agent["name"] != "agent" {
			continue
		}
		args := []any{"--shared-resources=none"}
		for _, arg := range agent["args"].([]any) {
			if !strings.HasPrefix(arg.(string), "--shared-resources") {
				args = append(args, arg)
			}
		}
		agent["args"] = args
	}
	template["metadata"] = bed.Object{"labels": labels}
	training := bed.Object{"apiVersion": "apps/v1", "kind": "DaemonSet",
		"metadata": bed.Object{"name": "tessera-agent-training", "namespace": "tessera-system", "labels": labels},
		"spec":     bed.Object{"selector": bed.Object{"matchLabels": labels}, "template": template, "updateStrategy": spec["updateStrategy"]}}
	manifest, err := json.Marshal(training)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "training.json")
	if err := os.WriteFile(file, manifest, 0o600); err != nil {
		t.Fatal(err)
	}
	bed.Kubectl(t, "-n", "tessera-system", "patch", "daemonset", "tessera-agent", "--type=merge", "-p",
		`{"spec":{"template":{"spec":{"affinity":{"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":[{"matchExpressions":[{"key":"use","operator":"NotIn","values":["training"]}]}]}}}}}}}`)
	t.Cleanup(func() {
		bed.TryKubectl("label", "node", "n3", "use-")
		bed.Kubectl(t, "-n", "tessera-system", "delete", "daemonset", "tessera-agent-training", "--ignore-not-found")
		bed.Kubectl(t, "-n", "tessera-system", "patch", "daemonset", "tessera-agent", "--type=json", "-p", `[{"op":"remove","path":"/spec/template/spec/affinity"}]`)
		bed.Kubectl(t, "-n", "tessera-system", "rollout", "status", "daemonset/tessera-agent", "--timeout=180s")
	})
	bed.Kubectl(t, "apply", "-f", file)
	bed.Kubectl(t, "-n", "tessera-system", "rollout", "status", "daemonset/tessera-agent", "--timeout=180s")
}

// Two people use the console that the chart has installed, in a browser. One person may do everything: they create
// two pods with the form (0.3 of a GPU, and a whole GPU), drain node n2, and change node n3 to whole GPUs only. The
// other person, a tenant, may only do what the tenant's Role allows.
func TestPeopleUseTheInstalledConsole(t *testing.T) {
	bed.WireScheduler(t)
	installConsole(t)
	addTrainingPool(t)
	for _, namespace := range []string{"people", "tenant"} {
		bed.Kubectl(t, "create", "namespace", namespace)
		t.Cleanup(func() { bed.Kubectl(t, "delete", "namespace", namespace, "--wait=false") })
	}
	for _, person := range []string{"keeper", "tenant"} {
		bed.Kubectl(t, "-n", "tenant", "create", "serviceaccount", person)
	}
	bed.Kubectl(t, "create", "clusterrolebinding", "console-keeper", "--clusterrole=cluster-admin", "--serviceaccount=tenant:keeper")
	t.Cleanup(func() {
		bed.Kubectl(t, "delete", "clusterrolebinding", "console-keeper")
		bed.TryKubectl("uncordon", "n2")
	})
	bed.Kubectl(t, "-n", "tenant", "create", "rolebinding", "tenant", "--clusterrole=edit", "--serviceaccount=tenant:tenant")

	browser := exec.Command("node", filepath.Join(bed.Root, "tests/console/cluster.mjs"))
	browser.Env = append(os.Environ(), "CONSOLE="+forward(t), "IMAGE=tessera.dev/samples/vectoradd:dev",
		"KEEPER="+bed.Kubectl(t, "-n", "tenant", "create", "token", "keeper"),
		"TENANT="+bed.Kubectl(t, "-n", "tenant", "create", "token", "tenant"),
		"TESSERA_WEB="+filepath.Join(bed.Root, "build/release/web"))
	text, err := browser.CombinedOutput()
	if browser.ProcessState != nil && browser.ProcessState.ExitCode() == 77 {
		t.Skip(string(text))
	}
	if err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	t.Logf("%s", text)

	// The cluster is in the state that the browser showed.
	kubectlInPeople := func(args ...string) string { return bed.Kubectl(t, append([]string{"-n", "people"}, args...)...) }
	bed.Eventually(t, bed.PodTimeout, "pod gpu-operator-test has printed Test PASSED", func() bool {
		log, _ := bed.TryKubectl("-n", "people", "logs", "gpu-operator-test")
		return strings.Contains(log, "Test PASSED")
	})
	if limits := kubectlInPeople("get", "pod", "gpu-operator-test", "-o", "jsonpath={.spec.containers[0].resources.limits} {.spec.restartPolicy} {.spec.nodeName}"); limits != `{"nvidia.com/gpu":"1"} OnFailure n2` {
		t.Errorf("pod gpu-operator-test has limits, restart policy and node %s", limits)
	}
	bed.Eventually(t, bed.PodTimeout, "the drained pod is gone", func() bool {
		_, err := bed.TryKubectl("-n", "people", "get", "pod", "nginx")
		return err != nil
	})
	if cordoned := bed.Kubectl(t, "get", "node", "n2", "-o", "jsonpath={.spec.unschedulable}"); cordoned != "true" {
		t.Errorf("n2 is not cordoned: %q", cordoned)
	}
	bed.Eventually(t, bed.PodTimeout, "n3 offers whole GPUs only", func() bool {
		return bed.Allocatable("n3", "tencent.com/vcuda-core") <= 0 && bed.Allocatable("n3", bed.WholeGPU) > 0
	})
	if pods := bed.Kubectl(t, "-n", "tenant", "get", "pods", "-o", "name"); pods != "pod/intruder" {
		t.Errorf("namespace tenant has pods %s", pods)
	}
}
