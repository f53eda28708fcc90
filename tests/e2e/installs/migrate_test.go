// SPDX-License-Identifier: Apache-2.0

package installs

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"tessera.dev/tests/e2e/bed"
)

// policyDefinition lets the API server keep ClusterPolicies. NVIDIA's definition also has a schema.
const policyDefinition = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: clusterpolicies.nvidia.com}
spec:
  group: nvidia.com
  scope: Cluster
  names: {kind: ClusterPolicy, plural: clusterpolicies}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`

// policy is a shortened copy of what the chart of NVIDIA's operator writes.
const policy = `
apiVersion: nvidia.com/v1
kind: ClusterPolicy
metadata: {name: cluster-policy}
spec:
  operator: {defaultRuntime: containerd, runtimeClass: nvidia}
  daemonsets: {priorityClassName: system-node-critical, tolerations: [{key: batch, operator: Exists}]}
  driver:
    enabled: true
    useOpenKernelModules: true
    repository: nvcr.io/nvidia
    version: "550.54.15"
    upgradePolicy: {maxParallelUpgrades: 2, podDeletion: {timeoutSeconds: 300}}
  toolkit: {enabled: true, repository: nvcr.io/nvidia/k8s, image: container-toolkit}
  devicePlugin: {enabled: true, config: {name: ""}}
  dcgmExporter: {enabled: false, config: {name: ""}}
  gds: {enabled: false}
  migManager: {enabled: true}
  hostPaths: {rootFS: /, driverInstallDir: /run/nvidia/driver}
`

// gpushare is the DaemonSet of gpushare's device plugin. Its image cannot be pulled, but its pod is assigned to
// the node, and that is all the test needs.
const gpushare = `
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: gpushare-device-plugin-ds, namespace: kube-system}
spec:
  selector: {matchLabels: {name: gpushare-device-plugin-ds}}
  template:
    metadata: {labels: {name: gpushare-device-plugin-ds}}
    spec:
      tolerations: [{operator: Exists}]
      containers:
      - name: gpushare
        image: example.com/acs/k8s-gpushare-plugin:v2
        imagePullPolicy: Never
        command: [gpushare-device-plugin-v2, --memory-unit=MiB]
`

const managedLabel = "nvidia.com/gpu.deploy.device-plugin"

// migrate runs "tessera migrate".
func migrate(args ...string) (text string, code int) {
	return bed.TryTessera(append([]string{"migrate"}, args...)...)
}

// commandsOf returns the lines of the sh blocks below a heading of a page in docs/tasks.
func commandsOf(t *testing.T, page, heading string) (lines []string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(bed.Root, "docs/tasks", page))
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(text), "\n## "+heading+"\n")
	if !found {
		t.Fatalf("%s has no section %q", page, heading)
	}
	section, _, _ = strings.Cut(section, "\n## ")
	for _, block := range regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(section, -1) {
		for line := range strings.Lines(block[1]) {
			if line = strings.TrimSpace(line); line != "" {
				lines = append(lines, line)
			}
		}
	}
	return lines
}

// runAsPerson runs a line of a page as a person would, with tessera and kubectl in PATH.
func runAsPerson(t *testing.T, line string) string {
	t.Helper()
	bin := t.TempDir()
	if err := os.Symlink(bed.Tool("tessera"), filepath.Join(bin, "tessera")); err != nil {
		t.Fatal(err)
	}
	command := exec.Command("bash", "-eu", "-o", "pipefail", "-c", line)
	command.Dir = bin
	command.Env = append(bed.Shared.KubectlCommand(ctx).Env, "KUBECONFIG="+bed.Shared.Kubeconfig(),
		"PATH="+bin+":"+bed.Shared.BinDir()+":"+os.Getenv("PATH"))
	text, err := command.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", line, err, text)
	}
	return string(text)
}

func agents() string {
	text, _ := bed.TryKubectl("-n", "tessera-system", "get", "pods", "-l", "app.kubernetes.io/name=tessera-agent", "-o", "name")
	return strings.TrimSpace(text)
}

// Migrates from NVIDIA's operator and gpushare's plugin to Tessera by the commands on the page migrate.md.
func TestMigrationByTheCommandsOfThePage(t *testing.T) {
	removeAtTheEnd(t)
	t.Cleanup(func() {
		bed.TryKubectl("delete", "crd/clusterpolicies.nvidia.com", "--ignore-not-found")
		bed.TryKubectl("-n", "kube-system", "delete", "daemonset/gpushare-device-plugin-ds", "--ignore-not-found")
		bed.TryKubectl("label", "nodes", "--all", managedLabel+"-")
	})
	if text, code := migrate("--dry-run"); code != 66 || !strings.Contains(text, "nothing to migrate from") {
		t.Errorf("a migration from nothing ends with %d: %s", code, text)
	}
	applyText(t, policyDefinition)
	bed.Kubectl(t, "wait", "--for=condition=Established", "crd/clusterpolicies.nvidia.com", "--timeout=180s")
	applyText(t, policy)
	applyText(t, gpushare)
	bed.Kubectl(t, "label", "nodes", "--all", managedLabel+"=true")
	bed.Eventually(t, bed.PodTimeout, "gpushare's pods are on the nodes", func() bool {
		text, _ := bed.TryKubectl("-n", "kube-system", "get", "pods", "-l", "name=gpushare-device-plugin-ds", "-o", "jsonpath={.items[*].spec.nodeName}")
		return len(strings.Fields(text)) == len(bed.Shared.Nodes)
	})
	t.Run("plan", migrationPlan)
	t.Run("refusals", migrationRefusals)
	bed.Kubectl(t, "-n", "kube-system", "delete", "daemonset/gpushare-device-plugin-ds")
	// The pods of a deleted DaemonSet end later than the DaemonSet.
	bed.Eventually(t, bed.PodTimeout, "no obstacle is left", func() bool {
		text, _ := migrate("--dry-run")
		return !strings.Contains(text, "BEFORE")
	})

	if text, code := migrate(); code != 64 || !strings.Contains(text, "add --yes") || agents() != "" {
		t.Errorf("without a confirmation it ends with %d: %s", code, text)
	}
	lines := commandsOf(t, "migrate.md", "From NVIDIA's GPU operator")
	installed := false
	for _, line := range lines {
		line = strings.ReplaceAll(strings.Split(line, "  #")[0], "NODE", "n1")
		if strings.HasPrefix(line, "tessera migrate --wait") {
			// The simulated GPUs are not on the PCI bus, so they need other values. A test cannot answer the
			// question that --yes answers.
			line += " --yes -f " + filepath.Join(bed.Root, "deploy/simulated/values.yaml")
			installed = true
		}
		text := runAsPerson(t, line)
		if strings.HasPrefix(line, "tessera migrate --wait") {
			if !strings.Contains(text, "nodes that NVIDIA's operator manages get no agent") || agents() != "" {
				t.Errorf("agents run beside NVIDIA's plugin, or the plan does not say that they will not: %s\n%s", agents(), text)
			}
			if text, code := migrate("--dry-run"); code == 0 || !strings.Contains(text, `use "tessera upgrade"`) {
				t.Errorf("a plan for a cluster that has Tessera ends with %d: %s", code, text)
			}
		}
	}
	if !installed {
		t.Errorf("the page has no command that migrates: %q", lines)
	}
	waitGPUs(t, "n1")
	if args := bed.Kubectl(t, "-n", "tessera-system", "get", "daemonset/tessera-agent", "-o", "jsonpath={.spec.template.spec.containers[0].args}{.spec.template.spec.tolerations}"); !strings.Contains(args, "--driver-root=/run/nvidia/driver") || !strings.Contains(args, "--collect-interval=0") || !strings.Contains(args, `"batch"`) {
		t.Errorf("the settings did not reach the agents: %s", args)
	}
	pod := bed.Single("after-migration", 1).Create(t)
	bed.WaitPhase(t, pod, "Succeeded")
	t.Run("status of pools", statusOfPools)
	t.Run("status of a viewer", statusOfAViewer)
	t.Run("through the operator", installThroughTheOperator)
}

func migrationPlan(t *testing.T) {
	text, code := migrate("--dry-run")
	if code != 0 {
		t.Fatalf("the plan ends with %d: %s", code, text)
	}
	for _, want := range []string{
		"ClusterPolicy cluster-policy", "NVIDIA's operator", "DaemonSet kube-system/gpushare-device-plugin-ds",
		"spec.dcgmExporter.enabled", "sharing.memoryUnit", "driver.kernelModuleType", "set driver.enabled=true", "spec.migManager", "MIG is configured on the node",
		"no agent until its label nvidia.com/gpu.deploy.device-plugin is false",
		"kubectl -n kube-system delete daemonset gpushare-device-plugin-ds",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in %s", want, text)
		}
	}
	if strings.Contains(text, "spec.gds") {
		t.Errorf("the plan lists gds, which is off: %s", text)
	}
	file := filepath.Join(t.TempDir(), "tessera.yaml")
	yaml, code := migrate("--dry-run", "-o", "yaml")
	if code != 0 || !strings.Contains(yaml, "kind: Tessera\n") {
		t.Fatalf("-o yaml ends with %d: %s", code, yaml)
	}
	if err := os.WriteFile(file, []byte(yaml), 0o600); err != nil {
		t.Fatal(err)
	}
	if objects, err := bed.TesseraCommand("install", "--dry-run", "-f", file).CombinedOutput(); err != nil || !strings.Contains(string(objects), "--memory-unit=MiB") {
		t.Errorf("install does not accept what migrate prints: %v %.500s", err, objects)
	}
	if root, _ := migrate("--dry-run", "-o", "jsonpath={.spec.agent.driverRoot}"); root != "/run/nvidia/driver" {
		t.Errorf("-o jsonpath prints %q", root)
	}
	driver, _ := migrate("--dry-run", "-o", "jsonpath={.spec.driver.version} {.spec.driver.kernelModuleType} "+
		"{.spec.driver.upgradePolicy.maxParallelUpgrades} {.spec.driver.upgradePolicy.gpuPodDeletion.timeoutSeconds} {.spec.driver.enabled}")
	if strings.TrimSpace(driver) != "550.54.15 open 2 300" {
		t.Errorf("the driver's settings are %s", driver)
	}
	// The namespace that Helm created is still there, so check for objects inside it.
	if left, err := bed.TryKubectl("-n", "tessera-system", "get", "daemonsets,deployments,configmaps", "-l", "app.kubernetes.io/part-of=tessera", "-o", "name"); err != nil || left != "" {
		t.Errorf("--dry-run made %s %v", left, err)
	}
}

func migrationRefusals(t *testing.T) {
	// The exit codes are those of sysexits.h: 64 usage, 77 permission, 78 configuration.
	for _, refusal := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"--yes"}, 78, "delete daemonset gpushare-device-plugin-ds"},
		{[]string{"-o", "yaml"}, 64, "only --dry-run"},
		{[]string{"--dry-run", "-o", "name"}, 64, "use json, yaml or jsonpath"},
		{[]string{"--dry-run", "--as", "stranger"}, 77, "forbidden"},
		{[]string{"--dry-run", "--context", "missing"}, 64, "missing"},
	} {
		if text, code := migrate(refusal.args...); code != refusal.code || !strings.Contains(text, refusal.want) {
			t.Errorf("migrate %v ends with %d: %s", refusal.args, code, text)
		}
	}
	if agents() != "" {
		t.Errorf("a refused migration started %s", agents())
	}
}

// statusOfPools makes a pool. Each pool has its own DaemonSet, which tessera status must show.
func statusOfPools(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pools.yaml")
	pools := "pools: [{name: a100, nodeSelector: {kubernetes.io/hostname: n1}, mode: whole}]\n"
	if err := os.WriteFile(file, []byte(pools), 0o600); err != nil {
		t.Fatal(err)
	}
	if text, err := bed.TesseraCommand("upgrade", "-f", file, "--wait").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	text, code := status("--wait", "--timeout=180")
	if code != 0 || !strings.Contains(bed.LineOf(text, "agent of pool a100"), "1 of 1 nodes ready") || !strings.Contains(bed.LineOf(text, "agent"), "2 of 2 nodes ready") {
		t.Errorf("tessera status ends with %d\n%s", code, text)
	}
}

// statusOfAViewer runs commands as a service account that has only the rights of ClusterRole tessera-view.
func statusOfAViewer(t *testing.T) {
	bed.Kubectl(t, "create", "serviceaccount", "viewer")
	bed.Kubectl(t, "create", "clusterrolebinding", "viewer", "--clusterrole=tessera-view", "--serviceaccount=default:viewer")
	t.Cleanup(func() {
		bed.TryKubectl("delete", "clusterrolebinding/viewer", "serviceaccount/viewer")
	})
	viewer := []string{"--as", "system:serviceaccount:default:viewer"}
	var text string
	bed.Eventually(t, bed.PodTimeout, "tessera status finds no problem for the viewer", func() bool {
		var code int
		text, code = status(viewer...)
		return code == 0
	})
	if strings.Contains(strings.ReplaceAll(text, bed.LineOf(text, "kube-scheduler"), ""), "forbidden") || !strings.Contains(text, "agent of pool a100") {
		t.Errorf("the viewer gets errors, or does not see the pool:\n%s", text)
	}
	found, _ := bed.TesseraCommand(append([]string{"doctor", "-o", "name"}, viewer...)...).CombinedOutput()
	if strings.Contains(string(found), "not-checked") {
		t.Errorf("doctor skips checks for a viewer:\n%s", found)
	}
	for _, question := range [][]string{{"get", "secrets", "-A"}, {"delete", "pods", "-A"}, {"patch", "nodes"}, {"get", "pods", "--subresource=proxy", "-n", "tessera-system"}, {"list", "configmaps", "-A"}} {
		answer, _ := bed.TryKubectl(append(append([]string{"auth", "can-i"}, question...), viewer...)...)
		if strings.TrimSpace(answer) == "yes" {
			t.Errorf("a viewer may %v", question)
		}
	}
}

// "tessera install --operator" brings the resource to Ready, and "tessera uninstall" removes all of it.
func installThroughTheOperator(t *testing.T) {
	values := filepath.Join(bed.Root, "deploy/simulated/values.yaml")
	if text, err := bed.TesseraCommand("install", "--operator").CombinedOutput(); err == nil || !strings.Contains(string(text), "tessera upgrade") {
		t.Errorf("tessera install --operator did not refuse to replace an installation without the operator: %v %s", err, text)
	}
	if text, err := bed.TesseraCommand("uninstall", "--force").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	install := []string{"install", "--operator", "-f", values, "--wait", "--timeout=180"}
	text, code := bed.TryTessera(install...)
	if code != 0 || !strings.Contains(text, "ready after") {
		t.Fatalf("tessera %v ends with %d: %s", install, code, text)
	}
	waitGPUs(t, "n1")
	text, code = status("--wait", "--timeout=180")
	if code != 0 || !strings.Contains(bed.LineOf(text, "operator"), "2 of 2 replicas ready") || !strings.Contains(bed.LineOf(text, "resource"), "AllComponentsReady") {
		t.Errorf("tessera status ends with %d\n%s", code, text)
	}
	bed.Kubectl(t, "patch", "tessera/tessera", "--type=merge", "-p", `{"spec":{"runtime":{"enabled":false}}}`)
	bed.Eventually(t, bed.PodTimeout, "status shows what the operator rejects", func() bool {
		text, code := status()
		return code == 1 && strings.Contains(bed.LineOf(text, "resource"), "InvalidSpec")
	})
	if text, err := bed.TesseraCommand(append(install, "--force")...).CombinedOutput(); err != nil {
		t.Errorf("--force does not replace the settings: %v\n%s", err, text)
	}
	if text, err := bed.TesseraCommand("uninstall").CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, text)
	}
	left, err := bed.TryKubectl("get", "crd,deployments,daemonsets,clusterroles", "-A", "-l", "app.kubernetes.io/part-of=tessera", "-o", "name")
	if err != nil || left != "" {
		t.Errorf("the uninstall left %s %v", left, err)
	}
}
