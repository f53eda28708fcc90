// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"tessera.dev/tests/e2e/bed"
)

func operatorFile(name string) string { return filepath.Join(bed.Root, "deploy/operator", name) }

// applyText gives a manifest to "kubectl apply".
func applyText(t *testing.T, text string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "manifest.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	bed.Kubectl(t, "apply", "-f", file)
}

// resourceText is a Tessera with the values of the simulated cluster.
func resourceText(t *testing.T) string {
	t.Helper()
	values, err := os.ReadFile(filepath.Join(bed.Root, "deploy/simulated/values.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	text := "apiVersion: tessera.dev/v1alpha1\nkind: Tessera\nmetadata: {name: tessera}\nspec:\n"
	for _, line := range strings.Split(string(values), "\n") {
		text += "  " + line + "\n"
	}
	return text
}

func tesseraCondition(kind, field string) string {
	text, _ := bed.Shared.Kubectl(ctx, "get", "tessera", "tessera", "-o",
		`jsonpath={.status.conditions[?(@.type=="`+kind+`")].`+field+`}`)
	return text
}

func waitTesseraReady(t *testing.T) {
	t.Helper()
	bed.Eventually(t, 2*bed.PodTimeout, "the resource is ready", func() bool {
		return tesseraCondition("Ready", "status") == "True"
	})
}

// Creates the resource and runs a pod with a GPU. The operator then repairs edited objects, is killed, and loses
// a right. In the end the resource is deleted, and the pod goes on.
func TestTheOperatorInstallsKeepsAndRemovesTessera(t *testing.T) {
	helm(t, "uninstall", "tessera", "--namespace", "tessera-system", "--wait", "--timeout=60s")
	t.Cleanup(func() {
		bed.Shared.Kubectl(ctx, "delete", "tessera", "--all", "--timeout=60s")
		bed.Shared.Kubectl(ctx, "-n", "tessera-system", "delete", "deployment/tessera-operator")
		bed.Shared.Kubectl(ctx, "delete", "clusterrole,clusterrolebinding", "-l", "app.kubernetes.io/name=tessera-operator")
		bed.Shared.Kubectl(ctx, "delete", "crd/tesseras.tessera.dev")
		helm(t, append([]string{"upgrade", "--install", "tessera", chartDir(), "--wait", "--timeout=120s"}, bed.HelmArgs()...)...)
		waitAllocatable(t, gpus, bed.PodTimeout)
	})
	t.Run("against the real server", operatorAgainstTheRealServer)
	bed.Kubectl(t, "apply", "-f", operatorFile("operator.yaml"))
	bed.Eventually(t, bed.PodTimeout, "the operator has created the CustomResourceDefinition", func() bool {
		_, err := bed.Shared.Kubectl(ctx, "wait", "--for=condition=Established", "crd/tesseras.tessera.dev", "--timeout=5s")
		return err == nil
	})
	applyText(t, resourceText(t))
	waitTesseraReady(t)
	waitAllocatable(t, gpus, bed.PodTimeout)
	pod := bed.Single("through-the-operator", 1, "--hold", "600").Create(t)
	bed.WaitPhase(t, pod, "Running")

	t.Run("restores", operatorRestores)
	t.Run("killed", operatorKilled)
	t.Run("without a right", operatorWithoutARight)
	t.Run("invalid", operatorInvalid)

	bed.Kubectl(t, "delete", "tessera", "tessera", "--timeout=60s")
	if text, err := bed.Shared.Kubectl(ctx, "-n", "tessera-system", "get", "daemonsets,serviceaccounts,roles", "-l", "app.kubernetes.io/part-of=tessera", "-o", "name"); err != nil || text != "" {
		t.Errorf("left after the deletion: %s %v", text, err)
	}
	if text := bed.Kubectl(t, "get", "node", node, "-o", "jsonpath={.metadata.annotations}{.metadata.labels}{.status.conditions[*].type}"); strings.Contains(text, "tessera.dev/") || strings.Contains(text, "nvidia.com/gpu.present") || strings.Contains(text, "GPUReady") {
		t.Errorf("the node keeps what the agent has written: %s", text)
	}
	if text := onNode(t, "/bin/sh", "-c", "ls /etc/containerd /etc/containerd/conf.d 2>/dev/null | grep tessera; grep -rl tessera-runtime /etc/containerd; true"); text != "" {
		t.Errorf("the engine's configuration keeps %s", text)
	}
	if text := bed.Kubectl(t, "get", "pod", pod, "-o", "jsonpath={.status.phase} {.status.containerStatuses[0].restartCount}"); text != "Running 0" {
		t.Errorf("after the deletion the pod is %s", text)
	}
}

// Runs the operator's tests that require a real API server; they are skipped without one. These tests create
// their own resource and remove Tessera's names from the nodes, so no agent may run.
func operatorAgainstTheRealServer(t *testing.T) {
	cmd := exec.Command(filepath.Join(bed.Root, "build/release/tests/operator_loopback_test"), "--gtest_filter=*ApiServer*")
	cmd.Env = append(os.Environ(), "TESSERA_TEST_KUBECONFIG="+bed.Shared.Kubeconfig())
	text, err := cmd.CombinedOutput()
	if err != nil || strings.Contains(string(text), "[  SKIPPED ]") || !ranTests.Match(text) {
		t.Errorf("%v\n%s", err, text)
	}
}

func agentImage() string {
	text, _ := bed.Shared.Kubectl(ctx, "-n", "tessera-system", "get", "daemonset/tessera-agent", "-o", "jsonpath={.spec.template.spec.containers[0].image}")
	return text
}

func operatorRestores(t *testing.T) {
	want := agentImage()
	bed.Kubectl(t, "-n", "tessera-system", "set", "image", "daemonset/tessera-agent", "agent=example.com/other:1")
	bed.Kubectl(t, "delete", "clusterrole/tessera-agent")
	bed.Eventually(t, 20*time.Second, "edited and deleted objects come back", func() bool {
		_, err := bed.Shared.Kubectl(ctx, "get", "clusterrole/tessera-agent")
		return err == nil && agentImage() == want
	})
	waitTesseraReady(t)
}

func operatorKilled(t *testing.T) {
	want := agentImage()
	bed.Kubectl(t, "-n", "tessera-system", "delete", "pods", "-l", "app.kubernetes.io/name=tessera-operator", "--force", "--grace-period=0")
	bed.Kubectl(t, "-n", "tessera-system", "set", "image", "daemonset/tessera-agent", "agent=example.com/other:1")
	// The test deletes a role and not a service account, because running pods would keep the tokens of the
	// deleted account.
	bed.Kubectl(t, "delete", "clusterrole/tessera-view")
	bed.Eventually(t, bed.PodTimeout, "the next leader restores what was changed meanwhile", func() bool {
		_, err := bed.Shared.Kubectl(ctx, "get", "clusterrole/tessera-view")
		return err == nil && agentImage() == want
	})
	waitTesseraReady(t)
}

// operatorWithoutARight removes the operator's right to write cluster roles, and gives it back.
func operatorWithoutARight(t *testing.T) {
	var role map[string]any
	if err := json.Unmarshal([]byte(bed.Kubectl(t, "get", "clusterrole/tessera-operator", "-o", "json")), &role); err != nil {
		t.Fatal(err)
	}
	var rules []any
	for _, rule := range role["rules"].([]any) {
		text, _ := json.Marshal(rule)
		if !strings.Contains(string(text), `"escalate"`) {
			rules = append(rules, rule)
		}
	}
	patch, err := json.Marshal(map[string]any{"rules": rules})
	if err != nil {
		t.Fatal(err)
	}
	bed.Kubectl(t, "patch", "clusterrole/tessera-operator", "--type=merge", "-p", string(patch))
	bed.Kubectl(t, "delete", "clusterrole/tessera-view")
	bed.Eventually(t, 30*time.Second, "the condition names the missing right", func() bool {
		return tesseraCondition("Degraded", "reason") == "Forbidden" &&
			strings.Contains(tesseraCondition("Degraded", "message"), `clusterroles.rbac.authorization.k8s.io "tessera-view" is forbidden`)
	})
	bed.Kubectl(t, "apply", "-f", operatorFile("operator.yaml"))
	bed.Kubectl(t, "patch", "clusterrole/tessera-operator", "--type=merge", "-p", mustJSON(t, map[string]any{"rules": role["rules"]}))
	waitTesseraReady(t)
}

func mustJSON(t *testing.T, value any) string {
	t.Helper()
	text, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// A condition names an error in the resource that the schema cannot check. The objects stay.
func operatorInvalid(t *testing.T) {
	if text, err := bed.Shared.Kubectl(ctx, "patch", "tessera/tessera", "--type=merge", "-p", `{"spec":{"sharing":{"memoryUnit":"XiB"}}}`); err == nil {
		t.Errorf("the schema accepts a unit that does not exist: %s", text)
	}
	bed.Kubectl(t, "patch", "tessera/tessera", "--type=merge", "-p", `{"spec":{"runtime":{"enabled":false}}}`)
	bed.Eventually(t, 20*time.Second, "the condition names the field", func() bool {
		return tesseraCondition("Degraded", "reason") == "InvalidSpec" &&
			strings.Contains(tesseraCondition("Degraded", "message"), "runtime.enabled=false")
	})
	if agentImage() == "" {
		t.Error("an invalid spec removed the agents")
	}
	bed.Kubectl(t, "patch", "tessera/tessera", "--type=merge", "-p", `{"spec":{"runtime":{"enabled":true}}}`)
	waitTesseraReady(t)
}
